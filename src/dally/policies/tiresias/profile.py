"""Which jobs must be consolidated: the model's skew against PACKLIMIT, a limit learned from past jobs.

Skew is the largest tensor over all gradients. A model above the limit is held to send unevenly enough to suffer on
several machines (Tiresias, NSDI'19, section 3.3). What past jobs showed is kept per model: how much slower its
steps were for communication nothing hides, on one machine and on several. A linear classifier in the one feature
skew, with the sign the paper gives it, is a limit; it is fitted exactly, anew after each job that taught something.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable
from typing import Final, NamedTuple

from dally.core.errors import UserError
from dally.core.job import Job

# Half way between the models the paper calls skewed (AlexNet .62, VGG .72 to .77) and those it does not
# (ResNet-18 .20 and below, Inception, GoogLeNet). It holds until observations speak against it.
PACK_LIMIT: Final = 0.4


class Verdict(NamedTuple):
    """Whether a job must be consolidated, and the evidence for it as a sentence."""

    picky: bool
    because: str


class Seen(NamedTuple):
    """Slowdowns by exposed communication of one model's runs so far, summed, and from how many runs."""

    inside: float = 0.0  # on one machine
    runs_inside: int = 0
    across: float = 0.0  # on several
    runs: int = 0

    def and_then(self, slowdown: float, machines: int) -> Seen:
        if machines > 1:
            return Seen(self.inside, self.runs_inside, self.across + slowdown, self.runs + 1)
        return Seen(self.inside + slowdown, self.runs_inside + 1, self.across, self.runs)


class Evidence(NamedTuple):
    """What one model's past jobs showed: slowdown by exposed communication, averaged, and from how many runs."""

    inside: float  # on one machine; 1 where it was never seen there
    across: float  # on several machines
    runs: int  # on several machines

    @property
    def slowdown(self) -> float:
        """What leaving the machine costs."""
        return self.across / self.inside


class Packing:
    """Says who must be consolidated. One that learns nothing says the same of a model at all times."""

    def __init__(self, learns: bool = False) -> None:
        self.learns = learns
        self._verdicts: dict[str | None, Verdict] = {}  # as they follow from what was seen
        self.edition = 0  # of the verdicts: raised when some may be others than they were

    def recall(self, seen: dict[str, Seen]) -> None:
        """Go by what was seen of these models, and write there what is seen from now on."""

    def verdict(self, job: Job) -> Verdict:
        model = job.model
        found = self._verdicts.get(model)
        if found is None:
            found = self._verdicts[model] = self._judge(model)
        return found

    def _judge(self, model: str | None) -> Verdict:
        raise NotImplementedError

    def observe(self, job: Job, machines: int, exposed: float) -> bool:
        """A job leaves GPUs on so many machines, where this share of its steps was exposed communication.
        True where the verdict on some models is another one from now on."""
        return False


class Strict(Packing):
    """Every gang is consolidated or waits."""

    def _judge(self, model: str | None) -> Verdict:
        return Verdict(True, "every gang is consolidated here")


class Listed(Packing):
    """What the Dally authors compared with: a list of models that need not be consolidated, all others must be."""

    MODELS = ("resnet50", "resnet18", "bert")

    def _judge(self, model: str | None) -> Verdict:
        plain = "".join(c for c in (model or "").lower() if c.isalnum())
        if any(plain.startswith(name) for name in self.MODELS):
            return Verdict(False, f"{model} is on the list of models that may be spread")
        return Verdict(True, f"{model or 'its model'} is not on the list of models that may be spread")


