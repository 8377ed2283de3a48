"""Which code runs: the sources as they are, or what was compiled from the very same sources (docs/speed.md).

A compiled build is one shared library and a record of the sources it was made of. It lies in `build/compiled` of a
working copy, or inside the package where it came as a wheel; never beside the sources, where it would hide what is
edited. `import dally` takes it if, and only if, every source it was made of is still the same; else all of Dally is
pure Python. DALLY_PURE=1 asks for that; with DALLY_COMPILED=1, or the folder of a build, `import dally` fails where it
cannot be taken.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

RECORD = "compiled.json"  # the library's file name, and for every module: its source, size, time of change and digest
LIBRARY = "dally_inner__mypyc"  # the name mypyc gives the library (`compiling.GROUP`)

_PACKAGE = os.path.dirname(os.path.abspath(__file__))
_state: tuple[bool, str] = (False, "")  # whether compiled code is in use; if not, why


def places(package: str = _PACKAGE) -> list[str]:
    """Where a compiled build is looked for: inside the package, then in the working copy it is the source of."""
    above = os.path.dirname(package)
    root = os.path.dirname(above)
    found = [os.path.join(package, "_built")]
    if os.path.basename(above) == "src" and os.path.exists(os.path.join(root, "pyproject.toml")):
        found.append(os.path.join(root, "build", "compiled"))
    return found


def is_compiled() -> bool:
    return _state[0]


def why_pure() -> str:
    """Why nothing compiled is in use, in a few words."""
    return _state[1]


def build_text() -> str:
    """For `dally --version`."""
    return "compiled" if _state[0] else f"pure Python: {_state[1]}"


def changed(package: str, record: dict[str, Any]) -> list[str]:
    """Sources that are no longer what was compiled. One of the same size and time of change is taken to be the same;
    of any other the digest decides."""
    return [source for source, size, time, digest in record["sources"]
            if not _same(os.path.join(package, source), size, time, digest)]  # fmt: skip


def digest_of(path: str) -> str | None:
    import hashlib

    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return None


def take_compiled() -> None:
    """From here on the modules that were compiled are imported compiled, if their sources are still the same."""
    global _state
    if os.environ.get("DALLY_PURE", "") not in ("", "0"):
        _state = False, "DALLY_PURE is set"
        return
    why = "nothing is compiled"
    asked = os.environ.get("DALLY_COMPILED", "")
    for folder in [asked] if os.path.isdir(asked) else places():
        record = _read(os.path.join(folder, RECORD))
        if record is None:
            continue
        why = _unfit(folder, record)
        if not why:
            sys.meta_path.insert(0, _Finder(os.path.join(folder, record["library"]), record["modules"]))
            _state = True, ""
            return
    _state = False, why
    if asked not in ("", "0"):
        raise ImportError(f"DALLY_COMPILED is set, but {why} (`make install` compiles where there is a C compiler)")


def _read(path: str) -> dict[str, Any] | None:
    try:
        with open(path) as file:
            import json

            found = json.load(file)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _unfit(folder: str, record: dict[str, Any]) -> str:
    """Why this build is not for this interpreter and these sources; empty where it is."""
    if record["version"] != sys.version:
        return "what is compiled is for another Python"
    if not os.path.exists(os.path.join(folder, record["library"])):
        return "nothing is compiled"
    edited = changed(_PACKAGE, record)
    if edited:
        more = f" and {len(edited) - 1} more" if len(edited) > 1 else ""
        return f"{edited[0]}{more} changed since it was compiled"
    return ""


def _same(path: str, size: int, time: int, digest: str) -> bool:
    try:
        status = os.stat(path)
    except OSError:
        return False
    if status.st_size != size:
        return False
    return status.st_mtime_ns == time or digest_of(path) == digest


class _Finder:
    """Finds compiled modules by name, before their sources are found."""

    def __init__(self, library: str, modules: Sequence[str]) -> None:
        self._library = library
        self._modules = frozenset(modules)
        self._opened: ModuleType | None = None

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name not in self._modules:
            return None
        from importlib.machinery import ModuleSpec

        loader: Any = self
        spec = ModuleSpec(name, loader, origin=self._library)
        spec.has_location = True
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        from importlib.machinery import ExtensionFileLoader, ModuleSpec
        from importlib.util import module_from_spec

        if self._opened is None:  # what all modules share: their types and constants
            loader = ExtensionFileLoader(LIBRARY, self._library)
            self._opened = module_from_spec(ModuleSpec(LIBRARY, loader, origin=self._library))
            self._opened.__file__ = self._library
            sys.modules[LIBRARY] = self._opened
        # The library has one entry for every module, by its whole name: `PyInit_dally___core___books`.
        entry = spec.name.replace(".", "___")
        found = ExtensionFileLoader(entry, self._library).create_module(ModuleSpec(entry, None, origin=self._library))
        sys.modules.pop(entry, None)
        return found

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is left to do: making the module has executed it."""
