"""The bridge: its traces' bytes, its files, and a small program that answers as ASTRA-sim does."""

from __future__ import annotations

import stat
import sys

import pytest

from dally.core.errors import UserError
from dally.network.astra import Dimension, Fabric, Layer, System
from dally.network.astra.bridge import AstraSim, find_binary, parse_output
from dally.network.astra.bridge_files import network_text, read_network, read_system, system_text
from dally.network.astra.bridge_trace import Communicate, Compute, encode_trace, step_nodes
from dally.network.astra.model import GIB

DIMS = (Dimension("ring", 2, 50.3 * GIB, 500.0), Dimension("switch", 2, 12.5 * GIB, 2500.5))
SYSTEM = System(("ring", "halving-doubling"), "baseline", 8, active_chunks=2, local_mem_bandwidth=1555e9)
FABRIC = Fabric(DIMS, SYSTEM)
LAYERS = (Layer("in", 1400, 999, 3400, 1000), Layer("out", 2400, 5400, 1400, 300))


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return value, at
        shift += 7


def fields(data):
    """A protobuf message as (field number, value) in order; only the two wire types a trace may use."""
    at, out = 0, []
    while at < len(data):
        key, at = varint(data, at)
        assert key & 7 in (0, 2)
        value, at = varint(data, at)
        if key & 7 == 2:
            value, at = bytes(data[at : at + value]), at + value
        out.append((key >> 3, value))
    return out


def messages(data):
    at, out = 0, []
    while at < len(data):
        length, at = varint(data, at)
        out.append(fields(data[at : at + length]))
        at += length
    assert at == len(data)
    return out


def test_a_trace_decodes_to_its_metadata_and_nodes():
    scatter = Communicate("sum", "reduce-scatter", 10**10, (0, 1))
    nodes = [Compute("work", 300), Compute("more", 1, (0,)), scatter]
    metadata, work, more, collective = messages(encode_trace(nodes))
    assert metadata == [(1, b"0.0.4")]
    assert work[:4] == [(1, 0), (2, b"work"), (3, 4), (7, 300)]
    assert fields(dict(work)[10]) == [(1, b"is_cpu_op"), (27, 0)]
    assert dict(more)[5] == b"\x00"
    assert dict(collective)[3] == 7
    assert dict(collective)[5] == b"\x00\x01"
    attributes = [dict(fields(value)) for number, value in collective if number == 10]
    assert attributes == [{1: b"is_cpu_op", 27: 0}, {1: b"comm_type", 9: 7}, {1: b"comm_size", 9: 10**10}]


@pytest.mark.parametrize(("op", "code"), [("all-reduce", 0), ("all-gather", 2), ("all-to-all", 6)])
def test_collectives_carry_their_number(op, code):
    node = messages(encode_trace([Communicate(op, op, 1)]))[1]
    assert {1: b"comm_type", 9: code} in [dict(fields(value)) for number, value in node if number == 10]


def test_a_trace_may_wait_only_for_what_came_before():
    with pytest.raises(UserError, match="does not come before"):
        encode_trace([Compute("early", 1, (0,))])


def test_a_step_rounds_its_running_total_and_issues_each_bucket_after_its_weight_gradient():
    nodes = step_nodes(LAYERS, None)
    names = [node.name for node in nodes]
    assert names == ["in forward", "out forward", "out weight gradient", "out all-reduce",
                     "out input gradient", "in weight gradient", "in all-reduce"]  # fmt: skip
    # 1.4, 3.8, 5.2, 10.6 and 14.0 µs on the running total.
    assert [node.microseconds for node in nodes if isinstance(node, Compute)] == [1, 3, 1, 6, 3]
    assert nodes[3].after == (2,)
    assert nodes[4].after == (2,)  # the backward pass does not wait for the collective
    assert [node.size_bytes for node in step_nodes(LAYERS) if isinstance(node, Communicate)] == [1300]


def test_network_and_system_files_come_back_as_they_were_written(tmp_path):
    network, system = tmp_path / "n.yml", tmp_path / "s.json"
    network.write_text(network_text(DIMS))
    system.write_text(system_text(SYSTEM))
    assert read_network(network) == DIMS
    assert read_system(system) == SYSTEM
    assert network_text(read_network(network)) == network.read_text()
    assert system_text(read_system(system)) == system.read_text()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("topology: [ Torus ]\nnpus_count: [ 2 ]\nbandwidth: [ 1 ]\nlatency: [ 1 ]\n", "'topology': 'Torus'"),
        ("topology: [ Ring ]\nnpus_count: [ 2, 2 ]\nbandwidth: [ 1 ]\nlatency: [ 1 ]\n", "'npus_count' has"),
        ("topology: [ Ring ]\nnpus_count: [ 2 ]\nbandwidth: [ -1.0 ]\nlatency: [ 1.0 ]\n", "bandwidth.0"),
        ("topology: [ Ring ]\nnpus_count: [ 2 ]\nbandwidth: [ 1.0 ]\n", "latency: Field required"),
        ("topology: [ Ring\nnpus_count: 2", "line 2: is not YAML"),
        ("3", "the file"),
    ],
)
def test_a_bad_network_file_is_named(tmp_path, text, sentence):
    path = tmp_path / "n.yml"
    path.write_text(text)
    with pytest.raises(UserError, match=sentence) as error:
        read_network(path)
    assert str(path) in str(error.value)


def test_a_bad_system_file_is_named(tmp_path):
    path = tmp_path / "s.json"
    path.write_text("{\n'a'")
    with pytest.raises(UserError, match="line 2: is not JSON"):
        read_system(path)
    path.write_text(system_text(SYSTEM).replace("halvingDoubling", "doubleBinaryTree"))
    with pytest.raises(UserError, match="'doubleBinaryTree' is not a collective algorithm"):
        read_system(path)
    with pytest.raises(UserError, match="cannot be read"):
        read_system(tmp_path / "nowhere.json")


