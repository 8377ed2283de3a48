"""Users bring ASTRA-sim's own files and get its answer."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Dally

NETWORK = "topology: [ Ring, Switch ]\nnpus_count: [ 8, 2 ]\nbandwidth: [ 50.0, 12.5 ]\nlatency: [ 500.0, 2000.0 ]\n"
SYSTEM = """{"scheduling-policy": "LIFO", "endpoint-delay": 10, "active-chunks-per-dimension": 1,
"preferred-dataset-splits": 4, "all-reduce-implementation": ["ring", "ring"], "all-gather-implementation": ["ring", "ring"],
"reduce-scatter-implementation": ["ring", "ring"], "all-to-all-implementation": ["ring", "ring"],
"collective-optimization": "localBWAware", "local-mem-bw": 1600}"""


def test_a_collective_is_timed_on_files_of_the_users_own(dally: Dally, tmp_path: Path) -> None:
    (tmp_path / "n.yml").write_text(NETWORK)
    (tmp_path / "s.json").write_text(SYSTEM)
    fast = dally("network", "collective", "n.yml", "s.json", "--size", "100MB")
    assert fast.returncode == 0, fast.stderr
    assert fast.stdout.startswith("all-reduce of 100,000,000 bytes: ")
    (tmp_path / "n.yml").write_text(NETWORK.replace("12.5", "1.0"))
    slow = dally("network", "collective", "n.yml", "s.json", "--size", "100MB").stdout
    nanoseconds = [int(text.split(": ")[1].split(" ns")[0].replace(",", "")) for text in (fast.stdout, slow)]
    assert 0 < nanoseconds[0] < nanoseconds[1]


def test_without_the_binary_one_sentence_says_how_to_get_it(dally: Dally, tmp_path: Path) -> None:
    (tmp_path / "n.yml").write_text(NETWORK)
    (tmp_path / "s.json").write_text(SYSTEM)
    result = dally("network", "collective", "n.yml", "s.json", "--size", "1MB", "--run", DALLY_ASTRA_SIM="", PATH="")
    assert result.returncode == 2 and len(result.stderr.strip().splitlines()) == 1
    assert "DALLY_ASTRA_SIM" in result.stderr
