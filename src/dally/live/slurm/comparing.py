"""What a listing of Slurm's whole queue means for every attempt that is watched: what is to be reported, and what Slurm
is to be told. Runs under the engine's lock; talks to nobody.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from dally.live.engine import Began, NotBegun, Report
from dally.live.local.folder import Stage
from dally.live.slurm.folder import SlurmFolder
from dally.live.slurm.ordering import read_mark
from dally.live.slurm.reading import SlurmJob
from dally.live.slurm.verdict import elsewhere, ended
from dally.live.slurm.watched import Chores, SlurmRules, SlurmWatched

log = logging.getLogger("dally.slurm")

Key = tuple[str, int]
_STUCK = 8.0  # seconds a job may live on in Slurm's eyes after its process has written down its end
_FRESH = 3.0  # seconds after a job was told something that one looks more often


class Comparing:
    """Attempts that are watched or over, and how they compare with what Slurm lists."""

    def __init__(self, attempts: Path, service: str, rules: SlurmRules, say: Callable[[Report], None]) -> None:
        self._attempts, self._service, self._rules, self._say = attempts, service, rules, say
        self.watched: dict[Key, SlurmWatched] = {}
        self.ended: set[Key] = set()
        self.seen: dict[Key, SlurmJob] = {}  # jobs of ours in the last listing that are not over
        self.seek_strangers = False

    def compare(self, jobs: Sequence[SlurmJob], chores: Chores) -> bool:
        """What Slurm says with what is wanted; True if something is about to change."""
        ours: dict[Key, list[SlurmJob]] = {}
        unmarked: dict[int, SlurmJob] = {}
        uid = os.getuid()
        for job in jobs:
            if job.uid != uid:
                continue
            mark = read_mark(job.comment)
            if mark is not None and mark.service == self._service:
                ours.setdefault((mark.job, mark.attempt), []).append(job)
            elif mark is None:
                unmarked[job.id] = job
        self.seen = {key: living[0] for key, found in ours.items()
                     if (living := [job for job in found if not job.over])}  # fmt: skip
        soon = False
        for key, watched in list(self.watched.items()):
            found = ours.get(key, [])
            # Its comment may have been edited. But an id alone proves nothing: a controller that died has forgotten its
            # latest jobs and gives their ids to the next ones, so what bears another attempt's mark is that one's.
            if watched.id is not None and watched.id in unmarked:
                found = [unmarked[watched.id], *found]
            soon |= self._judge(watched, found, chores)
        for key, found in ours.items():
            if key not in self.watched:
                self._unknown(key, found, chores)
        self.seek_strangers = False
        return soon

    def _unknown(self, key: Key, found: Sequence[SlurmJob], chores: Chores) -> None:
        """Jobs of ours that this engine does not watch. What was given up or is over is ended; of what another service
        may have started, and this one not know yet, nothing is touched. Strangers are sought when an engine comes up,
        by `running`, or by the first look that succeeds after it."""
        living = [job.id for job in found if not job.over]
        if not living:
            return
        folder = SlurmFolder(self._attempts, *key)
        if key in self.ended or folder.seen(alive=True).stage is Stage.VOID:
            chores.cancel += living
        elif self.seek_strangers:
            self._say(Began(*key))  # nobody decided this: whoever hears of it puts it out

    def _judge(self, watched: SlurmWatched, found: list[SlurmJob], chores: Chores) -> bool:
        job = next((each for each in found if each.id == watched.id), None)
        if job is None and found:  # handed in by somebody who did not live to write down its id
            job = next((each for each in found if not each.over), found[-1])
            watched.id, watched.submission = job.id, None
            watched.folder.note_id(job.id)
        chores.cancel += [each.id for each in found if each is not job and not each.over]  # handed in twice
        if watched.submission is not None:
            return self._not_there(watched)
        if job is None:
            return self._gone(watched, None)
        if job.waiting:
            return self._pending(watched, job, chores)
        if job.active:
            return self._alive(watched, job, chores)
        return self._gone(watched, job)

    def _not_there(self, watched: SlurmWatched) -> bool:
        """To be handed in, and Slurm has not got it."""
        assert watched.submission is not None
        if watched.asked and watched.folder.never():
            self.over(watched, NotBegun(*watched.key, "it never began", void=True))
        watched.submission.tried = False
        return True

    def _pending(self, watched: SlurmWatched, job: SlurmJob, chores: Chores) -> bool:
        stage = watched.folder.seen(alive=True).stage
        if stage is Stage.UNKNOWN:
            return False
        if watched.began or job.restarts or stage not in (Stage.UNCLAIMED, Stage.VOID):
            watched.requeued = True  # an attempt runs once: whoever wants it again gets another one
            chores.cancel.append(job.id)
            return True
        if watched.asked or watched.cause:
            if watched.folder.never():
                chores.cancel.append(job.id)
            return True
        waited = watched.since("waits_since")
        if job.held and not watched.released and waited <= self._rules.start_timeout:
            chores.release.append(watched)
            return waited < _FRESH
        if waited > self._rules.start_timeout and watched.folder.never():
            watched.cause = (f"Slurm did not start its job {job.id} within {self._rules.start_timeout:g} s: "
                             f"{job.reason or 'no reason given'}")  # fmt: skip
            chores.cancel.append(job.id)
        return waited < _FRESH

    def _alive(self, watched: SlurmWatched, job: SlurmJob, chores: Chores) -> bool:
        seen = watched.folder.seen(alive=True)
        if not watched.asked and not watched.cause and (why := elsewhere(job, watched.nodes)):
            log.warning("job %s, attempt %d: %s", *watched.key, why)
            watched.cause = why
            watched.folder.never()
            watched.folder.wish("out")
            watched.deadline = 0.0
        if seen.stage in (Stage.RUNNING, Stage.OVER):
            self._begun(watched)
        if watched.nudge:
            chores.nudge.append(watched)
        late = watched.deadline is not None and time.monotonic() > watched.deadline
        if late or seen.stage is Stage.VOID or (seen.stage is Stage.OVER and watched.since("over_since") > _STUCK):
            if job.state != "COMPLETING":
                chores.cancel.append(job.id)
            watched.deadline = time.monotonic() + self._rules.stubborn if late else watched.deadline
        if seen.stage is Stage.RUNNING:
            return watched.asked and watched.since("asked_since") < _FRESH
        return watched.since("over_since" if seen.stage is Stage.OVER else "alive_since") < _FRESH

    def _gone(self, watched: SlurmWatched, job: SlurmJob | None) -> bool:
        """Its job is over, or Slurm does not know it. If no end is on record, its process may be alive where Slurm
        cannot see it, behind a dead slurmd or a cut link: it is told to go, and has a while to obey."""
        folder = watched.folder
        seen = folder.seen(alive=False)
        given_up = seen.stage is Stage.VOID
        if seen.stage is Stage.UNCLAIMED:
            if not folder.never():
                return True
            seen = folder.seen(alive=False)
        if seen.stage is Stage.UNKNOWN:
            return False
        if seen.stage in (Stage.GONE, Stage.STARTING, Stage.RUNNING):
            waited = watched.since("gone_since")
            folder.wish("out")
            if waited < self._rules.settle or (folder.locked and waited < self._rules.linger):
                return False
        report = ended(watched.key, job, seen, watched.told(given_up))
        if not isinstance(report, NotBegun):
            self._begun(watched)
        watched.read_progress()
        self.steps(watched)
        self.over(watched, report)
        return True

    def _begun(self, watched: SlurmWatched) -> None:
        if not watched.began:
            watched.began = True
            self._say(Began(*watched.key))
        watched.read_progress()
        self.steps(watched, self._rules.steps_every)

    def steps(self, watched: SlurmWatched, every: float = 0.0) -> None:
        report = watched.steps(every)
        if report is not None and watched.began:
            self._say(report)

    def over(self, watched: SlurmWatched, report: Report) -> None:
        self.ended.add(watched.key)
        self.watched.pop(watched.key, None)
        self._say(report)
