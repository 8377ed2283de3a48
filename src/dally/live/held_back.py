"""Jobs that are not shown to the scheduler yet: they come after others, begin later, or are held by their owner."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from dally.live.spec import JobSpec


class _Entry:
    __slots__ = ("after", "after_ok", "begin", "held")

    def __init__(self, spec: JobSpec) -> None:
        self.after, self.after_ok = set(spec.after), set(spec.after_ok)
        self.begin, self.held = spec.begin, spec.hold


class HeldBack:
    """By job. `enter` says whether one is held back at all; the rest says who may come in now."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._never: list[tuple[str, str]] = []

    def __contains__(self, job: str) -> bool:
        return job in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def enter(self, job: str, spec: JobSpec, states: Mapping[str, str | None], now: float) -> bool:
        """`states`: how the jobs it comes after ended, None while they have not. `now` is unix time."""
        entry = self._entries[job] = _Entry(spec)
        for other, state in states.items():
            if state is not None:
                self._one_less(job, entry, other, state)
        if job in self._entries and self._free(entry, now):
            del self._entries[job]
            return False
        return True

    def _one_less(self, job: str, entry: _Entry, other: str, state: str) -> None:
        entry.after.discard(other)
        if other in entry.after_ok:
            if state == "finished":
                entry.after_ok.discard(other)
            elif job in self._entries:
                del self._entries[job]
                self._never.append((job, f"it was to run after job {other} had finished, which is {state}"))

    def ended(self, ending: Callable[[str], str | None]) -> list[str]:
        """Those whom nothing holds back any more, given how jobs have ended by now."""
        found = []
        for job, entry in list(self._entries.items()):
            for other in [*entry.after, *entry.after_ok]:
                state = ending(other)
                if state is not None:
                    self._one_less(job, entry, other, state)
            if job in self._entries and not entry.after and not entry.after_ok and not entry.held and not entry.begin:
                del self._entries[job]
                found.append(job)
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
                if self._free(entry, now):
                    del self._entries[job]
                    found.append(job)
        return found

    def next_begin(self) -> float | None:
        return min((entry.begin for entry in self._entries.values() if entry.begin is not None), default=None)

    def hold(self, job: str) -> None:
        self._entries[job].held = True

    def release(self, job: str) -> bool:
        """Whether it may come in now."""
        entry = self._entries[job]
        entry.held = False
        if entry.after or entry.after_ok or entry.begin:
            return False
        del self._entries[job]
        return True

    def discard(self, job: str) -> None:
        self._entries.pop(job, None)

    def why(self, job: str) -> tuple[str, str, float | None]:
        """Token, sentence, and until when (unix time)."""
        entry = self._entries[job]
        if entry.held:
            return "Held", "held by its owner", None
        others = sorted({*entry.after, *entry.after_ok})
        if others:
            named = ", ".join(others[:5]) + (" …" if len(others) > 5 else "")
            how = "have ended" if not entry.after_ok else "have finished"
            return "WaitingForDependency", f"it comes after job{'s' if len(others) > 1 else ''} {named} {how}", None
        return "WaitingForBegin", "it is to begin later", entry.begin

    def _free(self, entry: _Entry, now: float) -> bool:
        return not (entry.after or entry.after_ok or entry.held or (entry.begin is not None and entry.begin > now))
