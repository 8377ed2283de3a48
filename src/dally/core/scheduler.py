"""The scheduler: one class for every world. What happened, what to do about it, checked, written, done, handed over.

One instant is one transaction. Its events become part of the books; the policy is asked; its plan is looked at as a
whole; events and plan are written to the journal as one record; only then is the plan made the state of the house and
handed to the world. A plan that breaks a rule, or that could not be written, leaves no trace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from dally.core import events as ev
from dally.core import plan as pl
from dally.core.active import ActiveJob
from dally.core.books import Books
from dally.core.errors import PlanError
from dally.core.estimates import Declared, Estimates
from dally.core.free import FreeGpus
from dally.core.inner import quicken
from dally.core.journal import (
    Decided,
    Entry,
    Happened,
    InCharge,
    Instant,
    Journal,
    Leaving,
    LetIn,
    Odd,
    Refused,
    Rejected,
)
from dally.core.memory import Memory
from dally.core.plain import texts_in
from dally.core.policy import Meter, Policy, PolicyBase, View
from dally.core.reasons import Reason, Token
from dally.core.rules import Broken, Rules
from dally.core.sharing import Interference, NoInterference
from dally.core.states import State
from dally.core.tables import Draft
from dally.core.topology import Topology

_INSTANT: Final = Instant  # constants are not looked up by name when they are used
_JUST_LEFT = Reason(Token.WAITING_FOR_GPUS, "it has just left its GPUs to others; what is next is decided soon")


class World(Protocol):
    """Where jobs really run, or pretend to. It may answer late, refuse, repeat itself and come back from the dead."""

    def next_events(self) -> tuple[float, Sequence[ev.Event]] | None:
        """All events of the next instant, in the order of `events.ORDER`; None when nothing can happen any more."""
        ...

    def carry_out(self, now: float, decided: Sequence[Decided]) -> Sequence[ev.Event]:
        """Do what was decided. Consequences that are certain at once may be returned; the rest are events to come."""
        ...


class Answer(NamedTuple):
    """What a policy says when it is asked, and the first rule that its plan would break."""

    plan: pl.Plan
    broken: Broken | None


class Scheduler:
    """Keeps the books, asks the policy, writes the journal, tells the world."""

    def __init__(self, topology: Topology, policy: Policy, world: World, journal: Journal,
                 estimates: Estimates | None = None, interference: Interference | None = None,
                 meter: Meter | None = None, *, strict: bool = True,
                 remembers: int | None = None) -> None:  # fmt: skip
        self.world, self.journal, self.policy = world, journal, policy
        self.strict = strict  # whether a broken rule ends the run, or is written down and passed over
        self.remembers = remembers  # ended jobs until they are forgotten, all at once; None: for ever
        self.forget_at = remembers or 0
        self.time = 0.0  # of the latest instant
        self.events = 0
        self._interference = interference or NoInterference()
        self.books = Books(topology, estimates or Declared(), self._interference, meter,
                           shares=policy.shares, preempts=policy.preempts)  # fmt: skip
        self.memory = policy.new_memory()
        self._rules = Rules(self.books.view, self.books.jobs, self._interference, policy.shares)
        self._failed: Exception | None = None  # what went wrong in the policy since it last planned
        self._unwritten: list[Happened] = []  # part of the books, not yet of the journal
        self.news: list[Happened] = []  # what the policy has not planned with yet
        self._listens = _listens(policy)
        self._draft = _draft(self.memory)
        quicken((type(policy).__module__.partition(".")[0],))
        policy.attach(self.books.view, self.memory)

    @property
    def view(self) -> View:
        return self.books.view

    @property
    def jobs(self) -> dict[str, ActiveJob]:
        return self.books.jobs

    @property
    def free(self) -> FreeGpus:
        return self.books.view.free

    def run(self, between: Callable[[float], bool] | None = None) -> None:
        """Until the world has nothing more to report, or `between` (called after each instant) says stop."""
        while (reported := self.world.next_events()) is not None:
            self.step(*reported)  # by name, so that somebody who looks at every step can stand in between
            if between is not None and not between(reported[0]):
                return

    def step(self, now: float, events: Sequence[ev.Event]) -> None:
        """One trip: events in; plan out, checked, written, made the state of the house and carried out."""
        self.absorb(now, events)
        self.decide(now)

    def absorb(self, now: float, events: Sequence[ev.Event], recorded: Sequence[Decided] | None = None) -> None:
        """What happened becomes part of the books and of the policy's memory; `recorded`: what was decided then."""
        books = self.books
        self.time = now
        if self.remembers is not None and books.ended >= self.forget_at and not self.news and not self._unwritten:
            self._forget()
        seen = books.happened(now, events)
        if books.laid_out_before is not None:
            self._relay(books.laid_out_before)
            books.laid_out_before = None
        self.events += len(seen)
        self._unwritten += seen
        heard = books.door.heard(seen)
        if books.door.gate is not None:
            heard = [*heard, *books.door.open(self.policy, self.memory, now, recorded)]
            self._failed_at_the_gate()
        self.news += heard
        if self._listens or books.unranked:
            self.hear(now, heard)

    def _forget(self) -> None:
        """Who has ended, unless the policy still remembers them: one that decides in rounds may ask of them once more.
        When this happens follows from the record alone, so that it is executed again with the same result."""
        assert self.remembers is not None
        named: set[str] = set()
        for name in self.memory.fields():
            texts_in(getattr(self.memory, name), named)
        self.books.forget(named)
        self.forget_at = self.remembers + self.books.ended

    def _failed_at_the_gate(self) -> None:
        """As where it fails to hear: whom it did not rank stays where it was."""
        failed, self.books.door.failed = self.books.door.failed, None
        if failed is not None:
            if self.strict:
                raise failed
            self._failed = failed

    def hear(self, now: float, entries: Sequence[Entry]) -> None:
        """The policy hears of entries it has not decided itself, and jobs are ranked anew."""
        policy, books, memory = self.policy, self.books, self.memory
        try:
            named = policy.hear(books.view, memory, now, entries) if self._listens else ()
            books.rank(policy, memory, now, named)
        except Exception as error:
            if self.strict:
                raise
            self._failed = error  # where nobody may stop for it, that is what comes of its next plan

    def ask(self, now: float) -> Answer:
        """What the policy would decide now. Changes nothing: ask as often as you like."""
        view, memory = self.books.view, self.memory
        view.news = tuple(self.news)
        memory.begin()
        try:
            plan = self.policy.plan(view, memory, now)
            found = self._rules.look(now, plan)
            return Answer(plan, found if isinstance(found, Broken) else None)
        finally:
            memory.drop()

    def decide(self, now: float) -> None:
        """Ask the policy and do as it says."""
        books, memory = self.books, self.memory
        view = books.view
        view.news = self.news
        draft = self._draft
        if draft is not None:
            draft.begin(memory.__dict__)
        try:
            plan = self.policy.plan(view, memory, now) if self.strict else self._plan(now)
            news = books.news_in(plan)
            found = self._rules.look(now, news)
            if isinstance(found, Broken):
                raise PlanError(self.policy.name, *found)
            decided: list[Decided] = [*books.answers, *news, *found] if books.answers or found else news
            self.write(now, decided)
        except PlanError as error:
            memory.drop()
            if self.strict:
                raise
            decided = self._pass_over(now, error)
        except BaseException:
            memory.drop()
            raise
        else:
            if draft is not None:
                draft.keep()
        self.news = []
        books.answers.clear()
        if decided:
            books.decided(now, decided)
            self.carry_out(now, decided)

    def _plan(self, now: float) -> pl.Plan:
        """Whatever is wrong with a policy, the cluster goes on."""
        failed, self._failed = self._failed, None
        try:
            if failed is not None:
                raise failed
            return self.policy.plan(self.books.view, self.memory, now)
        except PlanError:
            raise
        except Exception as error:
            raise PlanError(self.policy.name, "any", f"its plan failed: {type(error).__name__}: {error}") from error

    def _pass_over(self, now: float, error: PlanError) -> list[Decided]:
        """A plan that breaks a rule, where nobody may stop for it: written down, and nothing of it done."""
        decided: list[Decided] = [*self.books.answers, Refused(error.policy, error.job, error.rule)]
        self.write(now, decided)
        return decided

    def carry_out(self, now: float, decided: Sequence[Decided]) -> None:
        """Hand what was decided to the world; what it answers at once is heard now and planned with next time."""
        consequences = self.world.carry_out(now, decided)
        if consequences:
            self.absorb(now, consequences)
            self.write(now, None)

    def follow(self, instant: Instant) -> None:
        """What was recorded is taken as it is: nobody is asked, and nothing is written or handed over again. The policy
        hears of the decisions as of somebody else's."""
        now, decided = instant.time, instant.decided
        self.absorb(now, [entry for entry in instant.happened if not isinstance(entry, Odd)], decided or ())
        self._unwritten.clear()
        self.books.answers.clear()
        if decided is not None:
            self.news = []
            self.books.decided(now, decided)
            self.hear(now, [entry for entry in decided if not isinstance(entry, (pl.Wait, Leaving, LetIn, Rejected))])
        self.journal.instants += 1

    def write(self, now: float, decided: Sequence[Decided] | None) -> None:
        """One record of what happened since the last one and what was decided; `None`: nobody was asked."""
        if self._unwritten or decided:
            instant = _INSTANT(now, tuple(self._unwritten), None if decided is None else tuple(decided))
            self.journal.write(instant)
            self._unwritten.clear()

    def reason(self, job_id: str) -> Reason | None:
        """Why a job does not run. What the world answered at once was heard after the last plan: the policy may not
        have said anything yet of a job that has left its GPUs in that very instant."""
        reason = self.books.reason(job_id)
        if reason is None and self.books.jobs[job_id].state is State.WAITING and ev.Yielded(job_id) in self.news:
            return _JUST_LEFT
        return reason

    # --- what changes underneath ----------------------------------------------------------------------------

    def put_in_charge(self, policy: Policy, now: float, *, written: bool = True) -> None:
        """Another policy takes over what is there: it hears of every job as if it had just arrived, and of those that
        run as started by somebody else."""
        books = self.books
        books.share_out(policy.shares)
        books.preempts = policy.preempts
        self._rules = Rules(books.view, books.jobs, self._interference, policy.shares)
        self.policy = policy
        self._listens = _listens(policy)
        self.resume_with(policy.new_memory())
        try:
            try:
                policy.hear(books.view, self.memory, now, books.as_found())  # everybody is ranked anew anyway
            finally:
                books.rank_all(policy, self.memory, now)
        except Exception as error:
            if self.strict:
                raise
            self._failed = error
        self._failed_at_the_gate()
        if written:
            self.write(now, [InCharge(policy.name)])

    def resume_with(self, memory: Memory) -> None:
        """The policy goes on with this memory; its caches are made anew."""
        self.memory = memory
        self._draft = _draft(memory)
        for ranking in (self.books.view.waiting, self.books.view.preemptible):
            ranking.unwatch()
        self.policy.attach(self.books.view, memory)

    def _relay(self, before: Topology) -> None:
        """Machines have other numbers now: what the policy remembers of them goes by their names."""
        self.resume_with(type(self.memory).load(self.memory.save(before), self.books.view.topology))


def _draft(memory: Memory) -> Draft | None:
    """Where its plans are tried; None: who remembers nothing has nothing to undo."""
    return memory.draft if memory.fields() else None


def _listens(policy: Policy) -> bool:
    """Whether it hears anything at all: a call per instant less for those who do not."""
    deaf: object = PolicyBase.hear
    return type(policy).hear is not deaf
