"""Sets the hooks in the moment a process has imported torch, so that processes that never do are left alone."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType


class _TorchFinder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "torch":
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _TorchLoader(spec.loader)
        return spec


class _TorchLoader(Loader):
    def __init__(self, real: Loader) -> None:
        self._real = real

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._real.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._real  # what asks torch for its loader gets the real one
        module.__loader__ = self._real
        self._real.exec_module(module)
        set_hooks()


def when_torch_comes() -> None:
    if "torch" in sys.modules:
        set_hooks()
    else:
        sys.meta_path.insert(0, _TorchFinder())


def set_hooks() -> None:
    from dally.profiler.inside import hooks

    hooks.set_hooks()
