"""docs/speed.md: the parts between markers are written from the rows that are kept, all else is left as it is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from speed.base import POLICIES, Asked, Shown
from speed.cells import Kept, Row
from speed.claims import CLAIMS
from speed.plots import slope, svg

EVERYTHING = Asked(POLICIES, ("pure", "compiled"), 10**9)
_PART = re.compile(r"(<!-- speed: (\w+) -->\n).*?(<!-- /speed -->)", re.DOTALL)


def text_table(table: Sequence[Sequence[str]]) -> str:
    """For a terminal: columns below each other."""
    plain = [[cell.replace("`", "") for cell in line] for line in table]
    widths = [max(len(line[at]) for line in plain) for at in range(len(plain[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(wide) if at == 0 else cell.rjust(wide)
            for at, (cell, wide) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in plain
    )


def markdown(table: Sequence[Sequence[str]]) -> str:
    head, *rows = table
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *rows))


def shown(name: str, kept: Kept) -> Shown:
    claim = CLAIMS[name]
    return claim.show(kept.of(claim.cells(EVERYTHING)))


def draw(name: str, found: Shown, folder: Path) -> Path | None:
    """The plot of a claim; None where it has no two points to join."""
    if not any(len(points) > 1 for points in found.lines.values()):
        return None
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.svg"
    file.write_text(svg(CLAIMS[name].title, *found.axes, found.lines), encoding="utf-8")
    return file


def write_page(page: Path, kept: Kept) -> list[str]:
    """The names of the parts that were written."""
    written: list[str] = []

    def part(match: re.Match[str]) -> str:
        name = match[2]
        made = paper(kept) if name == "paper" else _part(name, kept, page.parent / "speed") if name in CLAIMS else None
        if made is None:
            return match[0]
        written.append(name)
        return f"{match[1]}{made}\n{match[3]}"

    text = page.read_text(encoding="utf-8")
    page.write_text(_PART.sub(part, text), encoding="utf-8")
    return written


def _part(name: str, kept: Kept, folder: Path) -> str | None:
    found = shown(name, kept)
    if len(found.table) < 2:
        return "Not measured yet."
    plot = draw(name, found, folder)
    picture = f"\n\n![{CLAIMS[name].title}](speed/{plot.name})" if plot is not None else ""
    return f"{markdown(found.table)}\n\n{found.ratio[0].upper()}{found.ratio[1:]}.{picture}"


JOBS, GPUS = 1e8, 1e6  # of the exercise on paper


def paper(kept: Kept) -> str:
    """What a hundred million jobs on a million GPUs would cost if the fitted exponents went on for ever."""
    jobs, gpus, memory = (kept.of(CLAIMS[name].cells(EVERYTHING)) for name in ("jobs", "gpus", "memory"))
    table = [
        [
            "policy",
            "build",
            "exponent over jobs",
            "over GPUs",
            "µs per job there",
            "CPU days",
            "GB at the same bytes per job",
        ]
    ]
    for policy in POLICIES:
        for build in ("pure", "compiled"):
            a, b, m = (_of(rows, policy, build) for rows in (jobs, gpus, memory))
            over_jobs = slope([(row["jobs"], _cost(row)) for row in a if row["jobs"] >= 10_000])
            over_gpus = slope([(row["gpus"], _cost(row)) for row in b if row["gpus"] >= 640])
            if over_jobs is None or over_gpus is None:
                continue
            far = max(a, key=lambda row: int(row["jobs"]))
            there = _cost(far) * (JOBS / far["jobs"]) ** over_jobs * (GPUS / far["gpus"]) ** over_gpus
            table.append(
                [
                    f"`{policy}`",
                    build,
                    f"{over_jobs:+.2f}",
                    f"{over_gpus:+.2f}",
                    f"{there * 1e6:,.0f}",
                    f"{there * JOBS / 86400:,.1f}",
                    _gigabytes(m),
                ]
            )
    return markdown(table) if len(table) > 1 else "Not measured yet: it needs the claims `jobs` and `gpus`."


def _of(rows: list[Row], policy: str, build: str) -> list[Row]:
    return [row for row in rows if (row["policy"], row["build"]) == (policy, build) and "failed" not in row]


def _cost(row: Row) -> float:
    return float(row["cpu"]) / max(1, int(row["done"]))


def _gigabytes(rows: list[Row]) -> str:
    rows = sorted(rows, key=lambda row: int(row["jobs"]))
    if len(rows) < 2:
        return "–"
    per_job = (rows[-1]["peak_mb"] - rows[0]["peak_mb"]) * 2**20 / (rows[-1]["jobs"] - rows[0]["jobs"])
    return f"{per_job * JOBS / 2**30:,.0f}"
