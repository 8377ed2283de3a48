"""A policy from a separate package is found by its entry point, and one from a plain file by its path."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.cli.conftest import Dally

POLICY = '''
from dataclasses import dataclass

from dally.core.ranking import Rank
from dally.policies.base import RankedPolicy
from dally.policies.greedy import plan_by_rank
from dally.policies.options import option
from dally.policies.placing import RuleName


class LargestFirst(RankedPolicy):
    """Most GPUs first."""

    title = "largest"

    @dataclass(frozen=True, slots=True)
    class Options:
        placement: RuleName = option("best-fit", "where a gang goes")

    def rank(self, view, memory, job, now):
        return Rank(-float(job.gpus))

    def plan(self, view, memory, now):
        return plan_by_rank(view, now, self.place, preempt=False)
'''

PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "largest-first"
version = "1"
[project.entry-points."dally.policies"]
largest = "largest_first:LargestFirst"
[tool.setuptools]
py-modules = ["largest_first"]
"""


def test_a_policy_of_another_package_is_installed_listed_and_run(dally: Dally, small_trace: Path, tmp_path: Path) -> None:
    source = tmp_path / "largest"
    source.mkdir()
    (source / "largest_first.py").write_text(POLICY)
    (source / "pyproject.toml").write_text(PROJECT)
    site = tmp_path / "site"
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation",
                    "--disable-pip-version-check", "--target", str(site), str(source)], check=True)  # fmt: skip
    listed = json.loads(dally("policies", "--json", PYTHONPATH=str(site)).stdout)
    assert "largest" in [policy["name"] for policy in listed]
    result = dally("simulate", "-t", "jobs.csv", "-c", "2x4", "-p", "largest[placement=any]", "--json", PYTHONPATH=str(site))
    assert json.loads(result.stdout)["finished"] == 20
    assert dally("simulate", "-t", "jobs.csv", "-c", "2x4", "-p", "largest").returncode == 2  # not without its package


def test_a_policy_in_a_file_of_ones_own_needs_no_package(dally: Dally, small_trace: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(POLICY)
    result = dally("simulate", "-t", "jobs.csv", "-c", "2x4", "-p", "mine.py[placement=spread]", "--json")
    assert json.loads(result.stdout)["policy"] == "largest[placement=spread]"
