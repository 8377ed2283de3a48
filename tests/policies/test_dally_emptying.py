"""When machines come to have a share free: what is kept from plan to plan is what somebody would find who looks at all
running jobs anew, also where plans come to nothing."""

from __future__ import annotations

import pytest

from dally.core.scheduler import Scheduler
from dally.policies.dally.emptying import Emptying
from dally.policies.dally.forecast import Forecast
from dally.simulator.scenario import Scenario


def anew(forecast: Forecast) -> Emptying:
    found = Emptying(forecast.view, forecast.tiers, forecast._ends, ())
    for job_id in forecast._leaving:
        found.note(job_id)
    found.look(forecast.view.free, forecast._leaving)
    return found


@pytest.mark.pure
@pytest.mark.parametrize("more", [{}, {"mtbf": "2d", "job_mtbf": "5d", "start_latency": 20.0}])
def test_what_is_kept_is_what_is_found_anew(monkeypatch: pytest.MonkeyPatch, more: dict[str, object]) -> None:
    kept_by, decide = Forecast._emptied, Scheduler.decide
    asked = []

    def emptied(forecast: Forecast) -> Emptying:
        kept, found = kept_by(forecast), anew(forecast)
        for kind in forecast.view.topology.gpu_types:
            for share in (1, 2):
                assert kept.fits(share, kind, 1).inside == found.fits(share, kind, 1).inside
        asked.append(forecast.now)
        return kept

    def decide_twice(scheduler: Scheduler, now: float) -> None:
        scheduler.ask(now)  # a plan that comes to nothing
        decide(scheduler, now)

    monkeypatch.setattr(Forecast, "_emptied", emptied)
    monkeypatch.setattr(Scheduler, "decide", decide_twice)
    settings = {"trace": "synth:philly", "cluster": "4x4x2", "jobs": 200, "load": 1.2, "seed": 9, **more}
    Scenario.of(settings).prepare().run("dally[lease=60]")
    assert len(asked) > 20
