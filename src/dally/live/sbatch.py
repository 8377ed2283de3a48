"""Scripts with `#SBATCH` lines: what they ask for as a job of ours, what is left out said, what is unknown refused.

The script's text goes along as it is at submission, as with `sbatch`: it may be changed or removed afterwards. It runs
once on every machine of the job (or once per GPU, `processes: gpu`), which `sbatch` leaves to `srun`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dally.core.errors import UserError
from dally.live.plain_errors import field_name, first_mistake
from dally.live.spec import LONGEST_WORD, JobSpec
from dally.live.spec_file import ReadJobs, overridden

_SHORT = {"J": "job-name", "N": "nodes", "n": "ntasks", "t": "time", "p": "partition", "A": "account", "a": "array",
          "d": "dependency", "b": "begin", "H": "hold", "D": "chdir", "o": "output", "e": "error", "G": "gpus",
          "c": "cpus-per-task", "q": "qos", "w": "nodelist", "x": "exclude", "C": "constraint", "M": "clusters",
          "W": "wait", "Q": "quiet", "v": "verbose", "k": "no-kill", "s": "oversubscribe", "L": "licenses",
          "S": "core-spec"}  # fmt: skip
_FLAGS = ("hold", "requeue", "no-requeue", "exclusive", "parsable", "wait", "quiet", "verbose", "no-kill",
          "oversubscribe", "contiguous", "overcommit", "spread-job", "reboot", "get-user-env", "propagate")  # fmt: skip
# what we know and leave out, with why
_LEFT_OUT = {
    "mail-type": "no mail is sent", "mail-user": "no mail is sent", "comment": "there are no comments",
    "cpus-per-task": "CPUs are not scheduled", "cpus-per-gpu": "CPUs are not scheduled",
    "ntasks": "the number of processes follows from `processes`", "mem": "memory is not scheduled",
    "mem-per-cpu": "memory is not scheduled", "mem-per-gpu": "memory is not scheduled",
    "tmp": "disks are not scheduled", "error": "output and errors go to one file", "qos": "there are queues, no QOS",
    "account": "shares are by queue (partition)", "exclusive": "GPUs are never shared unless the policy does so",
    "open-mode": "output is appended to", "parsable": "only the id is printed anyway", "wckey": "there is none",
    "gpu-bind": "ranks are bound by CUDA_VISIBLE_DEVICES", "distribution": "ranks follow the topology",
    "hint": "CPUs are not scheduled", "threads-per-core": "CPUs are not scheduled", "oversubscribe": "see exclusive",
    "cores-per-socket": "CPUs are not scheduled", "sockets-per-node": "CPUs are not scheduled",
    "ntasks-per-core": "CPUs are not scheduled", "ntasks-per-socket": "CPUs are not scheduled",
    "quiet": "nothing else is printed", "verbose": "nothing else is printed", "no-kill": "a job is all or nothing",
    "overcommit": "CPUs are not scheduled", "spread-job": "placement is the policy's", "profile": "nothing is sampled",
    "propagate": "limits are the service's", "get-user-env": "the service's environment is used",
    "kill-on-invalid-dep": "a job whose after_ok failed never starts", "deadline": "there are no deadlines",
    "licenses": "there are no licences", "wait": "use `dally submit --wait`", "contiguous": "machines have no order",
    "gpu-freq": "clocks are not set", "acctg-freq": "nothing is sampled", "nodelist": "the policy chooses machines",
    "exclude": "the policy chooses machines; drain one to keep jobs off it", "reboot": "machines are not restarted",
}  # fmt: skip
_TIME = re.compile(r"^(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?$")
_DEPENDENCY = {"after": "after", "afterany": "after", "afterok": "after_ok"}


class _Line:
    """One option of one line, and how to say what is wrong with it."""

    def __init__(self, path: Path, number: int, name: str, value: str | None) -> None:
        self.path, self.number, self.name, self.value = path, number, name, value

    def fail(self, what: str) -> UserError:
        return UserError(f"{self.path}, line {self.number}: --{self.name}: {what}")

    @property
    def text(self) -> str:
        if self.value is None or not self.value.strip():
            raise self.fail("it needs a value")
        return self.value.strip()

    @property
    def count(self) -> int:
        if not self.text.isdigit() or int(self.text) < 1:
            raise self.fail(f"it must be a number of at least 1, not {self.text!r}")
        return int(self.text)


def read_script(path: Path, text: str, arguments: Sequence[str] = (),
                over: Mapping[str, Any] | None = None) -> ReadJobs:  # fmt: skip
    """The job a script describes."""
    script = _Script(path)
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if stripped.startswith("#SBATCH"):
            script.read(number, stripped.removeprefix("#SBATCH"))
        elif stripped and not stripped.startswith("#"):
            break  # as sbatch does: options stand before the first command
    fields = overridden({"name": path.name, **script.fields(), "command": _command(path, text, arguments)}, over or {})
    try:
        spec = JobSpec.model_validate(fields)
    except ValidationError as error:
        where, what = first_mistake(error, JobSpec)
        at = script.lines.get(str(where[0]) if where else "")
        place = f", line {at}" if at else ""
        if "gpus: it is missing" in what:
            what = "it asks for no GPUs; write #SBATCH --gpus=N, or --gpus N here"
        raise UserError(f"{path}{place}: {field_name(where) + ': ' if where else ''}{what}") from None
    if spec.total_gpus > 1 and re.search(r"^\s*srun\b", text, re.M):
        script.notes.append("srun is not here: the script itself runs once on every machine, with RANK and "
                            "WORLD_SIZE set; write its command without srun")  # fmt: skip
    return ReadJobs([spec], tuple(script.notes))


def _command(path: Path, text: str, arguments: Sequence[str]) -> list[str]:
    """The interpreter of the first line with the text itself; one that takes no text runs the file where it is."""
    first = text.splitlines()[0] if text else ""
    if not first.startswith("#!"):
        raise UserError(f"{path}, line 1: a script begins with #! and its interpreter, such as #!/bin/bash")
    interpreter = shlex.split(first[2:])
    if not interpreter:
        raise UserError(f"{path}, line 1: no interpreter is named after #!")
    name = Path(interpreter[-1]).name
    takes_text = name in ("bash", "sh", "dash", "zsh", "ksh") or re.fullmatch(r"python[\d.]*", name)
    if not takes_text or len(text.encode()) > LONGEST_WORD:
        return [*interpreter, str(path.resolve()), *arguments]
    if name.startswith("python"):
        return [*interpreter, "-c", text, *arguments]
    return [*interpreter, "-c", text, path.name, *arguments]


class _Script:
    """What the lines say together."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.notes: list[str] = []
        self.lines: dict[str, int] = {}  # field → line
        self._found: dict[str, Any] = {}
        self._tasks_per_node: int | None = None

    def read(self, number: int, rest: str) -> None:
        try:
            words = shlex.split(rest, comments=True)
        except ValueError as error:
            raise UserError(f"{self.path}, line {number}: {error}") from None
        at = 0
        while at < len(words):
            word, at = words[at], at + 1
            if word.startswith("--"):
                name, equals, given = word[2:].partition("=")
                value = given if equals else None
            elif word.startswith("-") and len(word) > 1 and word[1] in _SHORT:
                name, value = _SHORT[word[1]], word[2:].removeprefix("=") or None
            else:
                raise UserError(f"{self.path}, line {number}: {word!r} is no option of sbatch")
            if value is None and name not in _FLAGS and at < len(words) and not words[at].startswith("-"):
                value, at = words[at], at + 1
            self._take(_Line(self.path, number, name, value))

    def _take(self, line: _Line) -> None:
        if line.name in _LEFT_OUT:
            self.notes.append(f"{self.path}, line {line.number}: --{line.name} is left out: {_LEFT_OUT[line.name]}")
            return
        reader = _READERS.get(line.name)
        if reader is None:
            raise line.fail("this option is not known here; remove the line, or say it in our own words "
                            "(docs/formats/job.md)")  # fmt: skip
        reader(self, line)

    def put(self, line: _Line, field: str, value: Any) -> None:
        self._found[field] = value
        self.lines[field] = line.number

    def fields(self) -> dict[str, Any]:
        """As fields of a job. GPUs in all win over GPUs per node."""
        found = dict(self._found)
        if "gpus" in found:
            if found.pop("nodes", None) == 1:
                found.setdefault("placement", {"required": "machine"})
            found.pop("gpus_per_node", None)
        elif "gpus_per_node" in found:
            found.setdefault("nodes", 1)
        elif "nodes" in found:
            found.pop("nodes")  # machines without GPUs: the number of GPUs is missing, and is said to be
        per_node = found.get("gpus_per_node")
        if self._tasks_per_node is not None:
            if per_node is not None and self._tasks_per_node == per_node and per_node > 1:
                found["processes"] = "gpu"
            elif self._tasks_per_node > 1:
                self.notes.append(f"{self.path}: --ntasks-per-node={self._tasks_per_node} is left out: a machine has "
                                  "one process, or one per GPU")  # fmt: skip
        return found

    # --- options -----------------------------------------------------------------------------------------------

    def gres(self, line: _Line) -> None:
        """`gpu:4`, `gpu:a100:4`; anything else is not there."""
        for part in line.text.split(","):
            kind, *rest = part.split(":")
            if kind.removeprefix("gres/") != "gpu" or len(rest) > 2:
                raise line.fail(f"{part!r} is not here; write gpu:N or gpu:TYPE:N")
            self._gpus(line, "gpus_per_node", ":".join(rest) or "1")

    def gpus(self, line: _Line) -> None:
        self._gpus(line, "gpus", line.text)

    def gpus_per_node(self, line: _Line) -> None:
        self._gpus(line, "gpus_per_node", line.text)

    def _gpus(self, line: _Line, field: str, text: str) -> None:
        kind, colon, count = text.rpartition(":")
        if not count.isdigit() and not colon:
            kind, count = count, "1"
        if not count.isdigit() or int(count) < 1:
            raise line.fail(f"{text!r} is no number of GPUs; write N or TYPE:N")
        self.put(line, field, int(count))
        if kind:
            self.put(line, "gpu_type", kind)

    def nodes(self, line: _Line) -> None:
        if "-" in line.text:
            raise line.fail(f"{line.text!r}: a range of nodes is not here; write one number")
        self.put(line, "nodes", line.count)

    def tasks_per_node(self, line: _Line) -> None:
        self._tasks_per_node = line.count

    def time(self, line: _Line) -> None:
        self.put(line, "time_limit", slurm_seconds(line))

    def time_min(self, line: _Line) -> None:
        self.notes.append(f"{self.path}, line {line.number}: --time-min is left out: time limits stay as they are")

    def dependency(self, line: _Line) -> None:
        text = line.text
        if text == "singleton" or "?" in text:
            raise line.fail(f"{text!r}: only after, afterany and afterok of all the jobs that are named are here")
        for part in text.split(","):
            kind, *ids = part.split(":")
            if kind not in _DEPENDENCY or not ids:
                raise line.fail(f"{part!r}: only after, afterany and afterok with ids are here")
            if kind == "after":
                self.notes.append(f"{self.path}, line {line.number}: after is taken as afterany: once those jobs ended")
            field = _DEPENDENCY[kind]
            self.put(line, field, [*self._found.get(field, []), *ids])

    def begin(self, line: _Line) -> None:
        """`now+10minutes`, `2026-11-20T08:00`."""
        text = line.text
        if text == "now":
            return
        if text.startswith("now+"):
            match = re.fullmatch(r"(\d+)\s*(seconds?|minutes?|hours?|days?|weeks?)?", text[4:])
            if match is None:
                raise line.fail(f"{text!r} is no time; write now+10minutes or 2026-11-20T08:00")
            self.put(line, "begin", f"{match[1]}{(match[2] or 's')[0]}")
            return
        self.put(line, "begin", text)

    def signal(self, line: _Line) -> None:
        """`[B:]TERM@60`: the signal, and how long before the end it comes; for us, before the GPUs are taken."""
        match = re.fullmatch(r"(?:[RB]+:)?([A-Za-z0-9]+)(?:@(\d+))?", line.text)
        if match is None:
            raise line.fail(f"{line.text!r} is no signal; write TERM@60 or B:USR1@120")
        name = {"15": "TERM", "2": "INT", "1": "HUP", "10": "USR1", "12": "USR2"}.get(match[1], match[1])
        self.put(line, "checkpoint", {"signal": name, "grace": float(match[2] or 60)})

    def export(self, line: _Line) -> None:
        found: dict[str, str] = {}
        for part in line.text.split(","):
            name, equals, value = part.partition("=")
            if equals:
                found[name] = value
            elif name == "ALL":
                self.notes.append(f"{self.path}, line {line.number}: --export=ALL is left out: name the variables, or "
                                  "give them with --env")  # fmt: skip
            elif name not in ("NONE", "NIL"):
                import os

                if name not in os.environ:
                    raise line.fail(f"there is no variable {name} here")
                found[name] = os.environ[name]
        if found:
            self.put(line, "environment", found)

    def switches(self, line: _Line) -> None:
        """`1@10:00`: one switch is one rack, worth waiting for so long."""
        count, at, wait = line.text.partition("@")
        if count != "1":
            raise line.fail(f"{line.text!r}: only one switch can be asked for, which is one rack; write 1 or 1@10:00")
        waits = slurm_seconds(_Line(line.path, line.number, line.name, wait)) if at else "forever"
        self.put(line, "placement", {"preferred": "rack", "wait": waits})

    def nice(self, line: _Line) -> None:
        text = (line.value or "100").strip()
        if not re.fullmatch(r"-?\d+", text):
            raise line.fail(f"{text!r} is no number")
        self.put(line, "priority", -int(text))

    def priority(self, line: _Line) -> None:
        if not line.text.isdigit():
            raise line.fail(f"{line.text!r} is no number")
        self.put(line, "priority", int(line.text))

    def requeue(self, line: _Line) -> None:
        """Slurm queues a job again whose machine failed."""
        self.put(line, "retries", 0 if line.name == "no-requeue" else 3)

    def hold(self, line: _Line) -> None:
        self.put(line, "hold", True)


