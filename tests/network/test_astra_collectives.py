"""Collectives over hierarchies: the phases, the pipeline, and what must hold whatever the numbers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dally.core.errors import UserError
from dally.network.astra import Dimension, Fabric, Layer, System, collective_ns, data_parallel_step_ns
from dally.network.astra.flowshop import _simulated, makespan_ns
from dally.network.astra.messages import bytes_out, chain_of
from dally.network.astra.model import GIB
from dally.network.astra.step import buckets

SWITCH = Dimension("switch", 8, 50 * GIB, 500.0)
RACKS = Dimension("switch", 4, 12.5 * GIB, 2500.0)

simple_dims = st.builds(
    Dimension,
    st.sampled_from(["ring", "fully-connected", "switch"]),
    st.sampled_from([1, 2, 4, 8]),
    st.floats(1e8, 1e12),
    st.floats(0, 1e6),
)


def test_a_ring_all_reduce_is_the_formula_worked_by_hand():
    # m = 8000/8 = 1000 B, B = 1 B/ns, h = 2: t = 2·100 + 1000; r = 3·⌊1000/1600⌋ = 0; 15e + 14t.
    dim = Dimension("switch", 8, 1e9, 100.0)
    assert collective_ns("all-reduce", 8000, [dim], System(("ring",), splits=1)) == 150 + 14 * 1200
    # Aware, a switch stores and forwards: t = 2·(100 + 1000).
    assert collective_ns("all-reduce", 8000, [dim], System(("ring",), splits=1), "aware") == 150 + 14 * 2200


def test_reduction_is_charged_in_whole_nanoseconds_thrice():
    dim = Dimension("fully-connected", 2, 1e9, 0.0)
    slow = System(("direct",), splits=1, local_mem_bandwidth=3e9)
    # m = 500: t = 500, r = 3·⌊166.67⌋.
    assert collective_ns("all-reduce", 1000, [dim], slow) == 30 + 1000 + 3 * 166


def test_dimensions_of_one_gpu_cost_nothing():
    system, padded = System(("ring",)), System(("direct", "ring", "direct"))
    alone = Dimension("switch", 1, GIB, 1e6)
    lean = collective_ns("all-reduce", 10**7, [SWITCH], system)
    assert collective_ns("all-reduce", 10**7, [alone, SWITCH, alone], padded) == lean
    assert collective_ns("all-reduce", 10**7, [alone], system) == 0


def test_baseline_moves_the_whole_gradient_through_every_dimension():
    aware = System(("ring", "ring"), splits=1)
    baseline = System(("ring", "ring"), "baseline", splits=1)
    parts = [collective_ns("all-reduce", 10**7, [d], System(("ring",), splits=1)) for d in (SWITCH, RACKS)]
    assert collective_ns("all-reduce", 10**7, [SWITCH, RACKS], baseline) == sum(parts)
    assert collective_ns("all-reduce", 10**7, [SWITCH, RACKS], aware) < sum(parts)


def test_a_reduce_scatter_then_an_all_gather_is_a_two_dimensional_all_reduce_of_one_chunk():
    system = System(("ring", "direct"), splits=1)
    dims = [SWITCH, RACKS]
    scatter = collective_ns("reduce-scatter", 32 * 10**6, [SWITCH], System(("ring",), splits=1))
    middle = collective_ns("all-reduce", 4 * 10**6, [RACKS], System(("direct",), splits=1))
    gather = collective_ns("all-gather", 4 * 10**6, [SWITCH], System(("ring",), splits=1))
    assert collective_ns("all-reduce", 32 * 10**6, dims, system) == scatter + middle + gather


def test_an_all_gather_starts_at_the_outermost_dimension():
    system = System(("ring", "ring"), splits=1)
    outer = collective_ns("all-gather", 10**6, [RACKS], System(("ring",), splits=1))
    inner = collective_ns("all-gather", 4 * 10**6, [SWITCH], System(("ring",), splits=1))
    assert collective_ns("all-gather", 10**6, [SWITCH, RACKS], system) == outer + inner


def test_a_tiny_collective_is_padded_to_a_byte_per_gpu_and_chunk():
    system = System(("ring",), splits=4)
    padded = collective_ns("all-reduce", 32, [SWITCH], system)
    assert collective_ns("all-reduce", 3, [SWITCH], system) == padded
    with pytest.raises(UserError, match="all-gather of 3 bytes"):
        collective_ns("all-gather", 3, [SWITCH], system)


@pytest.mark.parametrize(
    ("dims", "system", "op", "sentence"),
    [
        ([Dimension("ring", 6, GIB, 0)], System(("halving-doubling",)), "all-reduce", "power of two"),
        ([SWITCH], System(("halving-doubling",)), "all-to-all", "no all-to-all by halving-doubling"),
        ([SWITCH], System(("ring", "ring")), "all-reduce", "one per dimension"),
        ([SWITCH], System(("ring",)), "broadcast", "times no 'broadcast'"),
        ([], System(()), "all-reduce", "at least one dimension"),
    ],
)
def test_what_astra_sim_cannot_run_is_refused_in_one_sentence(dims, system, op, sentence):
    with pytest.raises(UserError, match=sentence):
        collective_ns(op, 10**6, dims, system)


@pytest.mark.parametrize("bad", [
    lambda: Dimension("torus", 4, GIB, 0), lambda: Dimension("ring", 0, GIB, 0),
    lambda: Dimension("ring", 4, 0, 0), lambda: Dimension("ring", 4, GIB, -1),
    lambda: System(("tree",)), lambda: System(("ring",), "fast"), lambda: System(("ring",), splits=0),
    lambda: System(("ring",), local_mem_bandwidth=0), lambda: Fabric([SWITCH], System(("ring",)), "ns3"),
    lambda: collective_ns("all-reduce", -1, [SWITCH], System(("ring",))),
])  # fmt: skip
def test_impossible_values_are_refused(bad):
    with pytest.raises(UserError):
        bad()


@given(
    n=st.sampled_from([2, 4, 8, 16]),
    blocks=st.integers(1, 10**6),
    algorithm=st.sampled_from(["ring", "halving-doubling"]),
)
def test_every_gpu_sends_its_share_of_the_bytes_and_no_more(n, blocks, algorithm):
    size = 2 * n * blocks
    sent = {op: sum(m.size for m in chain_of(algorithm, op, size, n, 1e12)) for op in ("AR", "RS")}
    assert sent["RS"] == size * (n - 1) // n
    assert sent["AR"] == 2 * sent["RS"]
    part = bytes_out("RS", size, n)
    assert sum(m.size for m in chain_of(algorithm, "AG", part, n, 1e12)) == sent["RS"]
    assert bytes_out("AG", part, n) == size


@settings(max_examples=200, deadline=None)
@given(
    dims=st.lists(simple_dims, min_size=1, max_size=2),
    data=st.data(),
    size=st.integers(64, 10**9),
    splits=st.integers(1, 9),
    faster=st.floats(1, 10),
    backend=st.sampled_from(["unaware", "aware"]),
)
def test_a_better_dimension_never_slows_a_lone_collective(dims, data, size, splits, faster, backend):
    algorithms = tuple(data.draw(st.sampled_from(["ring", "halving-doubling"])) for _ in dims)
    optimization = data.draw(st.sampled_from(["localBWAware", "baseline"]))
    system = System(algorithms, optimization, splits=splits)
    which = data.draw(st.integers(0, len(dims) - 1))
    old = dims[which]
    before = collective_ns("all-reduce", size, dims, system, backend)
    wider = Dimension(old.kind, old.size, old.bandwidth * faster, old.latency_ns)
    nearer = Dimension(old.kind, old.size, old.bandwidth, old.latency_ns / faster)
    for better in (wider, nearer):
        changed = [*dims[:which], better, *dims[which + 1 :]]
        assert collective_ns("all-reduce", size, changed, system, backend) <= before


@settings(max_examples=200, deadline=None)
@given(
    durations=st.lists(st.integers(1, 1000), min_size=1, max_size=5),
    chunks=st.integers(1, 40),
    slots=st.integers(1, 5),
    lanes=st.integers(1, 3),
)
def test_the_closed_pipeline_equals_the_simulated_one(durations, chunks, slots, lanes):
    separate = [tuple(range(p * lanes, p * lanes + lanes)) for p in range(len(durations))]
    assert makespan_ns(durations, separate, chunks, slots) == _simulated(durations, separate, chunks, slots)
    if len(durations) == 3:
        shared = [(0,), (1,), (0,)]
        assert makespan_ns(durations, shared, chunks, slots) == _simulated(durations, shared, chunks, slots)


def test_answers_are_remembered_per_collective_and_size():
    fabric = Fabric([SWITCH, RACKS], System(("ring", "ring")))
    first = fabric.collective_ns("all-reduce", 10**7)
    assert fabric.collective_ns("all-reduce", 10**7) is fabric.collective_ns("all-reduce", 10**7)
    assert fabric.collective_ns("all-gather", 10**7) != first


LAYERS = (Layer("in", 100, 999, 300, 1000), Layer("mid", 200, 50, 60, 2000), Layer("out", 10, 20, 30, 4000))


def test_buckets_close_when_full_and_are_ready_with_their_last_weight_gradient():
    assert buckets(LAYERS, None) == [(340, 4000), (420, 2000), (770, 1000)]
    assert buckets(LAYERS, 5000) == [(420, 6000), (770, 1000)]
    assert buckets(LAYERS, 10**9) == [(770, 7000)]


def test_a_step_hides_what_fits_behind_the_backward_pass_and_exposes_the_rest():
    fabric = Fabric([Dimension("fully-connected", 2, 1e12, 0.0)], System(("direct",), splits=1))
    step = data_parallel_step_ns(LAYERS, fabric, None)
    last = fabric.collective_ns("all-reduce", 1000)
    assert step.compute == 770  # the first layer's input gradient is not computed
    assert (step.total, step.exposed) == (770 + last, last)
    slow = Fabric([Dimension("fully-connected", 2, 1e9, 0.0)], System(("direct",), splits=1))
    times = [slow.collective_ns("all-reduce", size) for size in (4000, 2000, 1000)]
    assert data_parallel_step_ns(LAYERS, slow, None, optimizer_ns=5).total == 340 + sum(times) + 5


def test_a_step_on_one_gpu_exposes_nothing():
    lone = Fabric([Dimension("ring", 1, 1e9, 1e6)], System(("ring",)))
    assert data_parallel_step_ns(LAYERS, lone).exposed == 0
