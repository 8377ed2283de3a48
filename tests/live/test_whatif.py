"""Today's queue under other policies: from a file or a service, over the same futures, and called noise where it is."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from builders import cluster
from dally.cli.main import cli
from dally.core import events as ev
from dally.core import plan as pl
from dally.core.errors import UserError
from dally.core.job import Job
from dally.core.journal import Journal
from dally.core.scheduler import Scheduler
from dally.core.snapshot import save
from dally.live.durations import History, Past
from dally.live.whatif import compare, read_snapshot
from dally.policies.options import make_policy


class Obliging:
    def next_events(self) -> None:
        return None

    def carry_out(self, now: float, decided: Any) -> list[ev.Event]:
        return [ev.Started(action.job) for action in decided if isinstance(action, pl.Start)]


def queue(jobs: list[Job], policy: str = "fifo") -> dict[str, Any]:
    scheduler = Scheduler(cluster(2, 2, 4), make_policy(policy), Obliging(), Journal())
    scheduler.step(0.0, [ev.Arrived(each) for each in jobs])
    scheduler.step(1.0, [ev.TimerDue()])
    found: dict[str, Any] = json.loads(json.dumps(save(scheduler)))
    return found


LONG_FIRST = [Job("long", 0.0, 16, declared_duration=20_000.0), *(Job(f"s{i}", 0.0, 16, declared_duration=100.0) for i in range(8))]


@pytest.fixture
def then(tmp_path: Path) -> Path:
    path = tmp_path / "then.json"
    path.write_text(json.dumps(queue(LONG_FIRST)))
    return path


def simulate(*arguments: str) -> Any:
    return CliRunner().invoke(cli, ["simulate", *arguments])


def test_shortest_first_is_better_for_a_queue_behind_a_long_job() -> None:
    found = compare(queue(LONG_FIRST), ["srtf"], samples=5)
    in_charge, other = found.prospects
    assert (in_charge.policy, in_charge.in_charge, other.policy, other.in_charge) == ("fifo", True, "srtf", False)
    assert other.told == "durations" and in_charge.told == "nothing"
    assert all(b.remaining < a.remaining for a, b in zip(in_charge.outcomes, other.outcomes, strict=True))
    assert other.mean(lambda outcome: outcome.preemptions) >= 1
    assert other.first[0].startswith("s") and in_charge.first[0] == "s0"
    assert (found.running, found.waiting) == (1, 8)


def test_every_policy_meets_the_same_futures() -> None:
    """One job at a time, whoever comes first: the last end is the same."""
    found = compare(queue(LONG_FIRST), ["srtf", "smallest"], samples=4)
    ends = [[round(outcome.last_end, 3) for outcome in each.outcomes] for each in found.prospects]
    assert ends[0] == ends[1] == ends[2]
    assert len(set(ends[0])) == 4


@pytest.mark.parametrize("policy", ["las", "dally", "tiresias", "gavel", "gandiva"])
def test_every_policy_can_take_over_and_finishes_everything(policy: str) -> None:
    jobs = [Job(str(i), 0.0, 1 + i % 5, declared_duration=50.0 * (i + 1)) for i in range(20)]
    found = compare(queue(jobs), [policy], samples=2)
    assert all(outcome.unended == 0 for each in found.prospects for outcome in each.outcomes)


def test_a_policy_that_makes_no_difference_is_called_the_same_and_one_in_the_noise_noise(then: Path) -> None:
    done = simulate("--snapshot", str(then), "--policies", "smallest,srtf", "--json", "--samples", "6")
    assert done.exit_code == 0, done.output
    rows = {row["policy"]: row for row in json.loads(done.stdout)["policies"]}
    assert rows["fifo"]["against_in_charge"] is None
    assert rows["smallest"]["against_in_charge"]["verdict"] in ("same", "noise")
    assert rows["srtf"]["against_in_charge"]["verdict"] == "less"
    assert rows["srtf"]["avg_remaining_jct"]["low"] <= rows["srtf"]["avg_remaining_jct"]["mean"]


def test_the_table_names_the_policy_in_charge_and_what_it_stands_on(then: Path) -> None:
    done = simulate("--snapshot", str(then), "--policies", "srtf", "--samples", "5")
    assert done.exit_code == 0
    assert "fifo (in charge)" in done.output and "1 running, 8 waiting" in done.output
    assert "5 possible futures, the same for every policy" in done.stderr


class _Service(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path != "/v1/snapshot" or self.headers.get("Authorization") != "Bearer secret":
            self.send_error(401)
            return
        body = json.dumps({**queue(LONG_FIRST), **History([Past("ann", "x", 1, 10.0, 20.0)] * 6).plain()}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def service() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Service)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_service_is_asked_for_its_snapshot(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"answers 401 .*DALLY_API_TOKEN"):
        read_snapshot(service)
    monkeypatch.setenv("DALLY_API_TOKEN", "secret")
    state = read_snapshot(service)
    assert state["policy"] == "fifo"
    assert read_snapshot(f"{service}/v1/snapshot")["time"] == 1.0
    found = compare(state, ["srtf"], samples=2)
    assert "6 ended jobs" in found.basis  # the service sends its history along
    assert found.prospects[0].outcomes[0].last_end == pytest.approx(2 * 20_800.0 - 1.0)


@pytest.mark.parametrize(("arguments", "sentence"), [
    (("--snapshot", "nowhere.json", "--policies", "las"), "cannot read the snapshot nowhere.json"),
    (("--snapshot", "THEN"), "no policy is given: write --policies"),
    (("--snapshot", "THEN", "--policies", "las", "--trace", "x"), "--trace and --snapshot are both given"),
    (("--snapshot", "THEN", "--policies", "las", "--mtbf", "30d"), "--mtbf goes with a trace"),
    (("--snapshot", "THEN", "--policies", "las", "--network", "analytic"), "no job of this snapshot has a profile"),
    (("--snapshot", "THEN", "--policies", "las", "--out", "x"), "--out goes with a trace"),
    (("--snapshot", "http://127.0.0.1:1", "--policies", "las"), "is `dally serve` running there?"),
    (("--policies", "las"), "to compare policies on a trace, use `dally compare`"),
    (("--samples", "3", "--policy", "las"), "--samples goes with --snapshot"),
    (("--trace", "x", "--cluster", "2x2"), "no policy is given: write --policy"),
])  # fmt: skip
def test_what_makes_no_sense_is_refused_in_a_sentence(then: Path, arguments: tuple[str, ...], sentence: str) -> None:
    done = simulate(*(str(then) if each == "THEN" else each for each in arguments))
    assert isinstance(done.exception, UserError)
    assert sentence in str(done.exception)


@pytest.mark.parametrize("text", ["[]", "{}", "nonsense", '{"snapshot": 99}', '{"snapshot": 1, "policy": "fifo"}'])
def test_what_is_no_snapshot_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(UserError, match=r"x\.json: not a "):
        read_snapshot(str(path))


def test_where_nobody_knows_durations_nothing_is_compared() -> None:
    with pytest.raises(UserError, match="nobody knows how long jobs run here"):
        compare(queue([Job("a", 0.0, 16), Job("b", 0.0, 16)]), ["las"], samples=2)
    with pytest.raises(UserError, match="holds no job that runs or waits"):
        compare(queue([]), ["las"])


def test_a_snapshot_can_be_taken_out_of_a_record(tmp_path: Path) -> None:
    runner = CliRunner()
    out, then = tmp_path / "out", tmp_path / "then.json"
    made = runner.invoke(cli, ["simulate", "-t", "synth:philly", "--jobs", "60", "-c", "1x2x4", "-p", "las", "--seed", "3",
                               "--load", "1.5", "--out", str(out), "-q"])  # fmt: skip
    assert made.exit_code == 0, made.output
    assert runner.invoke(cli, ["journal", "snapshot", str(out), "--at", "1d", "--out", str(then)]).exit_code == 0
    done = simulate("--snapshot", str(then), "--policies", "fifo", "--json", "--samples", "2")
    assert done.exit_code == 0, done.output
    assert [row["policy"] for row in json.loads(done.stdout)["policies"]] == ["las", "fifo"]
