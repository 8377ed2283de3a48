"""Metrics of a live service for Prometheus: base units, stable names, never a label per job (docs/metrics-live.md)."""

from __future__ import annotations

import time
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from dally.core.errors import UserError

disable_created_metrics()  # type: ignore[no-untyped-call]  # when a counter was made is of no use to anybody
WAITS = (1, 10, 60, 300, 900, 3600, 4 * 3600, 12 * 3600, 86400, 3 * 86400, 7 * 86400)
SHORT = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10)
STATES = ("held", "waiting", "starting", "running", "yielding", "lost", "finished", "failed", "cancelled", "rejected")
GPU_STATES = ("free", "used", "drained", "down")

# name, labels, what it is: read from the service when Prometheus asks
GAUGES: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("dally_jobs", ("state",), "Jobs the service knows, by state."),
    ("dally_gpus", ("state",), "GPUs, by what they are: free, used, drained (no new jobs), down."),
    ("dally_leader", (), "1 where this service is in charge, 0 where it stands by."),
)


class LiveMetrics:
    """What is counted as it happens. One per service; tests make as many as they like."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        add: dict[str, Any] = {"registry": self.registry}
        self._waits = Histogram("dally_queue_wait_seconds", "Seconds from submission to a job's first start.",
                                buckets=WAITS, **add)  # fmt: skip
        self._decisions = Histogram("dally_decision_seconds", "Seconds one decision of the policy took.",
                                    buckets=SHORT, **add)  # fmt: skip
        self._instants = Counter("dally_journal_instants_total", "Instants written to the journal.", **add)
        self._submitted = Counter("dally_jobs_submitted_total", "Jobs that were accepted.", **add)
        self._requests = Counter("dally_http_requests_total", "Requests answered, by route and status.",
                                 ("method", "route", "status"), **add)  # fmt: skip
        self._latency = Histogram("dally_http_request_seconds", "Seconds until a request was answered, by route.",
                                  ("method", "route"), buckets=SHORT, **add)  # fmt: skip

    def waited(self, seconds: float) -> None:
        """A job starts for the first time, so long after it was submitted."""
        self._waits.observe(max(0.0, seconds))

    def decided(self, seconds: float) -> None:
        self._decisions.observe(seconds)

    def wrote(self, instants: int = 1) -> None:
        self._instants.inc(instants)

    def submitted(self, jobs: int) -> None:
        self._submitted.inc(jobs)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        self._requests.labels(method, route, str(status)).inc()
        self._latency.labels(method, route).observe(seconds)

    def watch(self, counts: Callable[[], Mapping[str, int]], nodes: Callable[[], Iterable[dict[str, Any]]],
              health: Callable[[], dict[str, Any]]) -> None:  # fmt: skip
        """Read the gauges from this service whenever somebody asks."""
        self.registry.register(_FromService(counts, nodes, health))

    def text(self) -> bytes:
        return generate_latest(self.registry)


class _FromService(Collector):
    """Gauges as they are now. Counting jobs costs as much as listing them, so a count lasts for a second."""

    def __init__(self, counts: Callable[[], Mapping[str, int]], nodes: Callable[[], Iterable[dict[str, Any]]],
                 health: Callable[[], dict[str, Any]]) -> None:  # fmt: skip
        self._counts, self._nodes, self._health = counts, nodes, health
        self._at, self._found = float("-inf"), list[GaugeMetricFamily]()

    def describe(self) -> Iterable[GaugeMetricFamily]:
        return [GaugeMetricFamily(name, about, labels=labels) for name, labels, about in GAUGES]

    def collect(self) -> Iterable[GaugeMetricFamily]:
        if time.monotonic() - self._at >= 1.0:
            self._found, self._at = self._read(), time.monotonic()
        return self._found

    def _read(self) -> list[GaugeMetricFamily]:
        jobs, gpus, leader = (GaugeMetricFamily(name, about, labels=labels) for name, labels, about in GAUGES)
        try:
            states, nodes = self._counts(), self._nodes()
        except UserError:  # stands by, or cannot reach its store: it knows nothing to count
            leader.add_metric((), 0.0)
            return [leader]
        for state in STATES:
            jobs.add_metric((state,), states.get(state, 0))
        kinds: Tally[str] = Tally()
        for node in nodes:
            used = node["gpus"] - node["free"]
            kinds["used"] += used
            kinds[{"up": "free"}.get(node["state"], node["state"])] += node["free"]
        for kind in GPU_STATES:
            gpus.add_metric((kind,), kinds[kind])
        leader.add_metric((), 1.0 if self._health().get("leader") else 0.0)
        return [jobs, gpus, leader]


def reference() -> str:
    """The table of docs/metrics-live.md."""
    rows: list[tuple[str, str, tuple[str, ...], str]]
    rows = [(name, "gauge", labels, about) for name, labels, about in GAUGES]
    for family in LiveMetrics().registry.collect():
        name = family.name + ("_total" if family.type == "counter" else "")
        rows.append((name, family.type, _labels(name), family.documentation))
    lines = ["| metric | kind | labels | what it is |", "|---|---|---|---|"]
    lines += [f"| `{name}` | {kind} | {', '.join(labels) or '–'} | {about} |"
              for name, kind, labels, about in sorted(rows)]  # fmt: skip
    return "\n".join(lines)


def _labels(name: str) -> tuple[str, ...]:
    return {"dally_http_requests_total": ("method", "route", "status"),
            "dally_http_request_seconds": ("method", "route")}.get(name, ())  # fmt: skip
