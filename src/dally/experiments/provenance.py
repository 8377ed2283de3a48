"""Provenance: what a result was made from, so that anybody can make it again and see that it is the same."""

from __future__ import annotations

import hashlib
import inspect
import json
import shlex
import sys
import uuid
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from dally.core.errors import UserError
from dally.core.spec import parse_spec
from dally.policies.options import load_policy_class
from dally.simulator.digests import code_digest, digest_of
from dally.simulator.experiment import Experiment, as_policy
from dally.simulator.scenario import Scenario
from dally.simulator.sweep import AnyPolicy
from dally.traces.trace import Trace

PROVENANCE = "provenance.json"
TRACE = "trace.csv"  # of a folder whose trace was in memory, or came through a pipe


def policy_record(policy: AnyPolicy) -> dict[str, Any]:
    """A policy in words: its text, and the digest of the file it is in where that is not ours. What that file imports
    is not looked at."""
    if isinstance(policy, str):
        name = parse_spec(policy, "policy").name
        digest = digest_of(name) if name.endswith(".py") else _foreign(name)
        return {"policy": policy} if digest is None else {"policy": policy, "file": digest}
    made = as_policy(policy)
    kind = type(made)
    return {"policy": made.name, "class": f"{kind.__module__}:{kind.__qualname__}", "source": _source(kind)}


@lru_cache(maxsize=64)
def _foreign(name: str) -> str | None:
    """Digest of the file of a policy that another package registered; None for our own: the version stands for it."""
    home = sys.modules[load_policy_class(name).__module__]
    if home.__name__.startswith("dally."):
        return None
    return digest_of(str(getattr(home, "__file__", "")))


@lru_cache(maxsize=64)
def _source(kind: type) -> str:
    """Digest of a class's file, or of its own functions and constants where it was typed in a notebook. Typed where
    nobody keeps the lines, it is this process's alone: what it was cannot be known later."""
    home = getattr(sys.modules.get(kind.__module__), "__file__", None)
    file = digest_of(home) if home else None
    if file is not None:
        return file
    try:
        parts = [f"{name} = {inspect.getsource(value) if inspect.isfunction(value) else repr(value)}"
                 for name, value in sorted(vars(kind).items())
                 if inspect.isfunction(value) or isinstance(value, (str, int, float, bool, tuple))]  # fmt: skip
    except (OSError, TypeError):
        return f"not known: {uuid.uuid4().hex}"
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def inputs_of(scenario: Scenario, policies: Sequence[dict[str, Any]], *, many: bool) -> dict[str, Any]:
    """What decides the results, known before anything is run, as plain JSON."""
    arguments = scenario.arguments()
    if isinstance(scenario.trace, Trace):
        arguments[arguments.index("--trace") + 1] = TRACE
    return {**scenario.identity(), "code": code_digest(), "policies": list(policies), "arguments": arguments,
            "many": many}  # fmt: skip


def provenance(experiment: Experiment, policies: Sequence[dict[str, Any]], *, many: bool) -> dict[str, Any]:
    """The whole configuration as plain JSON."""
    scenario = experiment.scenario
    assert scenario is not None, "only a prepared scenario knows how it was made"
    window = experiment.window
    resolved = {"network": experiment.network, "gpus": experiment.topology.gpus,
                "window": None if window is None else [window.start, window.end]}  # fmt: skip
    rest = inputs_of(scenario, policies, many=many)
    return {**experiment.described(), "resolved": resolved, **{name: rest[name] for name in rest
            if name not in ("dally", "scenario", "files")}, "folder": str(Path.cwd())}  # fmt: skip


def command_of(about: dict[str, Any]) -> str:
    """The command line that makes it again."""
    if "reproduce" in about:
        return shlex.join(["dally", "reproduce", about["reproduce"], *about["arguments"]])
    if "twin" in about:
        return shlex.join(["dally", "twin", *about["arguments"]])
    names = [record["policy"] for record in about["policies"]]
    if about["many"]:
        return shlex.join(["dally", "compare", *about["arguments"], "--policies", ",".join(names)])
    return shlex.join(["dally", "simulate", *about["arguments"], "--policy", *names])


def read_provenance(folder: Path) -> dict[str, Any]:
    path = folder / PROVENANCE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{folder} does not say how it was made: {PROVENANCE} cannot be read: "
                        f"{error.strerror}") from None  # fmt: skip
    except ValueError:
        raise UserError(f"{path} is damaged: it is not JSON") from None
    known = isinstance(found, dict) and any(
        need <= found.keys() for need in ({"dally", "sweep"}, {"dally", "reproduce", "arguments", "pages"},
                                         {"dally", "twin", "arguments", "files", "pages"},
                                         {"dally", "scenario", "policies", "many"})
    )
    if not known:
        raise UserError(f"{path} is not the record of a run")
    about: dict[str, Any] = found
    return about
