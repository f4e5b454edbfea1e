"""Measuring how long a call takes."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

__all__ = ["Latency", "measure", "timed"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Latency:
    """Statistics of single calls, in seconds."""

    runs: int
    mean: float
    p50: float
    p90: float
    p99: float
    fastest: float

    @staticmethod
    def of(samples: Sequence[float]) -> "Latency":
        """From at least one measured duration."""
        # Here, because plugins that add a command are imported for `dovetail --help`, which needs no NumPy.
        import numpy as np

        p50, p90, p99 = (float(value) for value in np.percentile(samples, (50, 90, 99)))
        return Latency(len(samples), float(np.mean(samples)), p50, p90, p99, float(np.min(samples)))


def timed(call: Callable[[], T]) -> tuple[float, T]:
    """Seconds and result of one call."""
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def measure(
    call: Callable[[], Any],
    *,
    runs: int | None = None,
    seconds: float | None = None,
    advance: Callable[[float], None] = lambda done: None,
) -> list[float]:
    """The duration of each call: as many as `runs`, or until `seconds` have passed, whichever is first; at least one.

    `advance` receives the part of the work that each call was, for progress bars; they add up to 1.
    """
    samples: list[float] = []
    begin = time.perf_counter()
    reported = 0.0
    while True:
        start = time.perf_counter()
        call()
        end = time.perf_counter()
        samples.append(end - start)
        share = max(len(samples) / runs if runs else 0.0, (end - begin) / seconds if seconds else 0.0)
        # Drawing costs more than many a call takes, so only visible steps are passed on.
        if share - reported >= 0.01 or share >= 1:
            advance(min(share, 1.0) - reported)
            reported = share
        if share >= 1:
            return samples
