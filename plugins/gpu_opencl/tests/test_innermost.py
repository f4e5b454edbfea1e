"""Kernels of GPUs with channels innermost: normalization of groups, resampling of several channels at once."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dovetail.device import Binary, Eltwise, TypedNode
from dovetail.graph import Graph, GraphBuilder
from dovetail.op import NHWC
from dovetail_ops_onnx.group_normalization import GroupNormalization
from dovetail_ops_onnx.resize import Resize

pytestmark = pytest.mark.exhaustive(0.25)  # each test compiles programs

Array = np.ndarray[Any, Any]
Open = Callable[[str], Any]


def innermost(array: Array) -> Array:
    """The bytes of an array with channels innermost, under its own shape."""
    return np.ascontiguousarray(np.moveaxis(array, 1, -1)).reshape(array.shape)


def outermost(found: Array) -> Array:
    """The array of such bytes."""
    dims = found.shape
    return np.moveaxis(found.reshape(dims[0], *dims[2:], dims[1]), -1, 1)


def in_layout(graph: Graph) -> Graph:
    """The graph with values of four dimensions in that layout."""
    moved = {name: tensor.with_layout(NHWC) for name, tensor in graph.types.items() if tensor.rank == 4}
    return graph.replace(types={**graph.types, **moved})


@pytest.mark.parametrize(
    ("dims", "groups"), [((2, 24, 5, 7), 3), ((1, 8, 1, 1), 2), ((3, 5, 4, 3), 1), ((1, 16, 60, 70), 2), ((2, 8, 5, 7), 4)]
)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_groups(kind_device: Open, bench: Any, dims: tuple[int, ...], groups: int, dtype: str) -> None:
    rng, device = np.random.default_rng(2), kind_device("GPU")
    x, rest = ((2 + rng.standard_normal(dims)).astype(dtype) for _ in range(2))
    scale, shift = (rng.standard_normal(dims[1]).astype(dtype) for _ in range(2))
    g = GraphBuilder()
    chain = (Binary("add", g.input("rest", dtype, dims)), Eltwise("swish", 1.0))
    names = g.input("x", dtype, dims), g.constant(scale), g.constant(shift)
    y = g.node(GroupNormalization(num_groups=groups, epsilon=1e-3), *names, name="node", post_ops=chain)
    graph = bench.typed(g.graph([y]))
    node = TypedNode.of(graph.nodes[0], graph)
    assert [config.inputs[0] for config in device.configurations(node)][-1] == NHWC
    wide = x.astype(np.float64).reshape(dims[0], groups, -1)
    wide = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-3)
    expected = wide.reshape(dims) * scale[:, None, None] + shift[:, None, None] + rest
    expected = expected / (1 + np.exp(-expected))
    (found,) = bench.run(device, in_layout(graph), [{"x": innermost(x), "rest": innermost(rest)}[name] for name in graph.inputs])
    tolerance = {"rtol": 1e-4, "atol": 1e-5} if dtype == "float32" else {"rtol": 1e-2, "atol": 1e-2}
    np.testing.assert_allclose(outermost(found), expected, **tolerance)


@pytest.mark.parametrize(("kind", "dims", "groups"), [("GPU", (1, 8, 256, 160), 4), ("CPU", (2, 24, 5, 7), 3)])
def test_groups_that_stay_plain(kind_device: Open, bench: Any, kind: str, dims: tuple[int, ...], groups: int) -> None:
    ones = np.ones(dims[1], np.float32)
    graph, _ = bench.single(GroupNormalization(num_groups=groups), [np.ones(dims, np.float32), ones, ones])
    node = TypedNode.of(graph.nodes[0], graph)
    assert NHWC not in [config.inputs[0] for config in kind_device(kind).configurations(node)]


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(
    ("dims", "sizes"), [((2, 8, 5, 7), (2, 8, 11, 9)), ((1, 6, 4, 3), (1, 6, 2, 9)), ((2, 4, 3, 5), (2, 4, 7, 5))]
)
def test_resampling(kind_device: Open, bench: Any, dims: tuple[int, ...], sizes: tuple[int, ...], dtype: str, mode: str) -> None:
    """Eight channels are two times four, six are not; a part beyond the image is filled."""
    x = np.random.default_rng(3).standard_normal(dims).astype(dtype)
    op = Resize(mode=mode, coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=3.0)
    roi = np.float32([0, 0, -0.4, 0.1, 1, 1, 1.3, 0.9])
    graph, feeds = bench.single(op, [x, roi, np.zeros(0, np.float32), np.int64(sizes)], (1, 2, 3))
    expected = op.reference(x.astype(np.float64), roi, np.zeros(0, np.float32), np.int64(sizes))
    assert (expected == 3).any()
    name, result = graph.inputs[0], graph.outputs[0]
    moved = {n: graph.types[n].with_layout(NHWC) for n in (name, result)}
    (found,) = bench.run(kind_device("GPU"), graph.replace(types={**graph.types, **moved}), [innermost(feeds[0])])
    tolerance = {"rtol": 1e-4, "atol": 1e-5} if dtype == "float32" else {"rtol": 3e-3, "atol": 3e-3}
    np.testing.assert_allclose(outermost(found), expected, **tolerance)
