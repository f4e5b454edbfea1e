"""Sums with transposed products, as ConvNeXt has them, and nodes that read halves and float32: no launch is left for either."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dovetail.device import DType, Graph
from dovetail.graph import GraphBuilder
from dovetail.passes.layout import assign_layouts
from dovetail_gpu_opencl.precision import lower
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.neg import Neg
from dovetail_ops_onnx.transpose import Transpose

pytestmark = pytest.mark.exhaustive(0.5)  # each test compiles programs

Open = Callable[[str], Any]
RNG = np.random.default_rng(6)
X, W, R = (RNG.standard_normal(dims).astype(np.float32) for dims in ((2, 5, 7, 6), (6, 8), (2, 8, 5, 7)))


def block(
    swapped: bool = False, perm: tuple[int, ...] = (0, 3, 1, 2), addend: tuple[int, ...] = R.shape, read: bool = False
) -> Graph:
    """A product with channels last, and the sum of it with an addend whose channels are first."""
    g = GraphBuilder()
    x, r = g.input("x", "float32", X.shape), g.input("r", "float32", addend)
    turned = g.node(Transpose(perm=perm), g.node(MatMul(), x, g.constant(W)), outputs=["turned"])
    y = g.node(Add(), *((r, turned) if swapped else (turned, r)), outputs=["y"])
    return g.graph([y, turned] if read else [y])


@pytest.mark.parametrize("swapped", [False, True])
def test_products_add_before_transposes(kind_device: Open, bench: Any, swapped: bool) -> None:
    device, graph = kind_device("GPU"), bench.typed(block(swapped))
    lowered = assign_layouts(device.lower(graph), device.configurations)
    assert [node.op.op_type for node in lowered.nodes if node.op.op_type != "Reorder"] == ["Transpose", "MatMul", "Transpose"]
    (found,) = bench.run(device, lowered, [X, R])
    expected = (X.astype(np.float64) @ W).transpose(0, 3, 1, 2) + R
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_pointwise_convolutions_do_so(kind_device: Open, bench: Any) -> None:
    """As behind the convolutions of a Conformer: channels are first there, and last for the sum."""
    x, w, r = (RNG.standard_normal(dims).astype(np.float32) for dims in ((2, 6, 9), (8, 6, 1), (2, 9, 8)))
    g = GraphBuilder()
    read, addend = g.input("x", "float32", x.shape), g.input("r", "float32", r.shape)
    turned = g.node(Transpose(perm=(0, 2, 1)), g.node(bench.op("Conv"), read, g.constant(w)))
    device, graph = kind_device("GPU"), bench.typed(g.graph([g.node(Add(), addend, turned)]))
    lowered = assign_layouts(device.lower(graph), device.configurations)
    assert [node.op.op_type for node in lowered.nodes if node.op.op_type != "Reorder"] == ["Transpose", "Conv", "Transpose"]
    (found,) = bench.run(device, lowered, [x, r])
    np.testing.assert_allclose(found, (w[:, :, 0].astype(np.float64) @ x).transpose(0, 2, 1) + r, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "changed",
    [{"perm": (0, 1, 3, 2), "addend": (2, 5, 8, 7)}, {"addend": (1, 8, 1, 1)}, {"read": True}],
    ids=["other axes", "broadcast", "read elsewhere"],
)
def test_sums_that_stay(kind_device: Open, bench: Any, changed: dict[str, Any]) -> None:
    assert {"Add", "MovedOperands"} & {node.op.op_type for node in kind_device("GPU").lower(bench.typed(block(**changed))).nodes}


def test_on_cpus_sums_stay(kind_device: Open, bench: Any) -> None:
    assert "Add" in {node.op.op_type for node in kind_device("CPU").lower(bench.typed(block())).nodes}


def test_nodes_read_halves_beside_floats(kind_device: Open, bench: Any) -> None:
    """A chain of post-ops and a product of elements take float32 as it is beside the halves of a matrix product."""
    a, w, c = (RNG.standard_normal(dims).astype(np.float32) for dims in ((2, 64), (64, 64), (2, 64)))
    g = GraphBuilder()
    product = g.node(MatMul(), g.input("a", "float32", a.shape), g.constant(w), name="product")
    scaled = g.node(Mul(), product, g.input("c", "float32", c.shape), name="scaled")
    y = g.node(Add(), g.node(Neg(), scaled), "a")
    device, graph = kind_device("GPU"), bench.typed(g.graph([y]))
    lowered = lower(graph, device._mixes, DType.FLOAT16)
    assert lowered.types[product].dtype is DType.FLOAT16
    assert [node.op.op_type for node in lowered.nodes] == ["MatMul", "Mul", "Neg", "Add"]
    (found,) = bench.run(device, lowered, [a, c])
    expected = a - (a.astype(np.float64) @ w) * c
    np.testing.assert_allclose(found, expected, rtol=4e-3, atol=4e-3 * np.abs(expected).max())
