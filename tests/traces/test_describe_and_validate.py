"""What `describe` and `validate` tell about a trace."""

from __future__ import annotations

from pathlib import Path

from dally.traces import describe_trace, load_trace, synthesise, validate_trace

PHILLY = ("timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:00:00,3600,2,0,a\n"
          "2017-10-09 07:00:10,10,0,0,a\n2017-10-09 07:00:30,0,1,0,b\n")  # fmt: skip


def test_a_description_counts_jobs_work_and_what_was_changed(tmp_path: Path) -> None:
    file = tmp_path / "p.csv"
    file.write_text(PHILLY)
    sections = {section.title: section for section in describe_trace(load_trace(file))}
    general = dict(row[:2] for row in sections["trace"].rows)
    assert (general["jobs"], general["GPU-hours"]) == ("2", "2")
    assert general["multi-GPU jobs"] == "1 (50.0%)"
    assert sections["quantiles"].columns[2] == "50%"
    assert sections["quantiles"].rows[2][0] == "inter-arrival"
    assert sections["quantiles"].rows[2][-1] == "30.0 s"
    assert sections["dropped"].rows == [("no GPUs asked for", "1")]
    assert sections["repaired"].rows == [("ran for no time: given one second", "1")]
    assert "tenants: 2" in sections


def test_work_on_one_gpu_is_not_multiplied_by_the_gpus() -> None:
    trace = synthesise("dally-poisson", jobs=50, seed=1)
    hours = sum(truth.duration or 0 for truth in trace.truths) / 3600
    general = dict(row[:2] for row in describe_trace(trace)[0].rows)
    assert general["GPU-hours"] == f"{hours:,.0f}"


def test_validation_numbers_problems_by_line(tmp_path: Path) -> None:
    file = tmp_path / "p.csv"
    file.write_text(PHILLY)
    found = validate_trace(file)
    assert found.format == "flat Philly CSV"
    assert found.sentences() == [
        "1. line 3, job '1': no GPUs asked for (dropped)",
        "2. line 4, job '2': ran for no time: given one second (kept)",
    ]
    assert not found.ok
    assert ("dropped", "no GPUs asked for", 1) in found.counts()


def test_a_trace_without_problems_is_ok(tmp_path: Path) -> None:
    file = tmp_path / "p.csv"
    file.write_text(PHILLY.split("2017-10-09 07:00:10", maxsplit=1)[0])
    assert validate_trace(file).ok