class Profile(Packing):
    """Skew from the catalog, PACKLIMIT from experience."""

    def __init__(self, limit: float, *, learns: bool, tolerance: float,
                 skew_of: Callable[[str], float | None] | None = None) -> None:  # fmt: skip
        super().__init__(learns)
        self.default = self.limit = limit
        self.tolerance = tolerance  # slowdown by leaving the machine from which on waiting is held to be better
        self._skew_of = skew_of or skew_in_catalog
        self._skews: dict[str, float | None] = {}
        self._seen: dict[str, Seen] = {}
        self._evidence: dict[str, Evidence] = {}  # models that were seen on several machines
        self._points: list[tuple[float, float]] = []  # of these, skew and how much it hurts them to be spread, in order

    def recall(self, seen: dict[str, Seen]) -> None:
        self._seen = seen
        self._evidence, self._points = {}, []
        for model, found in seen.items():
            self._weigh(model, found)
        self.limit = self.fit() if self._evidence else self.default
        self._verdicts = {}
        self.edition += 1

    def skew(self, model: str) -> float | None:
        if model not in self._skews:
            self._skews[model] = self._skew_of(model)
        return self._skews[model]

    def _judge(self, model: str | None) -> Verdict:
        skew = None if model is None else self.skew(model)
        if skew is None:
            return Verdict(False, f"model {model or 'unnamed'} is not in the catalog and counts as not skewed")
        learned = f", learned from {len(self.evidence())} models" if self.limit != self.default else ""
        side = "above" if skew > self.limit else "not above"
        said = f"{model}'s largest tensor is {skew:.0%} of its gradients, {side} PACKLIMIT {self.limit:.0%}" + learned
        found = self.evidence().get(model or "")
        if found is not None:
            said += f"; {found.runs} past runs on several machines were {found.slowdown:.2f} times slower"
        return Verdict(skew > self.limit, said)

    def evidence(self) -> dict[str, Evidence]:
        """Models that were seen on several machines."""
        return self._evidence

    def _weigh(self, model: str, seen: Seen) -> None:
        """Its evidence is what these runs show, and so its point."""
        if not seen.runs:
            return
        before = self._evidence.get(model)
        if before is not None:
            del self._points[bisect_left(self._points, self._point(model, before))]
        inside = seen.inside / seen.runs_inside if seen.runs_inside else 1.0
        after = self._evidence[model] = Evidence(inside, seen.across / seen.runs, seen.runs)
        insort(self._points, self._point(model, after))

    def _point(self, model: str, found: Evidence) -> tuple[float, float]:
        skew = self.skew(model)
        assert skew is not None
        return skew, math.log(found.slowdown / self.tolerance)

    def observe(self, job: Job, machines: int, exposed: float) -> bool:
        """True where PACKLIMIT, and with it the verdict on some models, is another one from now on."""
        if not self.learns or job.gpus < 2 or job.model is None or self.skew(job.model) is None:
            return False
        before = self._seen.get(job.model, Seen())
        after = self._seen[job.model] = before.and_then(1.0 / (1.0 - min(exposed, 0.99)), machines)
        if not after.runs:
            return False
        self._weigh(job.model, after)
        known, self.limit = self.limit, self.fit()
        self.edition += 1
        if self.limit == known and before.runs:
            self._verdicts.pop(job.model, None)  # only the words about this model are new
        else:
            self._verdicts = {}
        return self.limit != known

    def fit(self) -> float:
        """The limit with the least weighted error: a model errs by how far its slowdown is on the wrong side.

        Of all limits that are equally good the default is taken, else the middle of the gap.
        """
        points, default = self._points, self.default
        error = 0.0  # everybody is consolidated
        for _, hurt in points:
            if hurt < 0.0:
                error -= hurt
        errors, least = [error], error
        for _, hurt in points:
            error += hurt  # this one may be spread from here on: wrong where it is hurt, right where it is not
            errors.append(error)
            if error < least:
                least = error
        best, distance = default, math.inf
        low = 0.0
        for at, value in enumerate(errors):
            last = at == len(points)
            high = 1.0 if last else points[at][0]
            if value <= least + 1e-12 and (high > low or last):
                limit = default if low <= default < high else (low + high) / 2
                away = abs(limit - default)
                if away < distance:
                    best, distance = limit, away
            low = high
        return best


def skew_in_catalog(model: str) -> float | None:
    from dally.catalog import find_model

    try:
        return float(find_model(model).skew)
    except UserError:
        return None
