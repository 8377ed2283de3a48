"""One self-contained HTML page: the template filled with text, styles, figures as JSON, and what draws them."""

from __future__ import annotations

import json
from html import escape
from importlib.resources import files
from typing import Any

from dally.version import __version__


def asset(name: str) -> str:
    return (files("dally.report") / "assets" / name).read_text(encoding="utf-8")


def render_page(*, title: str, subject: str, verdict: str, lead: str, sections: str, footer: str,
                figures: dict[str, Any]) -> str:  # fmt: skip
    """`title` and `subject` are text; the other parts are markup already."""
    slots = {
        "version": escape(__version__),
        "title": escape(title),
        "css": asset("report.css"),
        "subject": escape(subject),
        "verdict": verdict,
        "lead": lead,
        "sections": sections,
        "footer": footer,
        # Inside a script element only "</" and "<!--" could end or change it.
        "figures": json.dumps(figures, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        .replace("<", "\\u003c"),
        "script": "\n".join(asset(name) for name in ("charts.js", "gantt.js", "report.js")),
    }
    parts = asset("report.html").split("{{")
    # Filled piece by piece: text that was filled in is never searched for slots again.
    filled = [parts[0]]
    for part in parts[1:]:
        name, rest = part.split("}}", 1)
        filled += [slots[name], rest]
    return "".join(filled)


def made_by() -> str:
    return f"<p>Made by dally {escape(__version__)}. This page needs no network.</p>"
