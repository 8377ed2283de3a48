"""Layers one by one: forward and backward seconds, FLOPs, gradients and activations, and the buckets DDP made.

A layer is a module with parameters of its own. Forward: the time from its call to the call of the next layer is its
own, so that activations and loss are counted and nothing is counted twice. Backward: the time from one gradient being
ready to the next. Gradients are sent when they are ready, so their moments are what a step on a network depends on.
"""

from __future__ import annotations

from collections.abc import Generator
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dally.profiler.inside.session import Interval, Session


class _Layers:
    """Modules with parameters of their own, by the name they have in the model."""

    def __init__(self, root: Any) -> None:
        self.modules: dict[str, Any] = {}
        self.tensors: dict[str, list[int]] = {}
        self.bytes: dict[str, int] = {}
        self.owner: dict[int, str] = {}  # parameter → layer; a shared one belongs to the first
        for name, module in root.named_modules():
            own = [p for p in module.parameters(recurse=False) if p.requires_grad]
            if not own:
                continue
            self.modules[name] = module
            fresh = [p for p in own if id(p) not in self.owner]
            self.owner.update((id(p), name) for p in fresh)
            self.tensors[name] = [p.numel() for p in fresh]
            self.bytes[name] = sum(p.numel() * p.element_size() for p in fresh)


