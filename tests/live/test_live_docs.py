"""The pages about the live service say what the code says."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from dally.cli.main import LIVE
from dally.live.config import ServiceConfig, read_config, reloadable
from dally.live.metrics import reference
from dally.live.spec import JobSpec
from dally.live.spec_file import jobs_in

DOCS = Path(__file__).parents[2] / "docs"


def test_the_table_of_metrics_is_the_one_of_the_code() -> None:
    assert reference() in (DOCS / "metrics-live.md").read_text()


@pytest.mark.parametrize(("page", "model"), [("job", JobSpec), ("service", ServiceConfig)])
def test_every_field_is_on_its_page(page: str, model: type[JobSpec] | type[ServiceConfig]) -> None:
    table = (DOCS / "formats" / f"{page}.md").read_text()
    first = "\n".join(line.split("|")[1] for line in table.splitlines() if line.startswith("| `"))
    assert set(model.model_fields) - set(re.findall(r"`(\w+)`", first)) == set()


def test_fields_that_may_change_are_marked_so() -> None:
    page = (DOCS / "formats" / "service.md").read_text()
    assert set(re.findall(r"^\| `(\w+)` ↻", page, re.M)) == reloadable()


def test_examples_of_files_can_be_read(tmp_path: Path) -> None:
    for page in ("live.md", "formats/job.md"):
        for text in re.findall(r"```yaml\n(.*?)```", (DOCS / page).read_text(), re.S):
            assert jobs_in(page, text)
    for text in re.findall(r"```yaml\n(.*?)```", (DOCS / "formats/service.md").read_text(), re.S):
        path = tmp_path / "dally.yaml"
        path.write_text(text)
        assert read_config(path).config.policy == "dally"
    assert yaml.safe_load(re.findall(r"```yaml\n(.*?)```", (DOCS / "metrics-live.md").read_text(), re.S)[0])


def test_every_command_is_on_the_page_of_commands() -> None:
    page = (DOCS / "live-commands.md").read_text()
    assert [name for name in LIVE if not re.search(rf"`dally [\w\\|]*\b{name}\b", page)] == []


def test_the_unit_for_systemd_leaves_jobs_alone() -> None:
    assert "KillMode=process" in (DOCS / "security.md").read_text()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_the_systemd_unit_of_the_docs_is_one_that_systemd_understands(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
    unit = text.partition("```ini\n")[2].partition("```")[0]
    assert "ExecStart=/opt/dally/bin/dally serve" in unit
    here = tmp_path / "dally.service"  # the program and the user are not on this machine: others stand for them
    here.write_text(unit.replace("/opt/dally/bin/dally", sys.executable).replace("User=dally", "User=root"))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(here)], capture_output=True, text=True)
    said = [line for line in (done.stdout + done.stderr).splitlines() if "dally.service" in line]
    assert (done.returncode, said) == (0, [])
    here.write_text(here.read_text().replace("KillMode=process", "KillMode=perhaps"))
    again = subprocess.run(["systemd-analyze", "verify", "--man=no", str(here)], capture_output=True, text=True)
    assert "kill mode" in again.stdout + again.stderr  # it does look
