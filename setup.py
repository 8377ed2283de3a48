"""Builds the package: as it is, in pure Python, or with DALLY_COMPILE=1 with its inner loops compiled inside it.

What is compiled is listed in pyproject.toml (`[tool.dally.compiled]`), how in src/dally/compiling.py, and docs/speed.md
says what for. An editable install compiles nothing: `make install` puts what it compiles into build/compiled.
"""

import os
import shutil
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent


class Compiled(build_py):
    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        sys.path.insert(0, str(ROOT / "src"))
        from dally.compiling import NotCompiled, build

        into = Path(self.build_lib).absolute() / "dally" / "_built"
        try:
            build(into, root=ROOT, level=os.environ.get("DALLY_COMPILE_LEVEL", "2"))
        except NotCompiled as why:
            sys.exit(f"DALLY_COMPILE=1, but {why}")
        for made_of in ("c", "objects"):
            shutil.rmtree(into / made_of)


class ForThisPlatform(Distribution):
    def has_ext_modules(self) -> bool:
        return True


if os.environ.get("DALLY_COMPILE") == "1":
    setup(cmdclass={"build_py": Compiled}, distclass=ForThisPlatform)
else:
    setup()
