"""A user's own data files: what they may hold, how they are layered, and what is said when they are wrong."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dally.catalog import (
    compute_time,
    find_fabric,
    find_gpu,
    find_machine,
    find_model,
    load_layer_csv,
    models,
    use_directories,
    wire,
)
from dally.core.errors import UserError

Write = Callable[[str], Path]


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Write]:
    """Write a catalog file and use its folder."""

    def write(text: str) -> Path:
        path = tmp_path / "mine.yaml"
        path.write_text(text, encoding="utf-8")
        use_directories([tmp_path])
        return path

    yield write
    use_directories([])


MINE = """
models:
  my-model:
    title: what I train
    aliases: [mine]
    family: transformer
    batch_size: 16
    measured_on: V100
    source: measured by me
    utilization: {value: 0.7, source: nvidia-smi}
    memory: 9.5 GB
    layers:
      - {name: a, kind: linear, parameters: 1000, forward_flops: 2000}
      - name: b
        parameters: 500
        gradient_bytes: 1kB
        measured: {forward: 1ms, input_gradient: 2ms, weight_gradient: 1ms}
"""


def test_a_model_written_down_by_hand_is_found_and_timed(own: Write) -> None:
    own(MINE)
    model = find_model("Mine")
    assert (model.name, model.parameters, model.gradient_bytes) == ("my-model", 1500, 5000)
    assert model.memory_bytes() == 9.5e9 and model.utilization == 0.7
    forward, backward = compute_time(model, find_gpu("V100"))
    assert forward[1] == 1e-3 and backward[1] == pytest.approx(3e-3)
    assert "vgg16" in models()


def test_an_own_llm_needs_only_its_dimensions(own: Write) -> None:
    own("""
models:
  tiny:
    family: llm
    architecture: llama
    arguments: {layers: 2, hidden: 64, heads: 4, inner: 128, vocabulary: 100}
    precision: bf16
    optimizer: adam
    batch_size: 1
    source: ours
""")
    block = 4 * 64 * 64 + 3 * 64 * 128 + 2 * 64
    assert find_model("tiny").parameters == 2 * 100 * 64 + 64 + 2 * block


def test_a_later_entry_replaces_a_built_in_one_of_the_same_name(own: Write) -> None:
    own(
        "gpus: {V100: {generation: volta, fp32: 1 TFLOP/s, memory: 1 GB, memory_bandwidth: 1 GB/s, source: joke}}"
    )
    assert find_gpu("V100").fp32 == 1e12
    assert find_gpu("H100").fp32 == pytest.approx(66.9e12)


def test_own_machines_and_fabrics_can_be_wired(own: Write) -> None:
    own("""
machines:
  box:
    gpu: tesla v100
    gpus: 4
    levels: [{name: pcie, kind: switch, units: 4, bandwidth: 10 GB/s, per: gpu, latency: 1us}]
    nics: {count: 2, bandwidth: 25 Gbit/s}
    source: ours
fabrics:
  hall:
    levels:
      - {name: row, kind: ring, oversubscription: 1, latency: 3us}
      - {name: hall, kind: switch, bandwidth: 40 Gbit/s, per: unit, latency: 9us}
    source: ours
