"""Statistics of measured calls."""

import pytest

from dovetail.cli._timing import Latency


def test_latency_statistics() -> None:
    latency = Latency.of([0.001 * i for i in range(1, 101)])
    assert (latency.runs, latency.fastest) == (100, 0.001)
    assert latency.mean == pytest.approx(0.0505)
    assert (latency.p50, latency.p90, latency.p99) == pytest.approx((0.0505, 0.0901, 0.09901))
