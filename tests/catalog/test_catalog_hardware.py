"""GPUs, machines, fabrics and prices, and the links they make together."""

from __future__ import annotations

import pytest

from dally.catalog import fabrics, find_fabric, find_gpu, find_machine, gpus, instances, machines, wire
from dally.catalog.listing import (
    describe_model,
    list_fabrics,
    list_gpus,
    list_layers,
    list_machines,
    list_models,
)
from dally.catalog.model import Precision
from dally.catalog.store import efficiencies, find_model, models
from dally.core.errors import UserError
from dally.core.topology import LinkKind


@pytest.mark.parametrize(
    "name", ["K80", "P100", "V100", "T4", "A100-40GB", "A100-80GB", "H100", "H200", "B200", "L40S"]
)
def test_the_gpus_that_were_asked_for_are_there_with_a_source(name: str) -> None:
    gpu = find_gpu(name)
    assert gpu.fp32 > 1e12 and gpu.memory_bytes >= 12e9 and gpu.memory_bandwidth > 1e11 and gpu.source


@pytest.mark.parametrize(
    ("written", "name"), [("V100M32", "V100-32GB"), ("A100", "A100-40GB"), ("tesla t4", "T4")]
)
def test_a_gpu_is_found_under_the_names_of_public_traces(written: str, name: str) -> None:
    assert find_gpu(written).name == name


def test_a_gpu_without_tensor_cores_computes_mixed_precision_at_its_32_bit_rate() -> None:
    assert find_gpu("P100").peak(Precision.MIXED) == 10.6e12
    assert find_gpu("V100").peak(Precision.MIXED) == 125e12
    assert find_gpu("V100").peak(Precision.FP32) == 15.7e12
    assert find_gpu("A100").peak(Precision.FP32) == 156e12  # TF32


def test_every_entry_of_the_built_in_data_is_valid() -> None:
    for section in (gpus(), machines(), fabrics(), instances()):
        for name, thing in section.items():
            assert thing.name == name and thing.source


def test_machines_and_instances_refer_to_what_is_there() -> None:
    assert all(machine.gpu in gpus() for machine in machines().values())
    assert all(instance.machine in machines() for instance in instances().values())


def test_every_family_of_a_built_in_model_has_its_own_efficiencies_on_every_gpu() -> None:
    table = efficiencies()
    for model in models().values():
        for gpu in gpus().values():
            for precision in () if gpu.generation == "cpu" else Precision:  # a CPU has the default's
                assert (model.family, gpu.generation, gpu.mode(precision)) in table


def test_prices_are_those_stash_was_published_with() -> None:
    prices = {name: instances()[name].price for name in instances() if name.startswith(("p2.", "p3."))}
    assert prices == {"p2.xlarge": 0.90, "p2.8xlarge": 7.20, "p2.16xlarge": 14.40, "p3.2xlarge": 3.06,
                      "p3.8xlarge": 12.24, "p3.16xlarge": 24.48}  # fmt: skip


def test_dallys_fabric_is_wired_as_its_authors_describe_it() -> None:
    links = wire(find_machine("dally-8"), find_fabric("dally"), (8, 4))
    assert [(link.kind, link.latency) for link in links] == [
        (LinkKind.FULLY_CONNECTED, 0.0),
        (LinkKind.RING, pytest.approx(500e-9)),
        (LinkKind.RING, pytest.approx(5e-6)),
        (LinkKind.SWITCH, pytest.approx(50e-6)),
    ]
    # Ports of a GPU, an island of four, a machine of eight and a rack of 64: 600, 600, 200, 400 GB/s per GPU.
    assert [link.bandwidth for link in links] == pytest.approx([600e9, 4 * 600e9, 8 * 200e9, 64 * 400e9])


def test_the_congested_fabric_has_a_tenth_of_the_bandwidth_and_ten_times_the_latency_between_machines_only() -> None:
    machine = find_machine("dally-8")
    normal = wire(machine, find_fabric("dally"), (8, 4))
    congested = wire(machine, find_fabric("dally-congested"), (8, 4))
    assert [a.bandwidth / b.bandwidth for a, b in zip(normal, congested, strict=True)] == pytest.approx(
        [1, 1, 10, 10]
    )
    assert [b.latency / a.latency for a, b in zip(normal[2:], congested[2:], strict=True)] == pytest.approx([10, 10])


def test_an_oversubscription_of_four_leaves_a_rack_a_quarter_of_its_machines_nics() -> None:
    rack, spine = wire(find_machine("dgx-1"), find_fabric("ethernet-100g-4to1"), (16, 4))[-2:]
    assert rack.bandwidth == pytest.approx(12.5e9)
    assert spine.bandwidth == pytest.approx(16 * 12.5e9 / 4)


def test_infiniband_counts_per_nic_and_the_slower_end_wins() -> None:
    assert wire(find_machine("dgx-h100"), find_fabric("infiniband-ndr"), (4,))[-1].bandwidth == pytest.approx(
        400e9
    )
    assert wire(find_machine("dgx-h100"), find_fabric("infiniband-hdr"), (4,))[-1].bandwidth == pytest.approx(
        200e9
    )
    assert wire(find_machine("dgx-1"), find_fabric("infiniband-ndr"), (4,))[-1].bandwidth == pytest.approx(
        50e9
    )


def test_a_fabric_may_take_the_bandwidth_from_the_machines_nics() -> None:
    rack, spine = wire(find_machine("p4d.24xlarge"), find_fabric("machine-nics"), (4, 2))[-2:]
    assert rack.bandwidth == pytest.approx(50e9) and spine.bandwidth == pytest.approx(200e9)


def test_only_the_levels_that_are_needed_are_wired() -> None:
    machine = find_machine("dgx-h100")
    assert [link.name for link in wire(machine, find_fabric("infiniband-ndr"), ())] == ["nvswitch"]
    with pytest.raises(UserError, match="has 2 levels above the machine, 3 are needed"):
        wire(machine, find_fabric("infiniband-ndr"), (4, 4, 2))


def test_an_nvl72_is_one_machine_of_72_gpus() -> None:
    machine = find_machine("nvl72")
    assert machine.gpus == 72 and machine.levels[0].link.bandwidth == 900e9


def test_listings_have_a_row_per_entry_and_no_empty_cell() -> None:
    for listing, section in ((list_models(), models()), (list_gpus(), gpus()), (list_machines(), machines()),
                             (list_fabrics(), fabrics())):  # fmt: skip
        assert [row[0] for row in listing.rows] == list(section)
        assert all(len(row) == len(listing.columns) and all(row) for row in listing.rows)


def test_a_model_is_described_with_its_source_and_its_layers() -> None:
    model = find_model("vgg11")
    described = dict(describe_model(model))
    assert described["parameters"] == "132,863,336 in 22 tensors"
    assert "arXiv 1409.1556" in described["source"] and "estimated" in described["memory on one GPU"]
    assert [row[0] for row in list_layers(model).rows] == [layer.name for layer in model.layers]
