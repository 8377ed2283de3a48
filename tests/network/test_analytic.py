"""The network model behind its seam, by name and at every fidelity."""

from __future__ import annotations

from pathlib import Path

import pytest
from fabrics import MACHINES, RACKS, cluster, place, placements
from hypothesis import given, settings
from hypothesis import strategies as st

from dally.core.errors import UserError
from dally.core.job import Job
from dally.core.placement import Placement
from dally.core.topology import Level, MachineSpec, build_topology
from dally.network.analytic import Analytic
from dally.network.artist import artist_step_ns, original_dimension
from dally.network.astra import data_parallel_step_ns
from dally.network.fidelity import Artist, Astra, units_of
from dally.network.model import NetworkModel
from dally.network.registry import NAMES, make_network
from dally.network.shape import Shapes

NETWORK = Analytic(cluster())


def job(placement: Placement, model: str | None = "resnet50") -> Job:
    return Job("job", 0.0, placement.gpus, model=model)


@given(placements(), st.permutations(range(MACHINES)), st.integers(0, RACKS - 1))
@settings(max_examples=50, deadline=None)
def test_machines_of_a_rack_and_racks_are_interchangeable(placement, machines, turn) -> None:
    moved = Placement.of(
        ((machine // MACHINES + turn) % RACKS * MACHINES + machines[machine % MACHINES], mask)
        for machine, mask in placement.slices
    )
    assert NETWORK.step_time(job(placement), placement, 0.0) == NETWORK.step_time(job(moved), moved, 0.0)


def test_a_remembered_answer_is_the_same_object() -> None:
    placement = place((0, 8), (1, 8))
    assert NETWORK.step_time(job(placement), placement, 0.0) is NETWORK.step_time(job(placement), placement, 9.0)


@pytest.mark.pure
def test_another_run_on_the_same_links_works_out_no_step_again_and_on_others_all(monkeypatch: pytest.MonkeyPatch) -> None:
    spread = place((0, 4), (3, 4))
    first = Analytic(cluster())
    known = first.step_time(job(spread, None), spread, 0.0), first.profile(None, spread)

    def not_again(*_: object) -> None:
        raise AssertionError("it was known")

    monkeypatch.setattr("dally.network.analytic.step_alone", not_again)
    monkeypatch.setattr("dally.network.analytic.profile", not_again)
    second = Analytic(cluster())
    assert (second.step_time(job(spread, None), spread, 0.0), second.profile(None, spread)) == known
    assert second.notes == first.notes  # what had to be assumed is said again
    levels = [Level("machine", bandwidth=299e9), Level("cluster", bandwidth=1e9)]
    other = Analytic(build_topology(levels, [MachineSpec((f"m{i}",), 8, "V100") for i in range(4)]))
    with pytest.raises(AssertionError, match="it was known"):
        other.step_time(job(spread, None), spread, 0.0)


def test_the_memory_of_placements_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dally.network.analytic._MOST_REMEMBERED", 3)
    network = Analytic(cluster())
    for machine in range(8):
        network.step_time(job(place((machine, 2))), place((machine, 2)), 0.0)
    assert len(network._placed) <= 3


def test_distance_costs_time() -> None:
    spread = (place((0, 8)), place((0, 4), (1, 4)), place((0, 4), (3, 4)))
    times = [NETWORK.step_time(job(p, "vgg16"), p, 0.0).seconds for p in spread]
    assert times[0] < times[1] < times[2]


def test_a_faster_gpu_computes_faster_and_hides_less() -> None:
    levels = [Level("machine", bandwidth=300e9), Level("cluster", bandwidth=1e9)]
    specs = [MachineSpec((f"m{i}",), 8, "V100" if i < 2 else "H100") for i in range(4)]
    network = Analytic(build_topology(levels, specs))
    slow, fast = place((0, 8), (1, 8)), place((2, 8), (3, 8))
    a, b = network.step_time(job(slow), slow, 0.0), network.step_time(job(fast), fast, 0.0)
    assert b.compute < a.compute
    assert b.exposed_share > a.exposed_share


def test_what_is_not_known_is_timed_as_something_known_and_said_so() -> None:
    levels = [Level("machine"), Level("cluster")]
    network = Analytic(build_topology(levels, [MachineSpec(("m0",), 8, "gpu")]))
    placement = place((0, 2))
    named = network.step_time(job(placement), placement, 0.0)
    assert network.step_time(job(placement, None), placement, 0.0) == named
    assert network.step_time(job(placement, "my-net"), placement, 0.0) == named
    assert network.notes == [
        "GPU type 'gpu' is not in the catalog; timed as A100-40GB",
        "jobs without a model are timed as resnet50",
        "model 'my-net' is not in the catalog; timed as resnet50",
    ]


def test_a_batch_in_the_name_of_a_model_counts() -> None:
    placement = place((0, 1))
    small = NETWORK.step_time(job(placement, "ResNet-50 (batch size 16)"), placement, 0.0)
    large = NETWORK.step_time(job(placement, "ResNet-50 (batch size 128)"), placement, 0.0)
    assert small.seconds < large.seconds


def test_networks_are_made_by_name() -> None:
    topology = cluster()
    made: NetworkModel = make_network("analytic[algorithm=ring,bucket=layer,contention=off]", topology)
    assert isinstance(made, Analytic)
    assert (made.options.algorithm, made.options.bucket, made.contention) == ("ring", None, False)
    assert make_network("analytic[bucket=1MB]", topology).options.bucket == 1e6  # type: ignore[attr-defined]
    assert isinstance(make_network("astra", topology), Astra)
    assert isinstance(make_network("artist", topology), Artist)
    assert {"analytic", "astra", "artist", "astra-sim"} <= set(NAMES)


@pytest.mark.parametrize(("text", "said"), [
    ("fast", "there is no network model 'fast'"),
    ("analytic[speed=1]", "network 'analytic' has no option 'speed=1'"),
    ("analytic[bucket=1MB,bucket=2MB]", "option 'bucket' is given twice"),
    ("analytic[bucket=0]", "a bucket must hold at least one byte"),
    ("analytic[bucket=big]", "'big' is not a size"),
    ("analytic[algorithm=star]", "there is no collective algorithm 'star'"),
    ("analytic[contention=perhaps]", "contention must be on or off"),
    ("artist[layers=/nowhere]", "there is no layer table"),
    ("ideal[x=1]", "network 'ideal' takes no options"),
    ("level-penalty[rack=much]", "'rack=much' is not level=factor"),
])  # fmt: skip
def test_a_wrong_network_is_refused_in_one_sentence(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said.replace("[", r"\[")):
        make_network(text, cluster())


def test_units_are_counted_per_level_and_uneven_gangs_are_flat() -> None:
    shapes = Shapes(cluster())
    assert units_of(shapes.of(place((0, 4), (1, 4))), shapes.wires) == ((0, 4), (1, 2))
    assert units_of(shapes.of(place((0, 1), (1, 1), (3, 1), (4, 1))), shapes.wires) == ((1, 2), (2, 2))
    assert units_of(shapes.of(place((0, 3), (1, 5))), shapes.wires) == ((1, 8),)
    assert units_of(shapes.of(place((0, 4), (1, 4), (3, 4))), shapes.wires) == ((2, 12),)
    assert units_of(shapes.of(place((0, 1))), shapes.wires) == ()


def test_the_astra_fidelity_is_the_astra_model_on_the_units_of_a_placement() -> None:
    network = Astra(cluster())
    placement = place((0, 4), (1, 4))
    fabric = network.fabric(Shapes(cluster()).of(placement))
    assert fabric is not None
    assert [(dim.kind, dim.size) for dim in fabric.dims] == [("switch", 4), ("switch", 2)]
    assert fabric.dims[1].bandwidth == pytest.approx(12.5e9 / 4)  # four GPUs share a NIC
    expected = data_parallel_step_ns(network.layers("resnet50", "V100"), fabric)
    found = network.step_time(job(placement), placement, 0.0)
    assert found.seconds == pytest.approx(expected.total * 1e-9)
    assert network.step_time(job(place((0, 1))), place((0, 1)), 0.0).exposed == 0


def test_the_artist_fidelity_uses_the_authors_fabric() -> None:
    topology = cluster(islands=True)
    network = Artist(topology)
    shapes = Shapes(topology)

    def dims(placement: Placement) -> list[tuple[str, int, float]]:
        return [(d.kind, d.size, d.latency_ns) for d in network.dimensions(shapes.of(placement)) if d.size > 1]

    assert dims(place((0, 3))) == [("fully-connected", 3, 0)]
    assert dims(place((0, 8))) == [("fully-connected", 4, 0), ("ring", 2, 500)]
    assert dims(place((0, 5))) == [("ring", 5, 500)]
    assert dims(place((0, 8), (1, 8))) == [("ring", 8, 500), ("ring", 2, 5000)]
    racks = place((0, 2), (1, 2), (3, 2), (4, 2))
    assert dims(racks) == [("ring", 2, 500), ("ring", 2, 5000), ("switch", 2, 50000)]
    assert dims(place((0, 3), (1, 5))) == [("ring", 8, 5000)]
    assert dims(place((0, 3), (4, 5))) == [("switch", 8, 50000)]


def test_the_artist_fidelity_reads_layer_tables(tmp_path: Path) -> None:
    header = "layer,comm,grad_bytes,update_ns,fp_ns_scaled,ig_ns_scaled,wg_ns_scaled\n"
    (tmp_path / "layers_ResNet50.csv").write_text(header + "conv1,ALLREDUCE,1000000,0,1000,2000,3000\n")
    (tmp_path / "models_summary.csv").write_text("model,layers_declared\nResNet50,3\n")
    network = Artist(cluster(), tmp_path)
    placement = place((0, 4))
    layers, silent = network.table("resnet50", "V100")
    assert (len(layers), silent) == (1, 2)
    expected = artist_step_ns(layers, [original_dimension("mesh", 4)], 2)
    assert network.step_time(job(placement), placement, 0.0).seconds == pytest.approx(expected.total * 1e-9)
    assert len(network.table("vgg11", "V100")[0]) == 11  # not in the folder: the catalog's
