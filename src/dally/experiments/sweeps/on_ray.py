"""A sweep on a Ray cluster: the same tasks, run by whichever node has a free core."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from dally.core.errors import PlanError, RunError, UserError
from dally.simulator.pool import Task
from dally.simulator.stopping import asked

AHEAD = 2  # tasks per core that are handed to Ray before they can run: enough to keep it busy, few enough to hold
RETRIES = 2  # of a cell whose node or worker died


def run_on_ray(tasks: Iterable[Task], on: str) -> Iterator[tuple[int, Any]]:
    """(number, result) as they end; a result that is an exception is the task's failure. `on`: `ray`, `ray=ADDRESS`.

    Files that a scenario names must be readable under the same name on every node.
    """
    name, _, address = on.partition("=")
    if name != "ray":
        raise UserError(f"--on {on!r}: write ray, or ray=ADDRESS of a running Ray cluster")
    try:
        import ray
    except ImportError:
        raise UserError("--on ray needs Ray, which is not installed: pip install 'dally[ray]'") from None
    ours = not ray.is_initialized()
    if ours:
        try:
            ray.init(address=address or None, log_to_driver=False, logging_level="ERROR", include_dashboard=False
                     if not address else None)  # fmt: skip
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            raise UserError(f"--on {on}: Ray cannot be reached: {str(error).splitlines()[0]}") from None
    try:
        yield from _run(ray, tasks)
    finally:
        if ours:
            ray.shutdown()


def _run(ray: Any, tasks: Iterable[Task]) -> Iterator[tuple[int, Any]]:
    remote = ray.remote(max_retries=RETRIES, num_cpus=1)(_call)
    queue = enumerate(tasks)
    running: dict[Any, tuple[int, Task]] = {}
    room = max(1, int(ray.cluster_resources().get("CPU", 1)) * AHEAD)
    exhausted = False
    while True:
        if asked():
            return  # what is under way there is thrown away; the cells that are finished are kept
        while not exhausted and len(running) < room:
            following = next(queue, None)
            if following is None:
                exhausted = True
                break
            number, task = following
            running[remote.remote(task.call)] = (number, task)
        if not running:
            return
        ready, _ = ray.wait(list(running), num_returns=1, timeout=5.0)
        for reference in ready:
            number, task = running.pop(reference)
            yield number, _outcome(ray, reference, task)


def _call(call: Any) -> Any:
    """On a node: what may go wrong is handed over as a value, with its sentence."""
    try:
        return call(lambda now, ended, jobs: True)
    except (UserError, PlanError, RunError) as error:
        return error


def _outcome(ray: Any, reference: Any, task: Task) -> Any:
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        cause = getattr(error, "cause", None) or error
        return RunError(task.label, f"failed: {type(cause).__name__}: {str(cause).splitlines()[-1]}", str(error))
    except ray.exceptions.RayError as error:  # a node or a worker died, and so did the retries
        return RunError(task.label, f"was lost by Ray: {type(error).__name__}", str(error))
