"""Integer weights split into int8 parts: the same whole numbers, and every other graph unchanged."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.graph import Graph, GraphBuilder, Node
from dovetail.passes.constant_folding import fold_constants
from dovetail_ops_onnx.conv_integer import ConvInteger
from dovetail_ops_onnx.mat_mul_integer import MatMulInteger
from dovetail_ops_onnx.passes.split_integer_weights import split_integer_weights


def takes_int8(node: Node, graph: Graph) -> bool:
    """As a device whose kernels take weights without zero points."""
    return len(node.inputs) < 4 and graph.types[node.inputs[1]].dtype.name == "INT8"


def split(graph: Graph, keeps: Any = takes_int8, memory: dict[str, Any] | None = None) -> Graph:
    return split_integer_weights(graph, SimpleNamespace(keeps=keeps, memory={} if memory is None else memory))  # type: ignore[arg-type]


def typed(op: Any, x: Any, w: Any, zeros: Any, *, has_zero: bool = True) -> Graph:
    g = GraphBuilder()
    y = g.node(
        op,
        g.input("x", str(x.dtype), x.shape),
        g.constant(w),
        g.input("z", str(x.dtype), ()) if has_zero else "",
        g.constant(zeros),
    )
    return fold_constants(g.graph([y]))


RNG = np.random.default_rng(31)
X = RNG.integers(0, 256, (2, 6, 9, 7)).astype(np.uint8)
A = RNG.integers(0, 256, (5, 33)).astype(np.uint8)
MAPS = RNG.integers(0, 256, (8, 3, 3, 3)).astype(np.uint8)
MATRIX = RNG.integers(0, 256, (33, 4)).astype(np.uint8)
CONV = ConvInteger(group=2, pads=(1, 1, 1, 1))


@pytest.mark.parametrize(
    ("weights", "zeros", "parts"),
    [
        (MAPS, np.uint8(117), 2),
        (MAPS, np.uint8(255), 2),
        (MAPS, RNG.integers(1, 256, 8).astype(np.uint8), 2),
        (np.clip(MAPS, 100, 200), np.uint8(90), 1),
        (MAPS.view(np.int8), np.int8(-3), 2),
    ],
    ids=["one", "largest", "of channels", "small", "int8"],
)
def test_convolutions(weights: Any, zeros: Any, parts: int) -> None:
    graph = typed(CONV, X, weights, np.asarray(zeros))
    found = split(graph)
    products = [node for node in found.nodes if node.op.op_type == "ConvInteger"]
    assert [node.op.op_type for node in found.nodes] == ["ConvInteger"] * parts + ["Add"] * (parts - 1)
    own = np.asarray(zeros, np.int64).reshape(-1, 1, 1, 1)
    total = sum(found.constants[node.inputs[1]].astype(np.int64) for node in products)
    np.testing.assert_array_equal(total, weights.astype(np.int64) - own)
    assert found.nodes[-1].outputs == graph.nodes[-1].outputs


def test_products_with_zero_points_of_columns() -> None:
    zeros = np.array([1, 90, 128, 255], np.uint8)
    found = split(typed(MatMulInteger(), A, MATRIX, zeros, has_zero=False))
    one, other, _ = found.nodes
    total = sum(found.constants[node.inputs[1]].astype(np.int64) for node in (one, other))
    np.testing.assert_array_equal(total, MATRIX.astype(np.int64) - zeros)


@pytest.mark.parametrize("keeps", [lambda node, graph: True, lambda node, graph: False], ids=["has a kernel", "has none"])
def test_what_stays(keeps: Any) -> None:
    graph = typed(CONV, X, MAPS, np.array(7, np.uint8))
    assert split(graph, keeps) is graph


def test_differences_beyond_two_parts_stay() -> None:
    graph = typed(CONV, X, np.where(MAPS > 200, 255, MAPS).astype(np.uint8), np.array(0, np.uint8))
    assert split(graph) is graph


def test_plans_share_the_new_weights() -> None:
    graph, memory = typed(CONV, X, MAPS, np.array(7, np.uint8)), {}  # type: ignore[var-annotated]
    first, second = (split(graph, memory=memory) for _ in range(2))
    assert len(first.constants) > len(graph.constants)
    assert all(first.constants[name] is second.constants[name] for name in first.constants)


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN", "OPENCL"])
@pytest.mark.parametrize(
    "zeros", [np.array(117, np.uint8), np.array([1, 90, 128, 255, 3, 7, 0, 200], np.uint8)], ids=["one", "channels"]
)
def test_devices(device: str, zeros: Any) -> None:
    """Sums of whole numbers, beyond 2^24 too, which oneDNN rounds to float32."""
    if device not in {one.type for one in dovetail.Core(config=False).devices}:
        pytest.skip(f"{device} is not installed")
    x = RNG.integers(0, 256, (1, 200, 9, 7)).astype(np.uint8)
    x[:, :, 2:6] = 255
    w = RNG.integers(0, 256, (8, 200, 3, 3)).astype(np.uint8)
    w[:4] = 255
    g = GraphBuilder()
    y = g.node(ConvInteger(), g.input("x", "uint8", x.shape), g.constant(w), g.input("z", "uint8", ()), g.constant(zeros))
    (found,) = dovetail.Core(config=False).compile_model(g.model([y]), device)({"x": x, "z": np.array(3, np.uint8)}).values()
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.int64) - 3, (3, 3), (2, 3))
    want = np.einsum("nchwij,ocij->nohw", windows, w.astype(np.int64) - zeros.astype(np.int64).reshape(-1, 1, 1, 1))
    assert want.max() > 1 << 24
    np.testing.assert_allclose(found, want, rtol=2.0**-23 if device == "ONEDNN" else 0)
