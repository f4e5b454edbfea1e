"""Counts and durations of the requests to each version of a model, as the statistics extension of the protocol has them."""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

__all__ = ["PHASES", "Duration", "Statistics", "Stopwatch"]

PHASES = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output")
"""Whole requests by outcome; then the parts of requests that succeeded: waiting, reading inputs, running, writing outputs."""


@dataclass(frozen=True)
class Duration:
    """How often something happened, and the sum of its durations in nanoseconds."""

    count: int = 0
    ns: int = 0

    def plus(self, ns: int) -> "Duration":
        """With one more."""
        return Duration(self.count + 1, self.ns + ns)


@dataclass
class Stopwatch:
    """The rows and phases of one request. `lap(phase)` ends a phase that began where the one before ended."""

    rows: int = 0
    laps: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.started = self.last = time.perf_counter_ns()

    def lap(self, phase: str) -> None:
        """End a phase."""
        now = time.perf_counter_ns()
        self.laps[phase] = now - self.last
        self.last = now


class Statistics:
    """The statistics of one version of a model. They outlive reloads. May be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._durations: Mapping[str, Duration] = dict.fromkeys(PHASES, Duration())
        self._rows = 0
        self._last_ms = 0

    @contextmanager
    def request(self) -> Iterator[Stopwatch]:
        """Count what is in the `with` statement as a request, which sets its `rows`; as one that failed, if it raises."""
        watch = Stopwatch()
        try:
            yield watch
        except BaseException:
            self._add({"fail": time.perf_counter_ns() - watch.started}, 0)
            raise
        self._add({**watch.laps, "success": time.perf_counter_ns() - watch.started}, watch.rows)

    def _add(self, phases: Mapping[str, int], rows: int) -> None:
        with self._lock:
            self._durations = {
                name: duration.plus(phases[name]) if name in phases else duration for name, duration in self._durations.items()
            }
            self._rows += rows
            self._last_ms = time.time_ns() // 1_000_000

    @property
    def durations(self) -> Mapping[str, Duration]:
        """The durations by phase; never changed afterwards."""
        return self._durations

    @property
    def rows(self) -> int:
        """The rows of all requests that succeeded."""
        return self._rows

    def describe(self, name: str, version: str) -> dict[str, Any]:
        """As the protocol lists them. An execution is a run of the model for one request, before a device makes batches."""
        with self._lock:
            durations, rows, last = self._durations, self._rows, self._last_ms
        return {
            "name": name,
            "version": version,
            "last_inference": last,
            "inference_count": rows,
            "execution_count": durations["success"].count,
            "inference_stats": {phase: {"count": d.count, "ns": d.ns} for phase, d in durations.items()},
            "batch_stats": [],
        }
