"""Who won, by how much and why: sentences computed from the runs, never written by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dally.core.told import NOTHING
from dally.report.compared import Comparison, Paired, ReportRun, class_means
from dally.report.groups import groups_of, headline, told_less
from dally.report.series import level_shares
from dally.report.wording import (
    count_text,
    gpu_hours_text,
    gpus_text,
    jobs_text,
    listed,
    share_text,
    time_text,
    times_text,
)
from dally.simulator.threads import inner

NOTICEABLE = 0.03  # a change below 3 % is not worth a sentence


def verdict(comparison: Comparison) -> list[str]:
    """Who won among those told the same, over whom, by how much and how far from what is possible: a sentence for
    each such group, the group of the best first. Before it, in the first, what cannot be."""
    alarms = [f"{run.summary.alarm}." for run in comparison.runs if run.summary.alarm]
    first, *others = _verdict(comparison)
    return [" ".join([*alarms, first]), *others]


def _verdict(comparison: Comparison) -> list[str]:
    ranked = comparison.ranked
    best = ranked[0]
    if best.summary.avg_jct is None:
        return ["No policy finished a job, so there is nothing to compare."]
    distance = _bound_text(best)
    if len(ranked) == 1:
        told = f", told {best.summary.told}," if best.summary.told not in ("", NOTHING) else ""
        return [f"{best.name}{told} finishes {jobs_text(best.summary.finished)} with an average JCT of "
                f"{time_text(best.summary.avg_jct)}{distance.replace(', and', ',')}."]  # fmt: skip
    named = [replace(run.summary, policy=run.name) for run in ranked]
    groups = groups_of(named)  # ranked: the group of the best comes first
    said = []
    for number, group in enumerate(groups):
        members = [named[row] for row in group.members]
        sentence = headline(members) + (distance if number == 0 else "") + told_less(members, named)
        once = " (one run of each: no interval)" if len(members) > 1 else ""
        if len(groups) > 1 or group.told not in ("", NOTHING):
            said.append(f"Told {group.told}, {sentence}{once}.")
        else:
            said.append(f"{'It is ' if sentence.startswith('a tie: all') else ''}{sentence}{once}.")
    return said


def _bound_text(run: ReportRun) -> str:
    ratio = run.summary.avg_jct_over_bound
    if ratio is None:
        return ""
    if ratio < 1.005:
        return ": no schedule can be more than half a percent better"
    return f", and {times_text(ratio)} the lower bound that no schedule can beat"


def findings(comparison: Comparison) -> list[tuple[str, list[str]]]:
    """Per policy, best first, the sentences that explain its place; the baseline explains itself last."""
    told = [(run.name, _against_baseline(comparison, run)) for run in comparison.ranked
            if run is not comparison.baseline]  # fmt: skip
    told.append((comparison.baseline.name, _alone(comparison.baseline, len(comparison.runs) > 1)))
    return told


def _alone(run: ReportRun, is_baseline: bool) -> list[str]:
    summary = run.summary
    if summary.avg_jct is None or summary.avg_queueing is None:
        return ["It finished no job."]
    said = ["The baseline of every comparison here."] if is_baseline else []
    waiting = summary.avg_queueing / summary.avg_jct if summary.avg_jct else 0.0
    immediate = _immediate(run)
    if immediate == 1:
        said.append("No job waits.")
    else:
        said.append(f"A job waits {time_text(summary.avg_queueing)} on average, {share_text(waiting)} of its JCT; "
                    f"{share_text(immediate)} of the jobs never wait.")  # fmt: skip
    said += _placement(run, None)
    said += _preemption(run)
    return said


def _immediate(run: ReportRun) -> float:
    queueing = run.jobs.queueing[run.jobs.finished]
    return float(np.mean(queueing < 1.0)) if len(queueing) else 0.0


def _against_baseline(comparison: Comparison, run: ReportRun) -> list[str]:
    paired = comparison.paired[run.name]
    base = comparison.baseline
    if not paired.job_id:
        return [f"It has no finished job in common with {base.name}."]
    said = [_typical_job(paired, base.name)]
    said += _where_from(paired, base.name)
    said += _by_demand(comparison, paired)
    said += _tail(run, base)
    said += _placement(run, base)
    said += _preemption(run)
    return said


def _typical_job(paired: Paired, base: str) -> str:
    ratio = paired.ratio
    sooner, later = float(np.mean(ratio < 1 / 1.05)), float(np.mean(ratio > 1.05))
    middle = float(np.median(ratio))
    if not sooner and not later:
        return f"Every job finishes as under {base}, within 5 %."
    split = f"{share_text(sooner)} of the jobs gain and {share_text(later)} lose more than 5 %"
    if middle < 1 / 1.05:
        return f"Half of the jobs finish at least {times_text(1 / middle)} sooner than under {base}; {split}."
    if middle > 1.05:
        return f"Half of the jobs take at least {times_text(middle)} as long as under {base}; {split}."
    return f"The typical job finishes as under {base}; {split}."


def _where_from(paired: Paired, base: str) -> list[str]:
    """JCT is waiting plus running, so a difference of means splits exactly into the two."""
    saved = float(paired.saved.mean())
    if abs(saved) < NOTICEABLE * float(paired.base_jct.mean()):
        return []
    waiting = float((paired.base_queueing - paired.queueing).mean())
    running = saved - waiting
    verb = "saves" if saved > 0 else "costs"
    split = (f"Per job it {verb} {time_text(abs(saved))}: waiting {_up_or_down(-waiting)} "
             f"and running {_up_or_down(-running)}")  # fmt: skip
    return [f"{split} against {base}."]


def _up_or_down(change: float) -> str:
    if abs(change) < 0.5:
        return "stays the same"
    return f"{'grows' if change > 0 else 'shrinks'} by {time_text(abs(change))}"


def _by_demand(comparison: Comparison, paired: Paired) -> list[str]:
    classes = comparison.classes
    size = len(classes.names)
    if size < 2:
        return []
    index = classes.index(paired.gpus)
    count = np.bincount(index, minlength=size)
    mean, base = class_means(paired.jct, index, size), class_means(paired.base_jct, index, size)
    said = []
    total = float(paired.saved.sum())
    per_class = np.bincount(index, weights=paired.saved, minlength=size)
    if total > 0:
        most = int(np.argmax(per_class))
        part = share_text(per_class[most] / per_class[per_class > 0].sum())
        whose = gpus_text(classes.names[most])
        said.append(f"The largest part of the time saved ({part}) goes to jobs of {whose}, "
                    f"{share_text(count[most] / count.sum())} of all jobs.")  # fmt: skip
    worse = [k for k in range(size) if count[k] and base[k] > 0 and mean[k] / base[k] - 1 > NOTICEABLE]
    if len(worse) == np.count_nonzero(count):
        said.append("It is slower for every size of job.")
    elif worse:
        losses = [f"{gpus_text(classes.names[k])} (mean JCT +{100 * (mean[k] / base[k] - 1):.0f} %, "
                  f"{jobs_text(int(count[k]))})" for k in worse]  # fmt: skip
        said.append(f"It loses on jobs of {listed(losses)}.")
    elif total > 0:
        said.append("No size of job is worse off on average.")
    return said


def _tail(run: ReportRun, base: ReportRun) -> list[str]:
    mine, theirs = run.summary, base.summary
    if None in (mine.p99_jct, theirs.p99_jct, mine.avg_jct, theirs.avg_jct):
        return []
    assert mine.p99_jct and theirs.p99_jct and mine.avg_jct is not None and theirs.avg_jct is not None
    change = mine.p99_jct / theirs.p99_jct - 1
    better = mine.avg_jct < theirs.avg_jct
    if better and change > NOTICEABLE:
        return [f"The price is paid in the tail: the slowest hundredth takes {time_text(mine.p99_jct)} or more, "
                f"{100 * change:.0f} % longer than under {base.name}."]  # fmt: skip
    if not better and change < -NOTICEABLE:
        return [f"The tail is shorter: the 99th percentile falls by {-100 * change:.0f} % "
                f"to {time_text(mine.p99_jct)}."]  # fmt: skip
    return []


def _placement(run: ReportRun, base: ReportRun | None) -> list[str]:
    """How close together gangs are, and what distance costs them."""
    topology = run.topology
    shares = level_shares(run)
    said = []
    inside = float(shares[: topology.machine_level + 1].sum())
    wide = float(shares[-1]) if len(shares) - 1 > topology.machine_level else 0.0
    name = topology.levels[-1].name
    comm = run.summary.comm_share
    if base is None:
        if shares.sum():
            spread = f", {share_text(wide)} on gangs that span the {name}" if wide else ""
            said.append(f"{share_text(inside)} of the GPU time is spent inside one machine{spread}.")
        if comm:
            said.append(f"Exposed communication takes {share_text(comm)} of the GPU time.")
        return said
    theirs = level_shares(base)
    base_wide = float(theirs[-1]) if len(theirs) - 1 > topology.machine_level else 0.0
    if abs(wide - base_wide) > NOTICEABLE:
        word = "Less" if wide < base_wide else "More"
        said.append(f"{word} of the GPU time goes to gangs spread over the {name}: {share_text(wide)}, "
                    f"against {share_text(base_wide)}.")  # fmt: skip
    base_comm = base.summary.comm_share
    if comm is not None and base_comm is not None and abs(comm - base_comm) > 0.01:
        said.append(f"Exposed communication takes {share_text(comm)} of the GPU time, "
                    f"against {share_text(base_comm)}.")  # fmt: skip
    return said


def _preemption(run: ReportRun) -> list[str]:
    summary = run.summary
    moved = summary.preemptions + summary.migrations
    if not moved and not summary.lost_gpu_seconds:
        return []
    counted = ((summary.preemptions, "preemption"), (summary.migrations, "migration"))
    words = [f"{count_text(n)} {word}{'' if n == 1 else 's'}" for n, word in counted if n]
    often = f" ({moved / summary.jobs:.1f} per job)" if moved >= summary.jobs else ""
    held = inner(run.jobs.running, run.jobs.gpus)
    if summary.lost_gpu_seconds:
        share = f", {share_text(summary.lost_gpu_seconds / held)} of the GPU time held" if held else ""
        lost = f"{gpu_hours_text(summary.lost_gpu_seconds)} to checkpoints and work done again{share}"
    else:
        lost = "nothing, since preemption was free in this run"
    if not words:
        return [f"Faults cost it {lost}."]
    return [f"It makes {listed(words)}{often} and loses {lost}."]
