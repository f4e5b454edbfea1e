"""erf, and sin, cos and tan near 0 in vectors, which kernels compute themselves, against the standard library's in float64."""

import math
import re
from typing import Any

import numpy as np
import pytest

from dovetail.device import Eltwise, TypedNode
from dovetail_gpu_opencl import post_ops
from dovetail_gpu_opencl.device import OpenCLDevice

SPECIAL = [np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-38, 0.93, -0.93, np.nextafter(np.float32(0.93), np.float32(0)), 4.0, -4.0, 1e30]


def erf(x: Any) -> Any:
    return np.vectorize(math.erf)(x.astype(np.float64))


X = np.concatenate([np.linspace(-5, 5, 8001), np.logspace(-30, 0, 301), SPECIAL]).astype(np.float32)


@pytest.mark.parametrize("kind", ["vectors", "single elements"])
@pytest.mark.parametrize("algorithm", ["erf", "gelu_erf"])
def test_erf(algorithm: str, kind: str, device: OpenCLDevice, bench: Any) -> None:
    """Within 3e-7 of erf, and of x / 2 for gelu, which adds 1 to it; NaN stays NaN; zeros keep their signs."""
    x, chain = X, [Eltwise(algorithm)]
    if kind == "vectors":
        graph, feeds = bench.single(bench.op("Mul"), [x, np.ones(1, np.float32)], post_ops=chain)
    else:  # the largest of one
        graph, feeds = bench.single(bench.op("ReduceMax", keepdims=0), [x[:, None], np.array([1])], constants=[1], post_ops=chain)
    got = bench.run(device, graph, feeds)[0]
    if algorithm == "erf":
        np.testing.assert_allclose(got, erf(x), rtol=3e-7, atol=0)
        np.testing.assert_array_equal(np.signbit(got[~np.isnan(x)]), np.signbit(x[~np.isnan(x)]))
        return
    finite = np.abs(x) < 1e6
    wide = x[finite].astype(np.float64)
    error = np.abs(got[finite] - 0.5 * wide * (1 + erf(wide / math.sqrt(2))))
    assert (error <= 3e-7 * np.abs(wide) + 1e-45).all()
    assert np.isnan(got[np.isnan(x)]).all()


def test_single_elements_call_none_of_the_driver(bench: Any) -> None:
    """PoCL's erf of one float takes 22 ns, also in a loop over elements."""
    graph, _ = bench.single(bench.op("Mul"), [X, np.ones(1, np.float32)], post_ops=[Eltwise("gelu_erf")])
    source = post_ops.epilogue(TypedNode.of(graph.nodes[-1], graph)).source
    assert re.findall(r"\berf\w*", source) == ["erf_1", "erf_1"]


@pytest.mark.parametrize("op_type", ["Sin", "Cos", "Tan"])
@pytest.mark.parametrize("large", [3.0, 1e8, np.inf])
def test_small_angles_among_large_ones(op_type: str, large: float, device: OpenCLDevice, bench: Any) -> None:
    """PoCL's functions of vectors are wrong by 2^-6 there."""
    x = np.concatenate([np.logspace(-40, 1, 2000), -np.logspace(-40, 1, 2000), [0.0, -0.0]]).astype(np.float32)
    small = np.arange(x.size) % 16 > 0
    x[~small] = large
    graph, feeds = bench.single(bench.op(op_type), [x])
    got = bench.run(device, graph, feeds)[0]
    with np.errstate(invalid="ignore"):
        want = getattr(np, op_type.lower())(x.astype(np.float64))
    np.testing.assert_allclose(got[small], want[small], rtol=1e-6, atol=1e-6)
    tiny = small & (np.abs(x) < 1e-3)
    np.testing.assert_allclose(got[tiny], want[tiny], rtol=1e-6, atol=1e-44)
    np.testing.assert_array_equal(np.signbit(got[tiny]), np.signbit(want[tiny]))
