"""Attention each step of which is quantized, in one launch: against its formulas, and what the pass merges and leaves."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dovetail.device import Graph, TypedNode
from dovetail.graph import GraphBuilder
from dovetail_gpu_opencl.kernels import quantized_attention
from dovetail_gpu_opencl.kernels._quantized_attention import QuantizedAttention
from dovetail_ops_onnx.quantized import Quantized, QuantizedStep, Scaling
from dovetail_ops_onnx.transpose import Transpose

pytestmark = pytest.mark.exhaustive(0.3)  # each test compiles programs

Array = NDArray[Any]
Open = Callable[[str], Any]
UNSIGNED, SIGNED = np.uint8, np.int8


@pytest.fixture
def device(kind_device: Open, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A device of kind GPU; without matrix units the kernel multiplies in OpenCL C."""
    monkeypatch.setattr(quantized_attention, "has_matrix_units", lambda caps: True)
    return kind_device("GPU")


def scaling(scale: float, zero: int, dtype: Any) -> Scaling:
    return Scaling(np.asarray(scale, np.float32), np.asarray(zero, dtype))


def real(x: Array, of: Scaling) -> Array:
    found: Array = (x.astype(np.float32) - of.zero_point.astype(np.float32)) * of.scale
    return found


def stored(x: Array, to: Scaling) -> Array:
    limits = np.iinfo(to.zero_point.dtype)
    whole = np.rint(x / to.scale.astype(x.dtype)) + to.zero_point.astype(x.dtype)
    return np.clip(whole, limits.min, limits.max).astype(to.zero_point.dtype)


def quantized(bench: Any, types: tuple[Any, ...], zeros: tuple[int, ...]) -> tuple[list[Scaling], QuantizedAttention]:
    """The scales of queries, keys, scores, weights, values and the result, and the operator; scores are divided and masked."""
    scales = (0.02, 0.018, 0.05, 1 / 255, 0.015, 0.004)
    q, k, s, w, v, y = found = [scaling(*each) for each in zip(scales, zeros, types, strict=True)]
    middle = scaling(0.2, 9, UNSIGNED)
    product = QuantizedStep(bench.op("MatMul"), (0, 1))
    divided, masked = QuantizedStep(bench.op("Div"), (-1, 2)), QuantizedStep(bench.op("Add"), (-1, 3))
    scores = Quantized((product, middle, divided, masked), (q, k, None, None), s)
    weights = Quantized((QuantizedStep(bench.op("Softmax"), (0,)),), (s,), w)
    return found, QuantizedAttention(scores, weights, Quantized((product,), (w, v), y))


def expected(x: tuple[Array, Array, Array], divisor: Any, mask: Array, scales: list[Scaling]) -> tuple[Array, Array]:
    """The stored weights in float64, and the result of weights as they are given to the last step."""
    q, k, s, w, *_ = scales
    heads = [a.transpose(0, 2, 1, 3) for a in x]
    sums = (heads[0].astype(np.int64) - int(q.zero_point)) @ (heads[1].astype(np.int64) - int(k.zero_point)).swapaxes(2, 3)
    middle = scaling(0.2, 9, UNSIGNED)
    steps = real(stored(sums * (np.float64(q.scale) * np.float64(k.scale)), middle), middle) / np.float32(divisor) + mask
    scores = real(stored(steps, s), s).astype(np.float64)
    exponents = np.exp(scores - scores.max(-1, keepdims=True))
    return stored(exponents / exponents.sum(-1, keepdims=True), w), heads[2]


CASES = [  # batch, queries, keys, heads, head, head of values
    (1, 1, 1, 1, 32, 8),
    (2, 17, 17, 3, 32, 32),
    (1, 40, 131, 2, 64, 16),
    (2, 5, 300, 1, 32, 40),
]
TYPES = [
    ((UNSIGNED, UNSIGNED, UNSIGNED, UNSIGNED, UNSIGNED, UNSIGNED), (120, 131, 140, 0, 125, 128)),
    ((SIGNED, SIGNED, SIGNED, SIGNED, SIGNED, SIGNED), (0, 3, -9, -128, -4, 5)),
    ((UNSIGNED, SIGNED, SIGNED, UNSIGNED, SIGNED, UNSIGNED), (101, 0, 40, 3, 0, 99)),
]


@pytest.mark.parametrize(("types", "zeros"), TYPES, ids=["unsigned", "signed", "mixed"])
def test_in_one_launch(types: Any, zeros: Any, device: Any, bench: Any, rng: Any) -> None:
    scales, op = quantized(bench, types, zeros)
    _q, _k, _s, w, v, y = scales
    for batch, queries, keys, heads, head, v_head in CASES:
        shapes = ((batch, queries, heads, head), (batch, keys, heads, head), (batch, keys, heads, v_head))
        x = tuple(
            rng.integers(np.iinfo(t).min, np.iinfo(t).max, shape, t, endpoint=True)
            for shape, t in zip(shapes, (types[0], types[1], types[4]), strict=True)
        )
        mask, divisor = rng.standard_normal((batch, 1, 1, keys)).astype(np.float32), np.float32(3.7)
        weights, values = expected(x, divisor, mask, scales)
        graph, feeds = bench.single(op, [*x, divisor, mask], (3,))
        (got,) = bench.run(device, graph, feeds, DEBUG_BUFFERS=True)
        sums = (weights.astype(np.int64) - int(w.zero_point)) @ (values.astype(np.int64) - int(v.zero_point))
        result = stored(sums * (np.float64(w.scale) * np.float64(v.scale)), y).transpose(0, 2, 1, 3)
        # A weight next to a half may be one off, which moves a result by one or two.
        np.testing.assert_allclose(got.astype(int), result.astype(int), atol=2)
        assert (got != result).mean() < 0.03, (batch, queries, keys)
        assert got.size < 100 or len(np.unique(result)) > 20


