"""Builds the package: as it is, in pure Python, or with its inner loops compiled by mypyc where DALLY_COMPILE=1 asks.

What is compiled is listed in pyproject.toml (`[tool.dally.compiled]`); docs/speed.md says how to build and what for.
"""

import json
import os
import sys
import tomllib
from pathlib import Path

from setuptools import setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent
SOURCES = ROOT / "src"


def modules() -> list[str]:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["dally"]["compiled"]["modules"]
    return [str((SOURCES / "dally" / f"{name}.py").relative_to(ROOT)) for name in listed]


class Installed(build_ext):
    """Compiled modules go into wheels only. Beside the sources they would shadow every later edit without a word."""

    def finalize_options(self) -> None:
        super().finalize_options()
        if self.inplace or getattr(self, "editable_mode", False):
            sys.exit("DALLY_COMPILE=1 does not go with an editable install or a build in place: compiled modules would "
                     "hide what is edited beside them. `make compiled` builds a wheel, and installs it elsewhere.")

    def run(self) -> None:
        super().run()
        sys.path.insert(0, str(SOURCES / "dally"))
        from compiled import RECORD, digest_of  # not as dally.compiled: the package may not be importable yet

        package = Path(self.build_lib) / "dally"
        package.mkdir(parents=True, exist_ok=True)
        names = [str(Path(path).relative_to("src/dally")) for path in modules()]
        digests = {name: digest_of(str(SOURCES / "dally" / name)) for name in names}
        (package / RECORD).write_text(json.dumps(digests, indent=1))


if os.environ.get("DALLY_COMPILE") == "1":
    from mypyc.build import mypycify

    level = os.environ.get("DALLY_COMPILE_LEVEL", "3")  # of the C compiler; 0 builds in a fraction of the time
    setup(ext_modules=mypycify(modules(), opt_level=level), cmdclass={"build_ext": Installed})
else:
    setup()
