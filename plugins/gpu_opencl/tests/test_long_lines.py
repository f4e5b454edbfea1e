"""Normalizations of few long lines, each shared by work groups on GPUs, against float64."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dovetail.device import TypedNode
from dovetail.graph import GraphBuilder
from dovetail_ops_onnx.group_normalization import GroupNormalization
from dovetail_ops_onnx.instance_normalization import InstanceNormalization
from dovetail_ops_onnx.layer_normalization import LayerNormalization
from dovetail_ops_onnx.relu import Relu

pytestmark = pytest.mark.exhaustive(0.5)  # each test compiles programs

TOLERANCE = {"float32": 5e-6, "float16": 3e-3, "float64": 1e-12}
SHAPES = [((1, 1, 40_003), "float32"), ((2, 3, 8191), "float32"), ((2, 3, 8193), "float16"), ((1, 2, 97, 101), "float64")]


def standardized(x: Any, axes: tuple[int, ...]) -> tuple[Any, Any, Any]:
    wide = x.astype(np.float64)
    mean = wide.mean(axes, keepdims=True)
    factor = 1 / np.sqrt(wide.var(axes, keepdims=True) + 1e-5)
    return (wide - mean) * factor, mean, factor


@pytest.mark.parametrize(("shape", "dtype"), SHAPES)
def test_instances(kind_device: Callable[[str], Any], bench: Any, shape: tuple[int, ...], dtype: str) -> None:
    """Far from zero, where sums of squares alone would lose the variance."""
    device, rng = kind_device("GPU"), np.random.default_rng(1)
    x = (rng.standard_normal(shape) * 3 + 50).astype(dtype)
    scale, bias = (rng.standard_normal(shape[1]).astype(dtype) for _ in "sb")
    g = GraphBuilder()
    found = g.node(InstanceNormalization(epsilon=1e-5), g.input("x", dtype, shape), g.constant(scale), g.constant(bias))
    (got,) = bench.run(device, bench.typed(g.graph([g.node(Relu(), found)])), [x])
    wide, _, _ = standardized(x, tuple(range(2, x.ndim)))
    rest = (1,) * (x.ndim - 2)
    expected = np.maximum(wide * scale.astype(np.float64).reshape(-1, *rest) + bias.astype(np.float64).reshape(-1, *rest), 0)
    np.testing.assert_allclose(got, expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("groups", [1, 2, 32])
def test_groups(kind_device: Callable[[str], Any], bench: Any, groups: int) -> None:
    rng = np.random.default_rng(groups)
    x = rng.standard_normal((2, 64, 29, 31)).astype(np.float32)
    scale, bias = (rng.standard_normal(64).astype(np.float32) for _ in "sb")
    g = GraphBuilder()
    op = GroupNormalization(num_groups=groups)
    y = g.node(op, g.input("x", "float32", x.shape), g.constant(scale), g.constant(bias))
    (got,) = bench.run(kind_device("GPU"), bench.typed(g.graph([y])), [x])
    wide, _, _ = standardized(x.reshape(2, groups, -1), (2,))
    expected = wide.reshape(x.shape) * scale.reshape(-1, 1, 1) + bias.reshape(-1, 1, 1)
    np.testing.assert_allclose(got, expected, rtol=5e-6, atol=5e-6)


def test_statistics_are_written_once(kind_device: Callable[[str], Any], bench: Any) -> None:
    """By LayerNormalization, whose mean and deviation are results too."""
    rng = np.random.default_rng(2)
    x, scale = rng.standard_normal((3, 5, 3001)).astype(np.float32), rng.standard_normal((5, 3001)).astype(np.float32)
    g = GraphBuilder()
    made = ["y", "mean", "factor"]
    g.node(LayerNormalization(axis=1), g.input("x", "float32", x.shape), g.constant(scale), outputs=made)
    found = bench.run(kind_device("GPU"), bench.typed(g.graph(made)), [x])
    wide, mean, factor = standardized(x, (1, 2))
    for got, expected in zip(found, (wide * scale, mean, factor), strict=True):
        np.testing.assert_allclose(got, expected, rtol=5e-6, atol=5e-6)


def test_few_long_lines_are_shared(kind_device: Callable[[str], Any], bench: Any) -> None:
    def launches(kind: str, lines: int, size: int) -> list[str]:
        g = GraphBuilder()
        parameters = (g.constant(np.ones(lines, np.float32)) for _ in "sb")
        graph = bench.typed(g.graph([g.node(InstanceNormalization(), g.input("x", "float32", (1, lines, size)), *parameters)]))
        node, device = TypedNode.of(graph.nodes[0], graph), kind_device(kind)
        kernel = next(kernel for kernel in device.kernels(node) if kernel.supports(node))
        return [launch.entry for launch in kernel.launches(node)]

    assert launches("GPU", 2, 10_000) == ["line_moments", "normalize_lines"]
    assert launches("GPU", 2, 1000) == launches("GPU", 4096, 10_000) == launches("CPU", 2, 10_000) == ["normalize_lines"]
