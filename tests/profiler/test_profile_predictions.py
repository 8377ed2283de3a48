"""What follows from a profile: fabric fits, what-ifs, recommendations, the study, the page, the timeline."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dally.catalog import find_machine, find_model, instances
from dally.catalog.clusters import load_cluster
from dally.core.errors import UserError
from dally.profiler.fabric import Fabric, cluster_file, fabric_of, fit
from dally.profiler.inside.ladder import members
from dally.profiler.join import add, from_slurm
from dally.profiler.page import page
from dally.profiler.predict import Subject, predict
from dally.profiler.recommend import Question, configurations, why_none, with_prices
from dally.profiler.study import cases, dearer_loses, regress
from dally.profiler.timeline import read_trace, uncovered, union
from dally.profiler.whatif import Change, usual, what_if
from profiler.conftest import dally
from profiler.made_up import profile, run, written

SIZES = (4, 1024, 65536, 2**20, 2**24)


@given(st.floats(1e-6, 1e-2), st.floats(1e6, 1e11))
def test_a_line_is_found_again_from_its_points(alpha: float, rate: float) -> None:
    found = fit("rack", 2, {m: alpha + m / rate for m in SIZES})
    assert found.latency == pytest.approx(alpha, rel=0.02, abs=2e-7) and found.bandwidth == pytest.approx(
        rate, rel=0.02
    )


def test_one_odd_size_does_not_pull_the_line_away() -> None:
    times = {m: 1e-4 + m / 1e8 for m in SIZES}
    times[65536] /= 4  # as a shaper's burst does
    assert fit("rack", 2, times).bandwidth == pytest.approx(1e8, rel=0.01)


def test_a_measured_fabric_is_a_cluster_the_network_model_times_alike(tmp_path: Path) -> None:
    from dally.core.placement import Placement
    from dally.network.nccl import costs
    from dally.network.shape import Shapes

    link = fit("rack", 2, {m: 4e-4 + m / 3e7 for m in SIZES})
    path = tmp_path / "c.yaml"
    path.write_text(cluster_file(Fabric((link,), 1, 2, 1, "CPU", "gloo"), "lab", "today"))
    shapes = Shapes(load_cluster(str(path)))
    (ring,) = costs(shapes.of(Placement.of([(0, 1), (1, 1)])), shapes.wires, "all-reduce", "ring")
    for m in SIZES:
        assert ring.seconds(m) == pytest.approx(4e-4 + m / 3e7, rel=0.01)


def test_a_ladder_has_the_levels_its_ranks_make_up() -> None:
    racks = [("r0", "a"), ("r0", "a"), ("r0", "b"), ("r0", "b"), ("r1", "c"), ("r1", "c")]
    assert members(racks) == [("machine", [0, 1]), ("rack", [0, 2]), ("cluster", [0, 4])]
    assert members([("r0", "a"), ("r0", "b")]) == [("rack", [0, 1])]


def test_a_fabric_is_read_from_the_records_of_its_ranks() -> None:
    events = [{"event": "begin", "places": [["r0", "a"], ["r0", "b"]], "gpu": None, "backend": "gloo"}]
    events += [
        {"event": "ladder", "level": "rack", "ranks": 2, "size": m, "times": [1e-3 + m / 1e8] * 3} for m in SIZES
    ]
    found = fabric_of(events)
    assert (found.racks, found.machines, found.gpus, found.gpu) == (1, 2, 1, "CPU")
    assert found.links[0].bandwidth == pytest.approx(1e8, rel=0.01)


def test_as_measured_is_what_was_measured(tmp_path: Path) -> None:
    path = written(tmp_path)
    answer = what_if(profile(), find_model(str(path)), Change())
    assert answer.seconds == pytest.approx(0.200, rel=0.01)
    assert answer.compute == pytest.approx(0.100) and answer.interconnect == pytest.approx(0.020, rel=0.01)
    assert answer.next_stall == "disk"


def test_what_ifs_move_the_stall_they_are_about(tmp_path: Path) -> None:
    model = find_model(str(written(tmp_path)))
    base = what_if(profile(), model, Change())

    def asked(**change: float) -> object:
        return what_if(profile(), model, Change(**change))  # type: ignore[arg-type]

    assert asked(workers=2).prep == 0 < base.prep  # type: ignore[attr-defined]
    assert asked(cache=1.0).fetch < 0.01 * base.fetch and asked(cache=0.5).fetch == pytest.approx(
        base.fetch / 2, rel=0.02
    )  # type: ignore[attr-defined]
    assert asked(disk=2 * 2e6 / 0.050).fetch == pytest.approx(base.fetch / 2)  # type: ignore[attr-defined]
    assert asked(interconnect=1e12).interconnect < 0.1 * base.interconnect  # type: ignore[attr-defined]
    assert asked(compression=1000).interconnect < base.interconnect  # type: ignore[attr-defined]
    assert asked(machines=2, network=1e6).next_stall == "network"  # type: ignore[attr-defined]
    assert asked(batch=16).compute == pytest.approx(0.190)  # type: ignore[attr-defined]  # the update does not grow
    assert what_if(profile(), model, Change(gpu="V100")).compute < 0.01


def test_a_what_if_that_cannot_be_is_one_sentence(tmp_path: Path) -> None:
    path = written(tmp_path)
    assert "no GPU 'abacus'" in dally("profile", "whatif", path, "--gpu", "abacus", code=2).stderr
    assert "bandwidth" in dally("profile", "whatif", path, "--network", "3", code=2).stderr


@given(
    st.sampled_from(["resnet50", "vgg16", "bert-large"]), st.sampled_from(["p2.8xlarge", "p3.16xlarge", "g5.12xlarge"])
)
def test_more_machines_never_shorten_a_step(model: str, machine: str) -> None:
    steps = [predict(find_model(model), find_machine(machine), count).seconds for count in (1, 2, 4, 8)]
    assert steps == sorted(steps)


def test_the_cheapest_that_meets_everything_is_recommended() -> None:
    question = Question(Subject(find_model("resnet50")), 1e6, 10, within=3600 * 4, budget=100)
    found = configurations(question)
    meeting = [each for each in found if each.meets]
    assert meeting and all(each.hours <= 4 and each.cost <= 100 and each.fits for each in meeting)
    (chosen,) = [each for each in found if each.recommended]
    assert chosen.cost == min(each.cost for each in meeting)
    assert why_none(question, found) is None


def test_nothing_outside_the_front_is_both_faster_and_cheaper() -> None:
    found = configurations(Question(Subject(find_model("vgg16")), 1e6))
    front = [each for each in found if each.front]
    for each in front:
        assert not any(o.fits and o.hours < each.hours and o.cost < each.cost for o in found)
    assert all(each.hours_low <= each.hours <= each.hours_high for each in found)


def test_where_nothing_will_do_it_is_said_what_would() -> None:
    question = Question(Subject(find_model("vgg16")), 1e9, 90, within=3600, budget=5)
    said = why_none(question, configurations(question))
    assert said is not None and "the fastest" in said and "h and costs $" in said


def test_interruptions_make_spot_slower_but_its_price_is_lower() -> None:
    asked = Question(Subject(find_model("bert-large")), 1e7, instances=("g5.12xlarge",), most=1)
    from dataclasses import replace

    (firm,) = configurations(asked)
    (spot,) = configurations(replace(asked, spot=True))
    (calm,) = configurations(replace(asked, spot=True, interruptions=0.0))
    assert spot.hours > firm.hours == pytest.approx(calm.hours) and spot.cost < firm.cost
    assert spot.interruptions > 0 == calm.interruptions


def test_slow_preparation_in_a_profile_slows_machines_with_few_cpus(tmp_path: Path) -> None:
    slow = profile(runs={**profile().runs, "cached": run(4.0, data="cached", wait=3.8)}, stalls={})
    slow = profile(runs=slow.runs)
    from dally.profiler.stalls import stalls

    slow = profile(runs=slow.runs, stalls=stalls(slow.runs))
    subject = Subject(find_model(str(written(tmp_path))), slow)
    found = {
        c.instance: c for c in configurations(Question(subject, 1e6, most=1, instances=("g5.xlarge", "g5.48xlarge")))
    }
    assert subject.cpu_seconds == pytest.approx(4.0 * 4 / 16)
    assert found["g5.xlarge"].prep == pytest.approx(8 * 1.0 / 4 - (found["g5.xlarge"].step - found["g5.xlarge"].prep))


def test_gpus_that_share_a_copy_of_the_model_share_its_batch() -> None:
    from dataclasses import replace

    from dally.catalog.model import Parallelism

    whole = find_model("bert-large")
    split = replace(whole, parallelism=Parallelism(tensor=8))
    alone, shared = (predict(model, find_machine("p3.16xlarge"), 1) for model in (whole, split))
    assert (alone.copies, shared.copies) == (8, 1)


def test_prices_come_from_a_file_where_there_is_one(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("p3.2xlarge: 1.5\np3.8xlarge: {price: 2.5, spot: 1.0, date: 2030-01-01}\n")
    found = with_prices(tmp_path / "p.yaml")
    assert (
        found["p3.2xlarge"].price == 1.5
        and found["p3.8xlarge"].spot == 1.0
        and found["p3.8xlarge"].date == "2030-01-01"
    )
    assert found["p2.xlarge"].price == instances()["p2.xlarge"].price
    (tmp_path / "p.csv").write_text("instance,price\np3.2xlarge,1.25\n")
    assert with_prices(tmp_path / "p.csv")["p3.2xlarge"].price == 1.25
    (tmp_path / "bad.yaml").write_text("p3.2xlarge: cheap\n")
    with pytest.raises(UserError, match="dollars per hour"):
        with_prices(tmp_path / "bad.yaml")
    (tmp_path / "unknown.yaml").write_text("z9: 1\n")
    with pytest.raises(UserError, match="no instance 'z9'"):
        with_prices(tmp_path / "unknown.yaml")


def test_every_price_has_a_date_and_a_source() -> None:
    for instance in instances().values():
        assert (
            instance.price > 0
            and instance.date[:2] == "20"
            and instance.source
            and instance.provider
            and instance.vcpus
        )
        assert instance.spot is None or (0 < instance.spot <= instance.price and instance.spot_date)


def test_recommend_prints_a_list_with_the_fields_others_rely_on() -> None:
    done = dally(
        "profile", "recommend", "resnet50", "--samples", "1281167", "--epochs", "90", "--within", "12h", "--json"
    )
    listed = json.loads(done.stdout)
    assert all({"instance", "count", "hours", "cost", "meets", "recommended"} <= set(each) for each in listed)
    assert sum(each["recommended"] for each in listed) == 1
    providers = {each["provider"] for each in listed}
    assert providers == {"aws", "gcp", "azure"}


def test_the_halved_pcie_of_the_sixteen_gpu_p2_costs_twice_the_exchange() -> None:
    vgg = find_model("vgg16")
    eight, sixteen = (predict(vgg, find_machine(name), 1, 1) for name in ("p2.8xlarge", "p2.16xlarge"))
    assert sixteen.interconnect > 2 * eight.interconnect


def test_a_dearer_instance_can_be_the_slower_one() -> None:
    lost = dearer_loses(cases(batches=(4,), instances=("p3.8xlarge", "p3.16xlarge")))
    assert any("2 × p3.8xlarge" in what for _, what in lost)


def test_a_regression_finds_coefficients_that_made_the_data() -> None:
    rows = [(n, b, 0.001 + 2e-5 * n + 3e-10 * b) for n in (10, 50, 152) for b in (10**7, 10**8, 5 * 10**8)]
    found = regress("x", rows)
    assert found.per_layer == pytest.approx(2e-5) and found.per_byte == pytest.approx(3e-10) and found.error < 1e-6


def test_the_page_needs_nothing_else_and_escapes_names(tmp_path: Path) -> None:
    model = find_model(str(written(tmp_path)))
    timeline = [
        {"lane": "compute", "what": "forward", "start": 0.0, "end": 0.1},
        {"lane": "network", "what": "gloo:all_reduce", "start": 0.05, "end": 0.2},
    ]
    text = page(
        profile(name="<b>", timeline=timeline), [what_if(profile(), model, change) for change in usual(profile())]
    )
    assert "<b>:" not in text and "&lt;b&gt;" in text and "gloo:all_reduce" in text
    assert "http" not in text.replace("http-equiv", "") and "<script" not in text


@given(
    st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10)), max_size=8),
    st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10)), max_size=8),
)
def test_what_is_covered_and_what_is_not_add_up(
    spans: list[tuple[float, float]], by: list[tuple[float, float]]
) -> None:
    def length(parts: list[tuple[float, float]]) -> float:
        return math.fsum(b - a for a, b in parts)

    first, second = union(spans), union(by)
    assert length(uncovered(first, second)) == pytest.approx(length(union([*spans, *by])) - length(second), abs=1e-9)


def test_exposed_communication_is_what_no_kernel_covers(tmp_path: Path) -> None:
    def event(name: str, cat: str, start: float, end: float, tid: int = 1) -> dict[str, object]:
        return {"ph": "X", "name": name, "cat": cat, "ts": start, "dur": end - start, "tid": tid}

    events = [
        event("Optimizer.step#SGD.step", "user_annotation", 0, 10),
        event("gemm", "kernel", 20, 60, 7),
        event("ncclDevKernel_AllReduce", "kernel", 40, 100, 9),
        event("Optimizer.step#SGD.step", "user_annotation", 100, 110),
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    moments, exposed = read_trace(path)
    assert exposed == pytest.approx(40e-6)
    assert {moment["lane"] for moment in moments} == {"compute", "network"}
    path.write_text("{}")
    with pytest.raises(UserError, match="Chrome trace"):
        read_trace(path)


def test_a_run_over_several_hosts_is_added_to_a_profile(tmp_path: Path) -> None:
    path = written(tmp_path)
    window = {"event": "window", "seconds": 0.36, "steps": 20, "wait": 0.0, "cpu": 0.5, "read": None}
    add(path, [[window, window], [window, window]], 2, "100 Mbit")
    told = json.loads(dally("profile", "show", path, "--json").stdout)
    assert told["stalls"]["network"]["percent"] == pytest.approx(200)
    assert told["apart"][0]["machines"] == 2 and told["apart"][0]["link"] == "100 Mbit"


def test_ranks_under_slurm_get_what_torch_asks_for() -> None:
    env = {
        "SLURM_PROCID": "3",
        "SLURM_NTASKS": "4",
        "SLURM_LOCALID": "1",
        "SLURM_NNODES": "2",
        "SLURM_JOB_NODELIST": "n[02-03]",
        "SLURM_JOB_ID": "77",
    }
    from_slurm(env)
    assert (env["RANK"], env["WORLD_SIZE"], env["LOCAL_RANK"], env["MASTER_ADDR"]) == ("3", "4", "1", "n02")


def test_the_study_puts_published_figures_beside_ours() -> None:
    told = dally("reproduce", "stash", "--rows").stdout
    assert "up to 90 % of training time" in told and "up to 5 ×" in told
    assert "ResNet-152 no residual" in told and "VGG-19 BN" in told and "R²" in told


def test_a_plot_and_a_page_are_written_where_they_are_asked_for(tmp_path: Path) -> None:
    dally("profile", "recommend", "resnet50", "--samples", "1e6", "--most", "1", "--plot", tmp_path / "plot.html")
    dally("profile", "show", written(tmp_path), "--html", tmp_path / "page.html")
    assert "p3.16xlarge" in (tmp_path / "plot.html").read_text()
    assert "What if" in (tmp_path / "page.html").read_text()


def test_an_option_that_cannot_change_anything_says_so(tmp_path: Path) -> None:
    from profiler.conftest import dally

    runs = {**profile().runs, "cold": run(0.151, data="cold", read=2e6, wait=0.031)}
    from dally.profiler.stalls import stalls

    path = written(tmp_path, runs=runs, stalls=stalls(runs))
    said = " ".join(dally("profile", "whatif", path, "--disk", "1GB/s", "--workers", "4", "--json").stderr.split())
    assert "the disk was not seen to hold training up in this profile: --disk changes nothing" in said
    assert "--workers changes nothing" not in said


def test_a_longer_step_that_did_not_wait_for_data_is_not_called_a_data_stall() -> None:
    from dally.profiler.stalls import largest, stalls

    busy = {"one": run(0.100, processes=1), "all": run(0.101), "cached": run(0.150, data="cached", wait=0.001)}
    found = stalls(busy)
    assert found["prep"].contradicted and not found["prep"].clear and largest(found) is None
    assert "did not wait" in found["prep"].verdict