PROGRAM = """#!{python}
import pathlib, sys, time
options = dict(argument[2:].split("=", 1) for argument in sys.argv[1:])
here = pathlib.Path(__file__).parent
(here / "calls").open("a").write(" ".join(sorted(options)) + "\\n")
assert pathlib.Path(options["system-configuration"]).read_text().startswith("{{")
assert "topology" in pathlib.Path(options["network-configuration"]).read_text()
assert "NO_MEMORY_EXPANSION" in pathlib.Path(options["remote-memory-configuration"]).read_text()
prefix = pathlib.Path(options["workload-configuration"])
ranks = sorted(prefix.parent.glob(prefix.name + ".*.et"))
mode = (here / "mode").read_text()
if mode == "sleep":
    time.sleep(30)
if mode == "crash":
    sys.exit("unknown topology")
for rank in range(len(ranks) - (2 if mode == "deadlock" else 0)):
    print(f"[2024-01-01] [workload] [info] sys[{{rank}}] finished, {{1000 + rank}} cycles, "
          f"exposed communication {{10 * rank}} cycles.")
"""


@pytest.fixture
def binary(tmp_path):
    path = tmp_path / "bin" / "AstraSim_Analytical_Congestion_Unaware"
    path.parent.mkdir()
    path.write_text(PROGRAM.format(python=sys.executable))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    (path.parent / "mode").write_text("finish")
    return path


def calls(binary):
    record = binary.parent / "calls"
    return record.read_text().splitlines() if record.exists() else []


def test_the_job_ends_with_its_last_rank(binary):
    run = AstraSim(binary).run([Compute("work", 1)], FABRIC)
    assert run.finish_ns == (1000, 1001, 1002, 1003)
    assert run.exposed_ns == (0, 10, 20, 30)
    assert AstraSim(binary).collective_ns("all-reduce", 4096, FABRIC) == 1003
    step = AstraSim(binary).step_ns(LAYERS, FABRIC)
    assert (step.total, step.compute, step.exposed) == (1003, 973, 30)


def test_equal_questions_are_asked_once(binary, tmp_path):
    sim = AstraSim(binary, cache=tmp_path / "cache")
    sim.collective_ns("all-reduce", 4096, FABRIC)
    sim.collective_ns("all-reduce", 4096, FABRIC)
    assert len(calls(binary)) == 1
    sim.collective_ns("all-reduce", 8192, FABRIC)
    assert len(calls(binary)) == 2
    again = AstraSim(binary, cache=tmp_path / "cache")
    assert again.collective_ns("all-reduce", 4096, FABRIC) == 1003
    assert len(calls(binary)) == 2
    for file in (tmp_path / "cache").iterdir():
        file.write_text("torn")
    assert AstraSim(binary, cache=tmp_path / "cache").collective_ns("all-reduce", 4096, FABRIC) == 1003
    assert len(calls(binary)) == 3


def test_the_number_of_queues_goes_on_the_command_line(binary):
    AstraSim(binary).collective_ns("all-reduce", 1, Fabric(DIMS, System(("ring", "ring"), queues=2)))
    assert "num-queues-per-dim" in calls(binary)[0]
    AstraSim(binary).collective_ns("all-reduce", 1, FABRIC)
    assert "num-queues-per-dim" not in calls(binary)[1]


@pytest.mark.parametrize(
    ("mode", "sentence"),
    [
        ("deadlock", "without finishing 2 of 4 ranks, the first is rank 2"),
        ("crash", "exit code 1: unknown topology"),
        ("sleep", "did not finish within 0.5 s"),
    ],
)
def test_a_run_that_does_not_finish_is_an_error_and_is_not_remembered(binary, tmp_path, mode, sentence):
    (binary.parent / "mode").write_text(mode)
    sim = AstraSim(binary, timeout_s=0.5 if mode == "sleep" else 60, cache=tmp_path / "cache")
    with pytest.raises(UserError, match=sentence):
        sim.collective_ns("all-reduce", 4096, FABRIC)
    (binary.parent / "mode").write_text("finish")
    assert AstraSim(binary, cache=tmp_path / "cache").collective_ns("all-reduce", 4096, FABRIC) == 1003


def test_the_binary_is_found_by_variable_or_path_and_missed_in_one_sentence(binary, tmp_path, monkeypatch):
    monkeypatch.delenv("DALLY_ASTRA_SIM", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=r"not installed: build .* on PATH or name it in DALLY_ASTRA_SIM"):
        AstraSim().collective_ns("all-reduce", 1, FABRIC)
    monkeypatch.setenv("PATH", str(binary.parent))
    assert find_binary("unaware") == binary
    monkeypatch.setenv("PATH", str(tmp_path))
    for named in (binary, binary.parent):
        monkeypatch.setenv("DALLY_ASTRA_SIM", str(named))
        assert find_binary("unaware") == binary
    monkeypatch.setenv("DALLY_ASTRA_SIM", str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match="no executable"):
        find_binary("aware")
    with pytest.raises(UserError, match="cannot be run"):
        AstraSim(tmp_path / "nowhere").collective_ns("all-reduce", 1, FABRIC)


def test_output_is_read_whatever_the_logger_puts_around_it():
    lines = [f"x sys[{i}] finished, {5 + 2 * i} cycles, exposed communication 3 cycles." for i in (1, 0)]
    text = "\n".join(lines)
    assert parse_output(text, 2).finish_ns == (5, 7)
