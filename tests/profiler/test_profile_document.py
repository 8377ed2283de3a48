"""The profile as a file, its stalls, and its use as a model of the catalog."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dally.catalog import find_gpu, find_model, step_compute_time
from dally.core.errors import UserError
from dally.profiler.document import read_profile, write_profile
from dally.profiler.stalls import largest, rates, stalls
from profiler.conftest import dally
from profiler.made_up import profile, run, written

seconds = st.floats(0.001, 10)


def test_stalls_are_the_differences_the_method_names() -> None:
    found = profile().stalls
    assert found["interconnect"].seconds == pytest.approx(0.020) and found["interconnect"].percent == pytest.approx(
        100 / 6
    )
    assert found["prep"].seconds == pytest.approx(0.030) and found["prep"].percent == pytest.approx(20)
    assert found["fetch"].seconds == pytest.approx(0.050) and found["fetch"].percent == pytest.approx(25)
    assert largest(found) == "fetch"


def test_a_network_stall_may_pass_a_hundred_per_cent() -> None:
    found = stalls({"all": run(0.1)}, [run(0.6, machines=2)])
    assert found["network"].percent == pytest.approx(500)


@given(seconds, seconds, seconds, seconds)
def test_stalls_add_up_from_one_device_to_cold_data(one: float, all_: float, cold: float, cached: float) -> None:
    runs = {
        "one": run(one, 0.0001, processes=1),
        "all": run(all_, 0.0001),
        "cold": run(cold, 0.0001),
        "cached": run(cached, 0.0001),
    }
    found = stalls(runs)
    assert one + sum(stall.seconds for stall in found.values()) == pytest.approx(cold)


def test_a_stall_within_its_spread_is_not_called_the_largest() -> None:
    assert largest(stalls({"one": run(0.10, 0.02, processes=1), "all": run(0.12, 0.02)})) is None


def test_rates_are_samples_per_second_of_all_devices() -> None:
    found = rates(profile().runs, 8)
    assert found["ingestion"] == pytest.approx(16 / 0.120) and found["fetch"] == pytest.approx(16 / 0.050)


def test_a_written_profile_is_read_back_as_it_was(tmp_path: Path) -> None:
    again = read_profile(written(tmp_path))
    assert again.model == profile().model and again.runs == profile().runs
    write_profile(again, tmp_path / "twice.yaml")
    assert (tmp_path / "twice.yaml").read_text() == (tmp_path / "made-up.yaml").read_text()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("models: {}", "is not a profile"),
        ("dally-profile: 7\nname: x", "version 7"),
        ("dally-profile: 1\nname: x\nmade: y\ndevice: {kind: abacus, name: z}", "device.kind"),
        ("dally-profile: 1\nname: x\nmade: y\ndevice: {kind: cpu, name: z}\nspeed: 3", "speed"),
        ("dally-profile: [", "line"),
    ],
)
def test_a_damaged_profile_is_one_sentence_with_its_field(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=said):
        read_profile(path)
    assert dally("profile", "show", path, code=2).stderr.count("\n") == 1


def test_a_profile_is_a_model_and_keeps_its_measured_times_on_what_it_was_measured(tmp_path: Path) -> None:
    model = find_model(str(written(tmp_path)))
    assert model.name == "made-up" and model.buckets == (8_000_000, 4000)
    assert step_compute_time(model, find_gpu("CPU")) == pytest.approx(0.100)  # 30 + 60 ms of layers and 10 ms of update


def test_times_measured_on_a_cpu_say_nothing_of_a_gpu(tmp_path: Path) -> None:
    model = find_model(str(written(tmp_path)))
    assert step_compute_time(model, find_gpu("V100")) < 0.01  # from its FLOPs: 2.5 GFLOP a step


def test_a_profile_in_a_catalog_folder_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path)
    monkeypatch.setenv("DALLY_CATALOG", str(tmp_path))
    assert find_model("made-up").gradient_bytes == 8_004_000


def test_an_unfinished_profile_is_no_model_and_says_so(tmp_path: Path) -> None:
    path = written(tmp_path, model=None)
    with pytest.raises(UserError, match="no layer table"):
        find_model(str(path))


CLUSTER = """dally-cluster: 1
fabric: {levels: [{name: rack, kind: switch, bandwidth: 12.5 MB/s, per: machine, latency: 50us}]}
machines: 2
machine: {gpu: CPU, gpus: 2, links: [{kind: switch, bandwidth: 1 GB/s, latency: 20us}], nics: {count: 1, bandwidth: 100 Mbit/s}}
"""


def test_network_step_and_simulate_take_a_profile_as_a_model(tmp_path: Path) -> None:
    path = written(tmp_path)
    (tmp_path / "c.yaml").write_text(CLUSTER)
    step = json.loads(
        dally(
            "network", "step", "--model", path, "--cluster", tmp_path / "c.yaml", "--placement", "1+1", "--json"
        ).stdout
    )
    # 30 ms forward and 20 ms backward of the last layer; then 8 MB each way at 12.5 MB/s, and the small bucket and update.
    assert step["step_seconds"] == pytest.approx(0.050 + 8.004 / 12.5 + 0.010, rel=0.01)
    (tmp_path / "jobs.csv").write_text(
        "# dally-trace 1\nid,submit_time,gpus,steps,model\n" + f"near,0,2,1000,{path}\nfar,0,4,1000,{path}\n"
    )
    done = dally(
        "simulate",
        "--trace",
        tmp_path / "jobs.csv",
        "--cluster",
        tmp_path / "c.yaml",
        "--policy",
        "fifo",
        "--out",
        tmp_path / "out",
        "--json",
    )
    assert "not in the catalog" not in done.stderr
    assert "made-up.yaml" in dally("explain", "near", tmp_path / "out").stdout
    rows = (tmp_path / "out" / "jobs.csv").read_text().splitlines()
    columns = rows[0].split(",")
    first = dict(zip(columns, next(r for r in rows if r.startswith("near,")).split(","), strict=True))
    ran = float(first["jct"])
    assert 100 <= ran < 120  # a thousand steps of 100 ms inside a machine and a little exchange


def test_profiles_are_compared_and_differences_judged_against_the_noise(tmp_path: Path) -> None:
    first = written(tmp_path)
    second = tmp_path / "second.yaml"
    slower = {**profile().runs, "all": run(0.240, silent=0.1)}
    write_profile(profile(runs=slower, name="slower"), second)
    assert "slower" in dally("profile", "compare", first, second).stdout
    told = dally("profile", "diff", first, second).stdout
    assert "+100.0 %" in told and "within the noise" in told