def _text(field: str) -> Callable[[_Script, _Line], None]:
    return lambda script, line: script.put(line, field, line.text)


def slurm_seconds(line: _Line) -> float:
    """`30` (minutes), `30:00`, `2:00:00`, `1-12`, `1-12:30:00` → seconds."""
    match = _TIME.match(line.text)
    if match is None:
        raise line.fail(f"{line.text!r} is no time; write 30 (minutes), 2:00:00 or 1-12:00:00")
    days, first, second, third = match[1], int(match[2]), int(match[3] or 0), int(match[4] or 0)
    if days is not None:
        return int(days) * 86400.0 + first * 3600.0 + second * 60.0 + third
    if match[4] is not None:
        return first * 3600.0 + second * 60.0 + third
    return first * 60.0 + second


_READERS: dict[str, Callable[[_Script, _Line], None]] = {
    "job-name": _text("name"), "partition": _text("queue"), "array": _text("array"), "chdir": _text("directory"),
    "workdir": _text("directory"), "output": _text("output"), "constraint": _text("gpu_type"), "gres": _Script.gres,
    "gpus": _Script.gpus, "gpus-per-node": _Script.gpus_per_node, "nodes": _Script.nodes, "time": _Script.time,
    "time-min": _Script.time_min, "ntasks-per-node": _Script.tasks_per_node, "dependency": _Script.dependency,
    "begin": _Script.begin, "signal": _Script.signal, "export": _Script.export, "switches": _Script.switches,
    "nice": _Script.nice, "priority": _Script.priority, "requeue": _Script.requeue, "no-requeue": _Script.requeue,
    "hold": _Script.hold,
}  # fmt: skip
