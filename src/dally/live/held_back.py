"""Jobs that are not shown to the scheduler yet: they come after others, begin later, are held by their owner, or their
array has as many there as it may have at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from dally.live.spec import JobSpec

Ending = Callable[[str], str | None]  # how a job, or an array as a whole, ended; None while it has not


class _Entry:
    __slots__ = ("after", "after_ok", "array", "begin", "held")

    def __init__(self, job: str, spec: JobSpec) -> None:
        self.after, self.after_ok = set(spec.after), set(spec.after_ok)
        self.begin, self.held = spec.begin, spec.hold
        self.array = None if spec.at_once is None else array_of(job)


class _Array:
    """One whose members come in a few at a time: who is there, and who waits for that, in order."""

    __slots__ = ("inside", "most", "waiting")

    def __init__(self, most: int) -> None:
        self.most = most
        self.inside: dict[str, None] = {}
        self.waiting: dict[str, None] = {}

    @property
    def full(self) -> bool:
        return len(self.inside) >= self.most


class HeldBack:
    """By job. `enter` says whether one is held back at all; the rest says who may come in now."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._dependent: dict[str, _Entry] = {}  # those of them that come after others
        self._arrays: dict[str, _Array] = {}
        self._never: list[tuple[str, str]] = []

    def __contains__(self, job: str) -> bool:
        return job in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def is_in(self, job: str, spec: JobSpec) -> None:
        """A job that the scheduler has already, and that has not ended: its array has it among those who are there."""
        if spec.at_once is not None:
            self._array(array_of(job), spec.at_once).inside[job] = None

    def _array(self, name: str, most: int) -> _Array:
        return self._arrays.setdefault(name, _Array(most))

    def enter(self, job: str, spec: JobSpec, states: Mapping[str, str | None], now: float) -> bool:
        """`states`: how the jobs it comes after ended, None while they have not. `now` is unix time."""
        entry = self._entries[job] = _Entry(job, spec)
        if entry.after or entry.after_ok:
            self._dependent[job] = entry
        if entry.array is not None:
            assert spec.at_once is not None
            self._array(entry.array, spec.at_once).waiting[job] = None
        for other, state in states.items():
            if state is not None:
                self._one_less(job, entry, other, state)
        return not (job in self._entries and self._comes_in(job, entry, now))

    def _comes_in(self, job: str, entry: _Entry, now: float) -> bool:
        """Whether nothing holds it back any more; then it is taken out, and counts in its array."""
        if entry.after or entry.after_ok or entry.held or (entry.begin is not None and entry.begin > now):
            return False
        array = None if entry.array is None else self._arrays[entry.array]
        if array is not None and array.full:
            return False
        self.discard(job)
        if array is not None:
            array.inside[job] = None
        return True

    def _one_less(self, job: str, entry: _Entry, other: str, state: str) -> None:
        entry.after.discard(other)
        if other in entry.after_ok:
            if state == "finished":
                entry.after_ok.discard(other)
            elif job in self._entries:
                self.discard(job)
                self._never.append((job, f"it was to run after job {other} had finished, which is {state}"))

    def ended(self, ending: Ending, now: float) -> list[str]:
        """Those whom nothing holds back any more, given how jobs have ended by now (unix time)."""
        found = []
        known: dict[str, str | None] = {}  # many may come after the same
        for job, entry in list(self._dependent.items()):
            for other in [*entry.after, *entry.after_ok]:
                if other not in known:
                    known[other] = ending(other)
                state = known[other]
                if state is not None:
                    self._one_less(job, entry, other, state)
            if job in self._entries and not entry.after and not entry.after_ok:
                del self._dependent[job]
                if self._comes_in(job, entry, now):
                    found.append(job)
        return found + self._next_members(ending, now)

    def _next_members(self, ending: Ending, now: float) -> list[str]:
        """Of arrays of which somebody has ended."""
        found = []
        for name, array in list(self._arrays.items()):
            for job in [job for job in array.inside if ending(job) is not None]:
                del array.inside[job]
            for job in list(array.waiting):
                if array.full:
                    break
                if self._comes_in(job, self._entries[job], now):
                    found.append(job)
            if not array.inside and not array.waiting:
                del self._arrays[name]
        return found

    def never(self) -> tuple[str, str] | None:
        """One that can never run, and why; taken out."""
        return self._never.pop(0) if self._never else None

    def begin_by(self, now: float) -> list[str]:
        """Those whose time has come (unix time), if nothing else holds them."""
        found = []
        for job, entry in list(self._entries.items()):
            if entry.begin is not None and entry.begin <= now:
                entry.begin = None
                if self._comes_in(job, entry, now):
                    found.append(job)
        return found

    def next_begin(self) -> float | None:
        return min((entry.begin for entry in self._entries.values() if entry.begin is not None), default=None)

    def hold(self, job: str) -> None:
        self._entries[job].held = True

    def release(self, job: str, now: float) -> bool:
        """Whether it may come in now."""
        entry = self._entries[job]
        entry.held = False
        return self._comes_in(job, entry, now)

    def discard(self, job: str) -> None:
        entry = self._entries.pop(job, None)
        self._dependent.pop(job, None)
        if entry is not None and entry.array is not None:
            self._arrays[entry.array].waiting.pop(job, None)

    def why(self, job: str) -> tuple[str, str, float | None]:
        """Token, sentence, and until when (unix time)."""
        entry = self._entries[job]
        if entry.held:
            return "Held", "held by its owner", None
        others = sorted({*entry.after, *entry.after_ok})
        if others:
            named = ", ".join(others[:5]) + (" …" if len(others) > 5 else "")
            several = len(others) > 1
            how = f"{'have' if several else 'has'} {'finished' if entry.after_ok else 'ended'}"
            return "WaitingForDependency", f"it comes after job{'s' if several else ''} {named} {how}", None
        if entry.begin is not None or entry.array is None:
            return "WaitingForBegin", "it is to begin later", entry.begin
        array = self._arrays[entry.array]
        there = list(array.inside)
        named = ", ".join(there[:5]) + (" …" if len(there) > 5 else "")
        return "WaitingForArray", f"its array may have {array.most} at a time, and has {named}", None


def array_of(job: str) -> str:
    """The id of the array a member belongs to."""
    return job.partition("_")[0]
