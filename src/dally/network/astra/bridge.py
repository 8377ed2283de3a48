"""Drive an installed ASTRA-sim: write its inputs, run it, read its answer, and remember it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from dally.core.errors import UserError
from dally.core.records import dataclass
from dally.network.astra.bridge_files import REMOTE_MEMORY, network_text, system_text
from dally.network.astra.bridge_trace import Communicate, Node, encode_trace, step_nodes
from dally.network.astra.collective import Fabric
from dally.network.astra.layers import Layer
from dally.network.astra.model import Backend, Collective
from dally.network.astra.step import BUCKET_BYTES, StepNs

VARIABLE = "DALLY_ASTRA_SIM"
_NAMES: dict[Backend, tuple[str, ...]] = {
    "unaware": ("AstraSim_Analytical_Congestion_Unaware", "AstraSim_Analytical"),
    "aware": ("AstraSim_Analytical_Congestion_Aware",),
}
_FINISHED = re.compile(r"sys\[(\d+)\] finished, (\d+) cycles, exposed communication (\d+) cycles")


@dataclass(frozen=True, slots=True)
class AstraRun:
    """What ASTRA-sim said: per rank, when it finished and how much of that was exposed communication."""

    finish_ns: tuple[int, ...]
    exposed_ns: tuple[int, ...]

    @property
    def end_ns(self) -> int:
        """The job ends when its last rank does."""
        return max(self.finish_ns)


def find_binary(backend: Backend) -> Path:
    """The binary named by DALLY_ASTRA_SIM (a file, or a folder with both backends), else one on PATH."""
    named = os.environ.get(VARIABLE)
    if named:
        path = Path(named)
        candidates = [path / name for name in _NAMES[backend]] if path.is_dir() else [path]
        for candidate in candidates:
            if candidate.is_file() and os.access(candidate, os.X_OK):
                return candidate
        raise UserError(f"{VARIABLE} is {named!r}, where there is no executable {_NAMES[backend][0]}")
    for name in _NAMES[backend]:
        found = shutil.which(name)
        if found:
            return Path(found)
    raise UserError(
        f"ASTRA-sim is not installed: build {_NAMES[backend][0]} from github.com/astra-sim/astra-sim "
        f"(build/astra_analytical/build.sh) and put it on PATH or name it in {VARIABLE}"
    )


class AstraSim:
    """A runner for one binary; equal questions are answered from memory or, if given, from a cache folder."""

    def __init__(
        self, binary: Path | None = None, timeout_s: float = 600.0, cache: Path | None = None
    ) -> None:
        self._binary = binary
        self._timeout_s = timeout_s
        self._cache = cache
        self._known: dict[str, AstraRun] = {}

    def collective_ns(self, op: Collective, size_bytes: int, fabric: Fabric) -> int:
        """One collective alone."""
        return self.run([Communicate(op, op, size_bytes)], fabric).end_ns

    def step_ns(
        self, layers: Sequence[Layer], fabric: Fabric, bucket_bytes: int | None = BUCKET_BYTES
    ) -> StepNs:
        """One data-parallel step; ASTRA-sim counts compute in whole microseconds."""
        run = self.run(step_nodes(layers, bucket_bytes), fabric)
        slowest = run.finish_ns.index(run.end_ns)
        exposed = run.exposed_ns[slowest]
        return StepNs(run.end_ns, run.end_ns - exposed, exposed)

    def run(self, nodes: Sequence[Node], fabric: Fabric) -> AstraRun:
        """Every rank runs the same nodes on the fabric."""
        binary = self._binary if self._binary is not None else find_binary(fabric.backend)
        trace = encode_trace(nodes)
        key = _key(binary, trace, fabric)
        if key not in self._known:
            self._known[key] = self._stored(key, fabric.gpus) or self._fresh(binary, trace, fabric, key)
        return self._known[key]

    def _fresh(self, binary: Path, trace: bytes, fabric: Fabric, key: str) -> AstraRun:
        with tempfile.TemporaryDirectory(prefix="dally-astra-") as name:
            folder = Path(name)
            for rank in range(fabric.gpus):
                (folder / f"step.{rank}.et").write_bytes(trace)
            (folder / "network.yml").write_text(network_text(fabric.dims), encoding="utf-8")
            (folder / "system.json").write_text(system_text(fabric.system), encoding="utf-8")
            (folder / "memory.json").write_text(REMOTE_MEMORY, encoding="utf-8")
            command = [
                str(binary),
                f"--workload-configuration={folder / 'step'}",
                f"--system-configuration={folder / 'system.json'}",
                f"--network-configuration={folder / 'network.yml'}",
                f"--remote-memory-configuration={folder / 'memory.json'}",
                f"--logging-folder={folder / 'log'}",
            ]
            if fabric.system.queues > 1:
                command.append(f"--num-queues-per-dim={fabric.system.queues}")
            try:
                done = subprocess.run(
                    command, capture_output=True, text=True, errors="replace", timeout=self._timeout_s,
                    cwd=folder, check=False,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                raise UserError(f"{binary} did not finish within {self._timeout_s:g} s") from None
            except OSError as error:
                raise UserError(f"{binary} cannot be run ({error.strerror})") from error
        if done.returncode != 0:
            last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
            why = "".join(last) or "no message"
            raise UserError(f"{binary} ended with exit code {done.returncode}: {why}")
        answer = parse_output(done.stdout, fabric.gpus, str(binary))
        if self._cache is not None:
            self._cache.mkdir(parents=True, exist_ok=True)
            part = self._cache / f"{key}.{os.getpid()}.part"
            part.write_text(json.dumps(asdict(answer)), encoding="utf-8")
            part.replace(self._cache / f"{key}.json")
        return answer

    def _stored(self, key: str, gpus: int) -> AstraRun | None:
        """An answer from the cache folder; a torn one, or one for other ranks, counts as absent."""
        if self._cache is None:
            return None
        try:
            content = json.loads((self._cache / f"{key}.json").read_text(encoding="utf-8"))
            run = AstraRun(tuple(map(int, content["finish_ns"])), tuple(map(int, content["exposed_ns"])))
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return run if len(run.finish_ns) == len(run.exposed_ns) == gpus else None


def parse_output(stdout: str, ranks: int, binary: str = "ASTRA-sim") -> AstraRun:
    """Read `sys[i] finished, N cycles, exposed communication M cycles`, one line per rank.

    A deadlock exits with 0 and says nothing, so a rank without its line is an error.
    """
    found = {int(rank): (int(finish), int(exposed)) for rank, finish, exposed in _FINISHED.findall(stdout)}
    missing = [rank for rank in range(ranks) if rank not in found]
    if missing:
        raise UserError(
            f"{binary} stopped without finishing {len(missing)} of {ranks} ranks, "
            f"the first is rank {missing[0]}: its simulation deadlocked"
        )
    return AstraRun(
        tuple(found[rank][0] for rank in range(ranks)), tuple(found[rank][1] for rank in range(ranks))
    )


def _key(binary: Path, trace: bytes, fabric: Fabric) -> str:
    """The same question to the same build: a rebuilt binary is a different one."""
    try:
        state = binary.stat()
    except OSError as error:
        raise UserError(f"{binary} cannot be run ({error.strerror})") from error
    digest = hashlib.sha256()
    for part in (
        f"{binary.resolve()} {state.st_size} {state.st_mtime_ns}".encode(),
        trace,
        network_text(fabric.dims).encode(),
        system_text(fabric.system).encode(),
        str(fabric.system.queues).encode(),
    ):
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()