class _Stopwatch:
    """Collects the moments of one step: layers called, backward passes begun and ended, gradients ready, in order."""

    def __init__(self, session: Session, root: Any, layers: _Layers) -> None:
        self.session, self.layers = session, layers
        self.moments: list[tuple[str, str, Any]] = []
        self._backward = 0
        self._handles: list[Any] = [root.register_forward_pre_hook(lambda *_: self._mark("root", ""))]
        for name, module in layers.modules.items():
            self._handles.append(module.register_forward_pre_hook(self._call(name)))
            for parameter in module.parameters(recurse=False):
                if layers.owner.get(id(parameter)) == name:
                    self._handles.append(parameter.register_post_accumulate_grad_hook(self._ready(name)))

    def _mark(self, what: str, name: str) -> None:
        assert self.session.clock is not None
        self.moments.append((what, name, self.session.clock.mark()))

    def _call(self, name: str) -> Any:
        def before(module: Any, args: Any) -> None:
            if not self._backward:  # activations that are computed again belong to the backward pass
                self._mark("call", name)

        return before

    def _ready(self, name: str) -> Any:
        return lambda parameter: self._mark("ready", name)

    def backward(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        self._mark("backward", "")
        self._backward += 1
        try:
            return original(*args, **kwargs)
        finally:
            self._backward -= 1
            self._mark("end", "")

    def close(self) -> None:
        for handle in self._handles:
            handle.remove()

    @property
    def whole(self) -> bool:
        return {"call", "backward", "ready"} <= {what for what, _, _ in self.moments}

    def seconds(self) -> tuple[dict[str, float], dict[str, float], list[str]]:
        """Forward and backward seconds by layer, and layers in the order their last gradient was ready.

        With gradient accumulation there are several passes of each kind, one after another.
        """
        clock = self.session.clock
        assert clock is not None
        ahead = dict.fromkeys(self.layers.modules, 0.0)
        back = dict.fromkeys(self.layers.modules, 0.0)
        order: dict[str, None] = {}
        for (what, name, at), (following, after, then) in pairwise(self.moments):
            took = max(0.0, clock.between(at, then))
            if what == "call":
                ahead[name] += took
            elif what == "root" and following == "call":
                ahead[after] += took  # what comes before the first layer (reshaping, positions) is the first layer's
            elif following == "ready":
                back[after] += took
        for what, name, _ in self.moments:
            if what == "ready":
                order.pop(name, None)
                order[name] = None
        return ahead, back, list(order)


def anatomy(session: Session, steps: int) -> Generator[None, Interval, None]:
    root = session.ddp.module if session.ddp is not None else session.root
    if root is None or session.clock is None:
        session.note("no module holds what the optimiser trains, so there is no layer table")
        return
    import torch

    if _compiled(root):
        session.note("the model is compiled: its step is timed as a whole, and there is no layer table")
        return

    layers = _Layers(root)
    original = torch.autograd.backward
    ahead: list[dict[str, float]] = []
    back: list[dict[str, float]] = []
    order: list[str] = []
    updates, steps_seconds, waits = [], [], []
    try:
        for _ in range(steps):
            watch = _Stopwatch(session, root, layers)

            def backward(*args: Any, _watch: _Stopwatch = watch, **kwargs: Any) -> Any:
                return _watch.backward(original, *args, **kwargs)

            torch.autograd.backward = backward
            session.update_seconds.clear()
            interval = yield
            watch.close()
            session.clock.settle()
            if not watch.whole:
                continue
            one, another, order = watch.seconds()
            ahead.append(one)
            back.append(another)
            updates += [session.clock.between(a, b) for a, b in session.update_seconds]
            if interval.start is not None:
                steps_seconds.append(session.clock.between(interval.start, interval.end))
                waits.append(interval.waited)
    finally:
        torch.autograd.backward = original
    if not ahead:
        session.note("forward and backward could not be told apart, so there is no layer table")
        return
    flops, activations, traffic = yield from _flops(session, root, layers)
    forward_order = list(reversed(order)) + [name for name in layers.modules if name not in order]
    rows = [
        {
            "name": name or "model",
            "kind": type(layers.modules[name]).__name__,
            "tensors": layers.tensors[name],
            "gradient_bytes": layers.bytes[name],
            "forward": median(each[name] for each in ahead),
            "backward": median(each[name] for each in back),
            "forward_flops": flops.get(name, (0, 0))[0],
            "backward_flops": flops.get(name, (0, 0))[1],
            "activations": activations.get(name, 0),
            "traffic": traffic.get(name, 0),
        }
        for name in forward_order
    ]
    outside = [a - b - w for a, b, w in zip(steps_seconds, map(_total, ahead, back), waits, strict=False)]
    update = median(updates) if updates else 0.0
    from dally.profiler.inside.extras import peak_flops

    session.record.write(
        "anatomy",
        layers=rows,
        update=update,
        other=max(0.0, median(outside) - update) if outside else 0.0,
        module=type(root).__name__,
        buckets=_buckets(session),
        peak=peak_flops(session.device) if session.device.type == "cpu" else None,
    )


def _compiled(root: Any) -> bool:
    """Whether torch.compile is at work on it: hooks would be compiled into it."""
    import gc

    parts = set(root.modules())
    if any(getattr(module, "_compiled_call_impl", None) is not None for module in parts):
        return True
    wrapped = (thing._orig_mod for thing in gc.get_objects() if type(thing).__name__ == "OptimizedModule")
    return any(module in parts for module in wrapped)


def _total(ahead: dict[str, float], back: dict[str, float]) -> float:
    return sum(ahead.values()) + sum(back.values())


def _flops(
    session: Session, root: Any, layers: _Layers
) -> Generator[None, Interval, tuple[dict[str, tuple[int, int]], dict[str, int], dict[str, int]]]:
    """Operations by layer, counted in one step that is not timed; sizes of what layers read and write."""
    from torch.utils.flop_counter import FlopCounterMode

    from dally.profiler.inside.feed import walk

    counter: Any = FlopCounterMode(display=False)
    middle: dict[str, int] = {}
    activations: dict[str, int] = {}
    traffic: dict[str, int] = {}

    def count(value: Any) -> int:
        sizes: list[int] = []
        walk(value, lambda tensor: sizes.append(tensor.numel()))
        return sum(sizes)

    def sizes_of(name: str) -> Any:
        def after(module: Any, args: Any, output: Any) -> None:
            out = count(output)
            activations[name] = activations.get(name, 0) + out
            traffic[name] = traffic.get(name, 0) + out + count(args)

        return after

    handles = [module.register_forward_hook(sizes_of(name)) for name, module in layers.modules.items()]
    handles.append(root.register_forward_hook(lambda *_: middle.update(_by_module(counter))))
    counter.__enter__()
    try:
        yield
    finally:
        counter.__exit__(None, None, None)
        for handle in handles:
            handle.remove()
    whole = _by_module(counter)
    prefix = _prefix(whole, session)
    names = list(layers.modules)
    found = {}
    for name in names:
        below = [other for other in names if other.startswith(f"{name}.")] if name else []
        key = f"{prefix}.{name}" if name else prefix
        forward = middle.get(key, 0) - sum(middle.get(f"{prefix}.{other}", 0) for other in below)
        both = whole.get(key, 0) - sum(whole.get(f"{prefix}.{other}", 0) for other in below)
        found[name] = (max(0, forward), max(0, both - forward))
    return _with_rest(found, middle.get("Global", 0), whole.get("Global", 0)), activations, traffic


def _with_rest(found: dict[str, tuple[int, int]], forward: int, both: int) -> dict[str, tuple[int, int]]:
    """Operations outside all layers (attention written out in a block) are shared out in proportion."""
    ahead, back = sum(f for f, _ in found.values()), sum(b for _, b in found.values())
    more_ahead = forward / ahead if ahead else 1.0
    more_back = (both - forward) / back if back else 1.0
    return {name: (round(f * more_ahead), round(b * more_back)) for name, (f, b) in found.items()}


def _by_module(counter: Any) -> dict[str, int]:
    return {name: sum(counts.values()) for name, counts in counter.get_flop_counts().items()}


def _prefix(counts: dict[str, int], session: Session) -> str:
    """How the counter calls the model: its class, and `.module` inside DDP."""
    if session.ddp is not None:
        return f"{type(session.ddp).__name__}.module"
    return type(session.root).__name__


def _buckets(session: Session) -> list[int]:
    """Bytes of the buckets as DDP rebuilt them after its first step, in the order they are sent."""
    if session.ddp is None:
        return []
    data = session.ddp._get_ddp_logging_data()
    text = data.get("rebuilt_bucket_sizes") or data.get("bucket_sizes") or ""
    return [int(part) for part in str(text).split(",") if part.strip()]