def network(bench: Any, perm: tuple[int, ...] = (0, 2, 3, 1), read: bool = False, transposed: bool = True) -> Graph:
    """The nodes as graphs have them behind `fuse_quantized`."""
    _scales, op = quantized(bench, *TYPES[0])
    g = GraphBuilder()
    q, k, v = (g.input(name, "uint8", (2, 17, 3, 32)) for name in "qkv")
    mask, divisor = g.input("mask", "float32", (2, 1, 1, 17)), g.constant(np.float32(3.7))
    queries, keys, values = (g.node(Transpose(perm=p), x) for p, x in (((0, 2, 1, 3), q), (perm, k), ((0, 2, 1, 3), v)))
    scores = g.node(op.scores, queries, keys, divisor, mask)
    weights = g.node(op.weights, scores, outputs=["weights"])
    found = g.node(op.values, weights, values)
    y = g.node(Transpose(perm=(0, 2, 1, 3)), found) if transposed else found
    return bench.typed(g.graph([y, "weights"] if read else [y]))


def test_the_nodes_are_merged(device: Any, bench: Any, rng: Any) -> None:
    """With the same result as the composition of the merged node by references, but for what is next to a half."""
    graph = network(bench)
    lowered = device.lower(graph)
    assert [node.op.op_type for node in lowered.nodes] == ["QuantizedAttention"]
    x = [rng.integers(0, 255, (2, 17, 3, 32), np.uint8, endpoint=True) for _ in "qkv"]
    mask = rng.standard_normal((2, 1, 1, 17)).astype(np.float32)
    (got,) = bench.run(device, lowered, [*x, mask])
    (reference,) = lowered.nodes[0].op.reference(*x, np.float32(3.7), mask)
    np.testing.assert_allclose(got.astype(int), reference.astype(int), atol=2)
    assert (got != reference).mean() < 0.03


@pytest.mark.parametrize(
    "changed", [{"read": True}, {"transposed": False}, {"perm": (0, 2, 3, 1), "read": True}], ids=["read", "heads first", "both"]
)
def test_nodes_that_stay(changed: dict[str, Any], device: Any, bench: Any) -> None:
    assert "QuantizedAttention" not in {node.op.op_type for node in device.lower(network(bench, **changed)).nodes}


def test_without_matrix_units_they_stay(kind_device: Open, bench: Any) -> None:
    device = kind_device("GPU")
    if device.caps.ptx:
        pytest.skip("the device has matrix units")
    assert "QuantizedAttention" not in {node.op.op_type for node in device.lower(network(bench)).nodes}


def test_more_keys_are_left_to_separate_nodes(device: Any, bench: Any) -> None:
    _, op = quantized(bench, *TYPES[0])
    shapes = ((1, 1, 1, 32), (1, 2049, 1, 32), (1, 2049, 1, 32))
    inputs = [np.zeros(shape, np.uint8) for shape in shapes]
    graph, _ = bench.single(op, [*inputs, np.float32(1), np.zeros((1, 1, 1, 2049), np.float32)], (3,))
    assert "2049 keys; accepted: 1 to 2048" in str(device.supports(TypedNode.of(graph.nodes[0], graph)))


def test_more_scores_than_ints_count_are_left_to_separate_nodes(device: Any, bench: Any) -> None:
    """No value of the graph has them, but operands are found by their places. Arrays that broadcast take no memory."""
    _, op = quantized(bench, *TYPES[0])
    queries = np.broadcast_to(np.zeros((), np.uint8), (64, 2048, 8, 32))
    graph, _ = bench.single(op, [*[queries] * 3, np.float32(1), np.zeros((64, 1, 1, 2048), np.float32)], (3,))
    assert "2147483648 scores; accepted: 2147483647" in str(device.supports(TypedNode.of(graph.nodes[0], graph)))


def test_other_lengths_have_the_same_program(device: Any, bench: Any) -> None:
    _, op = quantized(bench, *TYPES[0])
    found = set()
    for batch, queries, keys in ((2, 17, 100), (1, 5, 31), (3, 64, 128)):
        shapes = ((batch, queries, 3, 32), (batch, keys, 3, 32), (batch, keys, 3, 32))
        inputs = [np.zeros(shape, np.uint8) for shape in shapes]
        graph, _ = bench.single(op, [*inputs, np.float32(1), np.zeros((batch, 1, 1, keys), np.float32)], (3,))
        node = TypedNode.of(graph.nodes[0], graph)
        (kernel,) = (one for one in device.kernels(node) if one.name == "quantized_attention")
        found.update(launch.source for launch in kernel.launches(node))
    assert len(found) == 1
