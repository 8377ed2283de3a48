"""The links of the bed as its steps tell them, by `dally calibrate`."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

from testbed.predict import NETWORK
from testbed.runs import CLUSTER


def calibrate(folder: Path) -> None:
    """Steps of measured.json → steps.csv → cluster.yaml with links as they were found."""
    rows = json.loads((folder / "measured.json").read_text())["steps"]
    with (folder / "steps.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("model", "placement", "seconds"))
        for row in rows:
            places = ",".join(f"{_rack(node)}/{node}:{row['gpus']}" for node in row["nodes"])
            writer.writerow((row["model"], places, row["seconds"]))
    words = [str(folder / "steps.csv"), "--cluster", str(CLUSTER), "--out", str(folder / "cluster.yaml")]
    # In a process of its own: this one has read its catalog before the measured models were in it.
    subprocess.run([sys.executable, "-m", "dally.cli.main", "calibrate", *words, "--network", NETWORK], check=True,
                   env={**os.environ, "DALLY_CATALOG": str(folder / "catalog")})  # fmt: skip


def _rack(node: str) -> str:
    return "rack1" if int(node[1:]) <= 4 else "rack2"