""")
    assert find_machine("box").gpu == "V100"
    links = wire(find_machine("box"), find_fabric("hall"), (10, 2))
    assert [link.bandwidth for link in links] == pytest.approx([10e9, 6.25e9, 5e9])


def test_folders_of_the_environment_variable_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.yml").write_text(MINE.replace("my-model", "from-env").replace("[mine]", "[]"))
    monkeypatch.setenv("DALLY_CATALOG", str(tmp_path))
    assert find_model("from-env").batch_size == 16
    monkeypatch.setenv("DALLY_CATALOG", str(tmp_path / "gone"))
    with pytest.raises(UserError, match=r"gone: there is no such catalog folder \(DALLY_CATALOG\)"):
        find_model("from-env")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("batch_size: 16", "batch_size: 0"), r"line 7: models.my-model.batch_size: must be a whole number"),
        (("batch_size: 16", "batch_size: many"), r"line 7: models.my-model.batch_size"),
        (("    batch_size: 16\n", ""), r"models.my-model: the field 'batch_size' is missing"),
        (
            ("batch_size: 16", "batch_size: 16\n    batchsize: 3"),
            r"line 8: models.my-model.batchsize: there is no such field",
        ),
        (("batch_size: 16", "batch_size: 16\n    batch_size: 3"), r"line 8: .*'batch_size' is there twice"),
        (("memory: 9.5 GB", "memory: 9.5 potatoes"), r"line 11: models.my-model.memory: .*unknown unit"),
        (
            ("measured_on: V100", "measured_on: V1000"),
            r"line 8: models.my-model.measured_on: there is no 'V1000'",
        ),
        (
            ("value: 0.7", "value: 7"),
            r"line 10: models.my-model.utilization.value: must be a number between 0 and 1",
        ),
        (("parameters: 500", "parameters: -500"), r"line 15: models.my-model.layers\[1\].parameters"),
        (
            ("forward: 1ms", "forward: -1ms"),
            r"line 17: models.my-model.layers\[1\].measured.forward: must not be neg",
        ),
        (
            ("family: transformer", "architecture: vgg"),
            r"needs exactly one of architecture, layers and layers_csv",
        ),
        (("models:", "model:"), r"line 2: there is no section 'model'"),
        (("[mine]", "mine"), r"line 5: models.my-model.aliases: must be a list of texts"),
        (("title: what I train", "title: [what"), r"line \d+: "),
        (("  my-model:", "  my-model: 3\n  other:"), r"line 3: models.my-model must be a mapping"),
        (("value: 0.7", "value: &a [*a]"), r"models.my-model.utilization.value: refers to itself"),
    ],
)
def test_a_mistake_is_named_with_file_line_and_field(
    own: Write, change: tuple[str, str], message: str
) -> None:
    assert change[0] in MINE
    path = own(MINE.replace(*change, 1))
    with pytest.raises(UserError, match=message) as caught:
        find_model("my-model")
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_one_alias_for_two_models_is_refused(own: Write) -> None:
    row = "{batch_size: 1, source: x, aliases: [same], layers: [{name: a, parameters: 1}]}"
    own(f"models: {{one: {row}, two: {row}}}")
    with pytest.raises(UserError, match="'same' is also a name of 'one'"):
        find_model("one")


PCIE = "[{name: a, kind: ring, units: 4, bandwidth: 1 GB/s, per: gpu, latency: 0}]"
BOX = f"machines: {{x: {{gpu: V100, gpus: 4, levels: {PCIE}, nics: {{count: 1, bandwidth: 1 GB/s}}, source: s}}}}"
HALL = (
    "fabrics: {x: {levels: [{name: rack, kind: ring, bandwidth: 1 GB/s, per: nic, latency: 0}], source: s}}"
)
CHIP = "gpus: {x: {generation: volta, fp32: 1 TFLOP/s, memory: 1 GB, memory_bandwidth: 1 GB/s, source: s}}"


@pytest.mark.parametrize(
    ("right", "change", "message"),
    [
        (BOX, ("gpus: 4", "gpus: 8"), "must multiply to its 8 GPUs"),
        (BOX, ("gpu: V100", "gpu: V1"), "machines.x.gpu: there is no 'V1'"),
        (BOX, ("count: 1, bandwidth: 1 GB/s", "count: 1, bandwidth: 100"), "nics.bandwidth: .*no unit"),
        (BOX, ("per: gpu", "per: box"), "per: must be one of gpu"),
        (HALL, ("bandwidth: 1 GB/s, per: nic, ", ""), "either a bandwidth or an oversubscription"),
        (HALL, ("per: nic", "oversubscription: 2"), "either a bandwidth or an oversubscription"),
        (HALL, ("bandwidth: 1 GB/s, per: nic", "oversubscription: "), "and a value for it"),
        (HALL, ("kind: ring", "kind: star"), "must be one of ring, fully-connected, switch"),
        (HALL, ("per: nic, ", ""), "'per' is missing"),
        (HALL, ("1 GB/s", "0 GB/s"), "bandwidth: must be more than zero"),
        (CHIP, ("1 TFLOP/s", "15"), "like 15.7 TFLOP/s"),
        (CHIP, (", source: s", ""), "'source' is missing"),
    ],
)
def test_hardware_with_a_mistake_is_refused(
    own: Write, tmp_path: Path, right: str, change: tuple[str, str], message: str
) -> None:
    find = {"m": find_machine, "f": find_fabric, "g": find_gpu}[right[0]]
    own(right)
    assert find("x").source == "s"
    wrong = tmp_path / "wrong"
    wrong.mkdir()
    (wrong / "x.yaml").write_text(right.replace(*change, 1))
    use_directories([wrong])
    with pytest.raises(UserError, match=message):
        find("x")


CSV = """layer,fp_ns_raw,ig_ns_raw,wg_ns_raw,comm,grad_bytes,update_ns,fp_ns_scaled,ig_ns_scaled,wg_ns_scaled
conv1,1000,2000,3000,ALLREDUCE,400,0,100,200,300
fc,10,20,30,ALLREDUCE,4000,0,1,2,3
"""


def test_a_csv_layer_table_is_read_scaled_unless_told_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "layers.csv"
    path.write_text(CSV)
    scaled, raw = load_layer_csv(path), load_layer_csv(path, scaled=False)
    assert [layer.name for layer in scaled] == ["conv1", "fc"]
    assert scaled[0].forward_time == pytest.approx(100e-9) and scaled[0].backward_time == pytest.approx(
        500e-9
    )
    assert raw[0].forward_time == pytest.approx(1e-6)
    assert scaled[1].gradient_bytes == 4000 and scaled[1].parameters == 1000


def test_a_csv_layer_table_may_have_plain_columns_only(tmp_path: Path) -> None:
    path = tmp_path / "layers.csv"
    path.write_text("layer,fp_ns,ig_ns,wg_ns,grad_bytes\na,1,2,3,4\n")
    assert load_layer_csv(path)[0].backward_time == pytest.approx(5e-9)


def test_a_model_may_take_its_layers_from_a_csv_beside_it(own: Write, tmp_path: Path) -> None:
    (tmp_path / "layers.csv").write_text(CSV)
    own("models: {m: {batch_size: 8, source: x, layers_csv: layers.csv, measured_on: K80}}")
    model = find_model("m")
    assert model.gradient_bytes == 4400 and compute_time(model, find_gpu("K80"))[0][0] == pytest.approx(
        100e-9
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("conv1,1000", "conv1,x"), None),
        (("ALLREDUCE,400,0,100", "ALLREDUCE,400,0,x"), r"line 2: fp_ns_scaled must be a number, not 'x'"),
        (("ALLREDUCE,400,0,100", "ALLREDUCE,400,0,-1"), r"line 2: fp_ns_scaled must not be negative"),
        (("grad_bytes", "gradients"), r"line 1: the column 'grad_bytes' is missing"),
        (("fp_ns_scaled", "fp"), None),
        (("\nfc,", "\n,"), r"line 3: the layer has no name"),
        (("fc,10,20,30,ALLREDUCE,4000,0,1,2,3", "fc,10"), r"line 3: fp_ns_scaled must be a number"),
    ],
)
def test_a_csv_with_a_mistake_is_refused_and_unused_columns_do_not_matter(
    tmp_path: Path, change: tuple[str, str], message: str | None
) -> None:
    path = tmp_path / "layers.csv"
    path.write_text(CSV.replace(*change, 1))
    if message is None:
        assert len(load_layer_csv(path)) == 2
    else:
        with pytest.raises(UserError, match=message):
            load_layer_csv(path)


def test_a_missing_or_empty_csv_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        load_layer_csv(tmp_path / "none.csv")
    (tmp_path / "empty.csv").write_text(CSV.splitlines()[0] + "\n")
    with pytest.raises(UserError, match="is empty"):
        load_layer_csv(tmp_path / "empty.csv")


@pytest.mark.reference
def test_the_reference_layer_tables_agree_with_the_computed_ones(reference: Path) -> None:
    folder = reference / "dally"
    for name in ("AlexNet", "ResNet18", "ResNet50", "VGG"):
        table = {layer.name: layer for layer in load_layer_csv(folder / f"layers_{name}.csv")}
        ours = find_model(name).layers
        # Theirs count the weight tensors alone, ours a bias or batch normalisation with each.
        assert [table[layer.name].gradient_bytes for layer in ours] == [
            4 * layer.largest_tensor for layer in ours
        ]


def test_importing_the_catalog_reads_nothing() -> None:
    code = "import sys, dally.catalog; print('yaml' in sys.modules, 'dally.catalog.store' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_listing_the_models_builds_no_layer_table() -> None:
    code = "import sys, dally.catalog as c; list(c.models()); print('dally.catalog.layers' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
