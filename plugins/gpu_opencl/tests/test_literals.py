"""Numbers in kernel sources: exact, and whole behind a minus."""

from typing import Any

import numpy as np
import pytest

from dovetail import PostOps
from dovetail_gpu_opencl.source import literal


@pytest.mark.parametrize(
    ("value", "c_type", "wanted"),
    [
        (0.5, "float", "0.5f"),
        (-0.5, "double", "(-0.5)"),
        (-0.0, "float", "(-0.0f)"),
        (0.0, "double", "0.0"),
        (-1e300, "float", "(float)-INFINITY"),
        (np.nan, "double", "(double)NAN"),
    ],
)
def test_a_literal(value: float, c_type: str, wanted: str) -> None:
    assert literal(value, c_type) == wanted


@pytest.mark.parametrize("alpha", [-0.0, -1.0, np.inf])
def test_an_attribute_behind_a_minus(alpha: float, device: Any, bench: Any) -> None:
    x = np.array([[-2.0, -0.5, 1.0, 3.0]], np.float32)
    graph, feeds = bench.single(bench.op("Neg"), [-x], post_ops=PostOps().append_eltwise("swish", alpha))
    (got,) = bench.run(device, graph, feeds)
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(got, x / (1 + np.exp(-np.float64(alpha) * x)), rtol=1e-6)
