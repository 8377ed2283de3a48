"""Provenance: what a result was made from, so that anybody can make it again and see that it is the same."""

from __future__ import annotations

import hashlib
import inspect
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dally.core.errors import UserError
from dally.core.spec import parse_spec
from dally.simulator.digests import code_digest, digest_of
from dally.simulator.experiment import Experiment, as_policy
from dally.simulator.sweep import AnyPolicy
from dally.traces.trace import Trace

PROVENANCE = "provenance.json"
TRACE = "trace.csv"  # of a folder whose trace was in memory, or came through a pipe


def policy_record(policy: AnyPolicy) -> dict[str, Any]:
    """A policy in words: its text, and the digest of its code where that is the user's own."""
    if isinstance(policy, str):
        digest = digest_of(parse_spec(policy, "policy").name) if ".py" in policy else None
        return {"policy": policy} if digest is None else {"policy": policy, "file": digest}
    made = as_policy(policy)
    kind = type(made)
    try:
        source = hashlib.sha256(inspect.getsource(kind).encode()).hexdigest()
    except (OSError, TypeError):  # typed at a prompt: there is no source to look at
        source = None
    return {"policy": made.name, "class": f"{kind.__module__}:{kind.__qualname__}", "source": source}


def provenance(experiment: Experiment, policies: Sequence[dict[str, Any]], *, many: bool) -> dict[str, Any]:
    """The whole configuration as plain JSON."""
    scenario = experiment.scenario
    assert scenario is not None, "only a prepared scenario knows how it was made"
    window = experiment.window
    arguments = scenario.arguments()
    if isinstance(scenario.trace, Trace):
        arguments[arguments.index("--trace") + 1] = TRACE
    resolved = {"network": experiment.network, "gpus": experiment.topology.gpus,
                "window": None if window is None else [window.start, window.end]}  # fmt: skip
    return {**scenario.describe(experiment.trace), "resolved": resolved, "code": code_digest(),
            "policies": list(policies), "arguments": arguments, "many": many, "folder": str(Path.cwd())}  # fmt: skip


def command_of(about: dict[str, Any]) -> str:
    """The command line that makes it again."""
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
        need <= found.keys() for need in ({"dally", "sweep"}, {"dally", "scenario", "policies", "many"})
    )
    if not known:
        raise UserError(f"{path} is not the record of a run")
    about: dict[str, Any] = found
    return about
