"""Compiles the inner loops with mypyc into one shared library that `compiled` finds: `python src/dally/compiling.py`.

What is compiled stands in pyproject.toml (`[tool.dally.compiled]`). C files are compiled side by side and their objects
kept by what they were made of, so that a second build compiles what changed. Nothing here is fatal: where there is no
compiler, no mypyc, or something mypyc does not take, a sentence says so, and Dally runs as pure Python.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parent
ROOT = PACKAGE.parents[1]

GROUP = "dally_inner"  # what mypyc calls the library; `compiled.LIBRARY` is its name as a module
# Types are checked elsewhere (`make types`). Packages that are not compiled need not be read: what comes from them is
# checked when it comes.
_MYPY = """[mypy]
mypy_path = src
ignore_errors = True
warn_unused_configs = False
[mypy-numpy.*,polars.*,pydantic.*,pydantic_core.*,rich.*,sqlalchemy.*,plotly.*,highspy.*,yaml.*,click.*,sortedcontainers.*]
follow_imports = skip
ignore_missing_imports = True
"""


class NotCompiled(Exception):  # noqa: N818 (it says what happened)
    """Why there is no compiled build, in a sentence; `code` for who asked for one (`--must`)."""

    code = 1


class NoCompiler(NotCompiled):
    """Nothing to compile with: the sources are not to blame."""

    code = 3


def modules(root: Path = ROOT) -> list[str]:
    """What is to be compiled: paths inside the package, without `.py`."""
    asked = _asked(root)
    package = root / "src" / "dally"
    found = {path.relative_to(package).with_suffix("").as_posix() for pattern in asked["modules"]
             for path in package.glob(f"{pattern}.py") if path.name != "__init__.py"}  # fmt: skip
    return sorted(found - set(asked["pure"]))


def native(root: Path = ROOT) -> list[str]:
    """What is written in C and goes along: likewise, without `.c`. Nothing needs it."""
    return list(_asked(root).get("native", []))


def _asked(root: Path) -> dict[str, list[str]]:
    import tomllib

    found: dict[str, list[str]] = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["dally"]["compiled"]
    return found


def build(into: Path, *, root: Path = ROOT, level: str = "1", side_by_side: int | None = None) -> None:
    """The library and its record, in a folder; unchanged where they fit the sources already."""
    known = _own_module("compiled")
    names, in_c = modules(root), native(root)
    package = root / "src" / "dally"
    record = into / known.RECORD
    wanted = _dotted([*names, *in_c])
    with contextlib.suppress(OSError, ValueError, KeyError):
        made = json.loads(record.read_text())
        same = (made["modules"], made["version"], made["level"]) == (wanted, sys.version, level)
        if same and not known.changed(str(package), made) and (into / made["library"]).exists():
            return
    other = _own_module("compilable").differences(package, names)
    if other:
        raise NotCompiled("compiled, the sources would mean something else: " + " / ".join(other[:5]))
    compiler = _compiler()
    # Written down before they are read: what is edited while it compiles does not pass for what was compiled.
    written = [*(f"{name}.py" for name in names), *(f"{name}.c" for name in in_c)]
    sources = [[name, (status := (package / name).stat()).st_size, status.st_mtime_ns,
                known.digest_of(str(package / name))] for name in written]  # fmt: skip
    into.mkdir(parents=True, exist_ok=True)
    record.unlink(missing_ok=True)
    work = into / "c"
    files, include = _translate(root, names, work)
    entries = work / "entries.c"
    entries.write_text("#include <Python.h>\n" + "".join(
        f"extern PyObject *CPy{entry}(void);\nPyMODINIT_FUNC Py{entry}(void) {{ return CPy{entry}(); }}\n"
        for entry in ("Init_" + name.replace(".", "___") for name in _dotted(names))))  # fmt: skip
    library = known.LIBRARY + str(sysconfig.get_config_var("EXT_SUFFIX"))
    flags = [f"-O{level}", "-g0", "-w", "-fPIC", "-fvisibility=hidden", "-DNDEBUG", *(f"-I{path}" for path in include)]
    files += [entries, *(package / f"{name}.c" for name in in_c)]
    objects = _compile(compiler, flags, files, work, into / "objects", side_by_side or os.cpu_count() or 1)
    fresh = into / f"{library}.new"
    _run([*compiler, "-shared", "-o", str(fresh), *map(str, objects)])
    fresh.replace(into / library)
    record.write_text(json.dumps({"library": library, "version": sys.version, "level": level,
                                  "modules": wanted, "sources": sources}))  # fmt: skip
    if root == ROOT and (why := _unimportable(into, names)):
        record.unlink()
        raise NotCompiled(f"what was compiled cannot be imported: {why}")


def _unimportable(into: Path, names: list[str]) -> str:
    """What goes wrong where all of it is imported, with the plain modules that go with it; empty where nothing does."""
    code = "import importlib, sys\nfor name in sys.argv[1:]:\n    importlib.import_module(name)\n"
    with_policies = [*_dotted(names), *(f"dally.policies.{path.name}" for path in (PACKAGE / "policies").iterdir()
                                        if (path / "__init__.py").exists())]  # fmt: skip
    clean = {name: value for name, value in os.environ.items() if name != "DALLY_PURE"}
    done = subprocess.run([sys.executable, "-c", code, *with_policies], capture_output=True, text=True, check=False,
                          env={**clean, "DALLY_COMPILED": str(into), "PYTHONPATH": str(PACKAGE.parent)})  # fmt: skip
    said = done.stderr.splitlines()
    if not done.returncode or said[-1].startswith("ModuleNotFoundError"):  # what Dally needs may not be there yet
        return ""
    return said[-1]


def _dotted(names: Iterable[str]) -> list[str]:
    return ["dally." + name.replace("/", ".") for name in names]


def _own_module(name: str) -> Any:
    """A module of ours, without importing the package: it may not be importable yet."""
    spec = importlib.util.spec_from_file_location(f"_dally_{name}", PACKAGE / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _compiler() -> list[str]:
    asked = (os.environ.get("CC") or "cc").split()
    if shutil.which(asked[0]) is None:
        raise NoCompiler(f"there is no C compiler ({asked[0]})")
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").exists():
        raise NoCompiler("Python's headers are not installed (Python.h)")
    if importlib.util.find_spec("mypyc") is None:
        raise NoCompiler("mypyc is not installed (it comes with mypy)")
    return asked


def _translate(root: Path, names: list[str], work: Path) -> tuple[list[Path], list[str]]:
    """Python to C, in a process of its own: mypyc ends the process where it does not take something."""
    work.mkdir(parents=True, exist_ok=True)
    (work / "mypy.ini").write_text(_MYPY)
    done = subprocess.run([sys.executable, __file__, "--translate", str(work), *names], cwd=root, capture_output=True,
                          text=True, check=False)  # fmt: skip
    if done.returncode:
        said = [line for line in (done.stdout + done.stderr).splitlines() if "rror" in line] or [done.stderr[-500:]]
        raise NotCompiled("mypyc does not take the sources: " + " / ".join(said[:5]))
    found = json.loads((work / "files.json").read_text())
    return [Path(name) for name in found["files"]], found["include"]


def _translate_here(work: str, names: list[str]) -> None:
    from mypyc import build as mypyc
    from mypyc.common import RUNTIME_C_FILES
    from mypyc.options import CompilerOptions

    options = CompilerOptions(multi_file=True, target_dir=work, group_name=GROUP)
    paths = [f"src/dally/{name}.py" for name in names]
    _, ((files, _),), needed = mypyc.mypyc_build(["--config-file", f"{work}/mypy.ini", *paths], options,
                                                 only_compile_paths=paths)  # fmt: skip
    runtime = Path(mypyc.include_dir())
    files += [str(runtime / name) for name in (*RUNTIME_C_FILES, *(each.path for each in needed))]
    include = [sysconfig.get_paths()["include"], str(runtime), work,
               *(str(runtime / folder) for each in needed for folder in each.include_dirs)]  # fmt: skip
    (Path(work) / "files.json").write_text(json.dumps({"files": files, "include": include}))


def _compile(compiler: list[str], flags: list[str], files: list[Path], work: Path, kept: Path,
             lanes: int) -> list[Path]:  # fmt: skip
    """Objects of all C files, each by the digest of what it is made of: itself, the headers, compiler and flags."""
    kept.mkdir(parents=True, exist_ok=True)
    shared = hashlib.sha256(json.dumps([compiler, flags, sys.version]).encode())
    for header in sorted(work.glob("*.h")):
        shared.update(header.read_bytes())

    def one(file: Path) -> Path:
        digest = shared.copy()
        digest.update(file.read_bytes())
        made = kept / f"{digest.hexdigest()[:40]}.o"
        if not made.exists():
            fresh = made.with_suffix(f".{os.getpid()}.new")
            _run([*compiler, "-c", *flags, str(file), "-o", str(fresh)])
            fresh.replace(made)
        return made

    with ThreadPoolExecutor(lanes) as pool:
        objects = list(pool.map(one, files))
    for old in set(kept.iterdir()) - set(objects):
        old.unlink(missing_ok=True)
    return objects


def _run(words: list[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotCompiled(f"{words[0]} fails: {' '.join(done.stderr.split())[:300]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, default=ROOT / "build" / "compiled", help="folder of the build")
    parser.add_argument("--level", default=os.environ.get("DALLY_COMPILE_LEVEL", "1"), help="of the C compiler")
    parser.add_argument("--must", action="store_true",
                        help="exit code 1 where nothing is compiled, 3 where there is no compiler")  # fmt: skip
    parser.add_argument("--translate", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.translate:
        _translate_here(options.translate[0], options.translate[1:])
        return
    try:
        build(options.into.absolute(), level=options.level)
    except (NotCompiled, OSError) as why:
        print(f"not compiled, Dally runs as pure Python: {why}", file=sys.stderr)
        sys.exit(getattr(why, "code", 1) if options.must else 0)


if __name__ == "__main__":
    # Executed as a file: its folder, full of our own modules, is no place to look for others (`dally.compiled`, `job`).
    sys.path[:] = [path for path in sys.path if Path(path or ".").resolve() != PACKAGE]
    main()
