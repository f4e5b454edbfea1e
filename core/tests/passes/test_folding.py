"""Constant folding, elimination, and scales and shifts of channels folded into weights."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dovetail.errors import OperatorError, OutOfMemory, ShapeError
from dovetail.graph import DType, Graph, GraphBuilder
from dovetail.graph.rewriting import drop_dead_nodes
from dovetail.op import NUMERIC, Operator, TensorType
from dovetail.passes.constant_folding import fold_closed, fold_constants
from dovetail.passes.drop_identities import drop_identities
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.batch_normalization import BatchNormalization
from dovetail_ops_onnx.cast import Cast
from dovetail_ops_onnx.concat import Concat
from dovetail_ops_onnx.constant_of_shape import ConstantOfShape
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.conv_transpose import ConvTranspose
from dovetail_ops_onnx.div import Div
from dovetail_ops_onnx.gather import Gather
from dovetail_ops_onnx.gemm import Gemm
from dovetail_ops_onnx.identity import Identity
from dovetail_ops_onnx.layer_normalization import LayerNormalization
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.passes.fold_affine import fold_affine
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.reshape import Reshape
from dovetail_ops_onnx.shape import Shape
from dovetail_ops_onnx.split import Split
from dovetail_ops_onnx.sub import Sub
from dovetail_ops_onnx.top_k import TopK


class Wrong(Operator):
    """Says one shape and gives another."""

    domain = "test"
    inputs = ("X: T",)
    types = {"T": NUMERIC}

    def reference(self, X: Any) -> Any:
        return X[:1]


class Noise(Operator):
    domain = "test"
    inputs = ("X",)
    is_random = True

    def reference(self, X: Any) -> Any:
        return X


def evaluate(graph: Graph, **inputs: Any) -> list[Any]:
    done = fold_constants(graph.replace(inputs=(), constants={**graph.constants, **inputs}))
    return [done.constants[name] for name in graph.outputs]


def keys(graph: Graph) -> list[str]:
    return [n.op.key for n in graph.nodes]


def test_a_shape_computed_in_the_graph_is_folded() -> None:
    g = GraphBuilder()
    x = g.input("x", "float32", [2, 3, 4])
    batch = g.node(Gather(), g.node(Shape(), x), g.constant([0], "int64"))
    y = g.node(Reshape(), x, g.node(Concat(axis=0), batch, g.constant([-1], "int64")))
    graph = fold_constants(g.graph([y]))
    assert keys(graph) == ["Reshape"]
    assert graph.types[y] == TensorType.of(np.zeros((2, 12), np.float32))


def test_a_small_graph_does_not_unfold_to_much() -> None:
    g = GraphBuilder()
    y = g.node(ConstantOfShape(), g.constant([1 << 30], "int64"))
    graph = fold_constants(g.graph([y]))
    assert keys(graph) == ["ConstantOfShape"]
    with pytest.raises(OutOfMemory, match=r"'constant_of_shape' .*4,294,967,296 bytes; the limit is 1,000"):
        fold_constants(g.graph([y]), limit=1000)


def test_random_operators_are_not_folded() -> None:
    g = GraphBuilder()
    assert keys(fold_constants(g.graph([g.node(Noise(), g.constant([1.0], "float32"))]))) == ["test::Noise"]


@pytest.mark.parametrize("given", [None, (2, 3), "float32"])
def test_an_inference_that_gives_no_types_is_an_error(monkeypatch: pytest.MonkeyPatch, given: Any) -> None:
    monkeypatch.setattr(Wrong, "infer", lambda self, X: (given,))
    g = GraphBuilder()
    with pytest.raises(OperatorError, match=r"node 'odd' \(test::Wrong\).*infer\(\) gave .*\n.*a TensorType for each output"):
        fold_constants(g.graph([g.node(Wrong(), g.input("x", "float32", (2, 3)), name="odd")]))


def test_a_reference_that_contradicts_its_inference_is_an_error() -> None:
    g = GraphBuilder()
    with pytest.raises(OperatorError, match=r"'wrong' .*float32\[1\].*float32\[2\]"):
        fold_constants(g.graph([g.node(Wrong(), g.constant([1.0, 2.0], "float32"))]))


def test_errors_name_the_node_and_its_input_types() -> None:
    g = GraphBuilder()
    a, b = g.input("a", "float32", [2, 3]), g.input("b", "float32", [4])
    with pytest.raises(ShapeError, match=r"node 'sum7' \(Add\) with inputs \(float32\[2, 3\], float32\[4\]\)"):
        fold_constants(g.graph([g.node(Add(), a, b, name="sum7")]))


def test_dead_nodes_and_constants_go_but_inputs_stay() -> None:
    g = GraphBuilder()
    x, unread = g.input("x", "float32", [2]), g.input("unread", "float32", [2])
    g.node(Add(), unread, g.constant([1.0, 2.0], "float32"))
    graph = drop_dead_nodes(fold_constants(g.graph([g.node(Relu(), x)])))
    assert keys(graph) == ["Relu"]
    assert not graph.constants
    assert graph.inputs == ("x", "unread")


@pytest.mark.parametrize(("read", "left"), [("", 1), ("1", 2), ("2", 3), ("12", 3)])
@pytest.mark.parametrize("is_output", [True, False])
def test_optional_outputs_that_nothing_reads_are_left_out(read: str, left: int, is_output: bool) -> None:
    g = GraphBuilder()
    found = g.node(LayerNormalization(), g.input("x", "float32", [2, 3]), g.constant(np.ones(3, np.float32)), outputs=3)
    others = [found[int(index)] for index in read]
    graph = drop_dead_nodes(fold_constants(g.graph([found[0], *(others if is_output else (g.node(Relu(), y) for y in others))])))
    assert graph.nodes[0].outputs == found[:left]


def test_outputs_that_may_not_be_left_out_get_names() -> None:
    """Kernels write all of these; those of Split, of any number, stay left out."""
    g = GraphBuilder()
    x = g.input("x", "float32", [2, 4])
    g.node(TopK(), x, g.constant([1], "int64"), name="best", outputs=["", "places"])
    g.node(Split(axis=1, num_outputs=2), x, outputs=["", "part"])
    graph = drop_dead_nodes(fold_constants(g.graph(["places", "part"])))
    assert [node.outputs for node in graph.nodes] == [("best.Values", "places"), ("", "part")]
    assert graph.types["best.Values"] == TensorType(DType.FLOAT32, (2, 1))


def test_identities_go_and_outputs_follow() -> None:
    g = GraphBuilder()
    x = g.input("x", "float32", [2, 3])
    r = g.node(Relu(), g.node(Identity(), x))
    same = g.node(Reshape(), r, g.constant([2, 3], "int64"))
    graph = drop_identities(fold_constants(g.graph([g.node(Identity(), same), g.node(Identity(), x)])))
    assert keys(graph) == ["Relu"]
    assert graph.outputs == (r, "x")


def batch_norm(g: GraphBuilder, x: str, channels: int, rng: np.random.Generator) -> str:
    statistics = [g.constant(rng.uniform(0.5, 2, channels), "float32") for _ in range(4)]
    y: str = g.node(BatchNormalization(epsilon=1e-3), x, *statistics)
    return y


@pytest.mark.parametrize(("group", "bias"), [(1, False), (1, True), (2, True)])
def test_batch_norm_folds_into_a_convolution(rng: np.random.Generator, group: int, bias: bool) -> None:
    g = GraphBuilder()
    x = g.input("x", "float32", [2, 4, 5, 6])
    weights = [g.constant(rng.standard_normal((6, 4 // group, 3, 2)), "float32")]
    weights += [g.constant(rng.standard_normal(6), "float32")] if bias else []
    y = batch_norm(g, g.node(Conv(group=group), x, *weights), 6, rng)
    check_folded(fold_constants(g.graph([y])), "Conv", rng.standard_normal((2, 4, 5, 6)).astype(np.float32))


@pytest.mark.parametrize("group", [1, 2])
def test_batch_norm_folds_into_a_transposed_convolution(rng: np.random.Generator, group: int) -> None:
    g = GraphBuilder()
    x = g.input("x", "float32", [2, 4, 5, 6])
    w = g.constant(rng.standard_normal((4, 6 // group, 3, 2)), "float32")
    graph = fold_constants(g.graph([batch_norm(g, g.node(ConvTranspose(group=group), x, w), 6, rng)]))
    check_folded(graph, "ConvTranspose", rng.standard_normal((2, 4, 5, 6)).astype(np.float32))


@pytest.mark.parametrize("trans_b", [False, True])
def test_batch_norm_folds_into_a_gemm(rng: np.random.Generator, trans_b: bool) -> None:
    g = GraphBuilder()
    x = g.input("x", "float32", [3, 4])
    w = g.constant(rng.standard_normal((5, 4) if trans_b else (4, 5)), "float32")
    product = g.node(Gemm(alpha=0.5, beta=2.0, transB=trans_b), x, w, g.constant(rng.standard_normal(5), "float32"))
    graph = fold_constants(g.graph([batch_norm(g, product, 5, rng)]))
    check_folded(graph, "Gemm", rng.standard_normal((3, 4)).astype(np.float32))


def check_folded(graph: Graph, left: str, x: Any) -> None:
    folded = drop_dead_nodes(fold_affine(graph))
    assert keys(folded) == [left]
    assert len(folded.nodes[0].origins) == 2
    np.testing.assert_allclose(evaluate(folded, x=x)[0], evaluate(graph, x=x)[0], rtol=1e-5, atol=1e-5)


def test_batch_norm_in_training_mode_stays(rng: np.random.Generator) -> None:
    g = GraphBuilder()
    x = g.input("x", "float32", [2, 2, 3, 3])
    y = g.node(Conv(), x, g.constant(rng.standard_normal((2, 2, 1, 1)), "float32"))
    statistics = [g.constant(rng.uniform(0.5, 2, 2), "float32") for _ in range(4)]
    graph = fold_constants(g.graph([g.node(BatchNormalization(training_mode=1), y, *statistics)]))
    assert keys(fold_affine(graph)) == ["Conv", "BatchNormalization"]


def test_batch_norm_stays_when_somebody_else_reads_the_value(rng: np.random.Generator) -> None:
    g = GraphBuilder()
    x = g.input("x", "float32", [1, 2, 3, 3])
    y = g.node(Conv(), x, g.constant(rng.standard_normal((2, 2, 1, 1)), "float32"))
    graph = fold_constants(g.graph([batch_norm(g, y, 2, rng), y]))
    assert keys(fold_affine(graph)) == ["Conv", "BatchNormalization"]


CHANNELS = (1, 6, 1, 1)
AFFINE = {
    "mul": lambda g, y, c: g.node(Mul(), y, c(CHANNELS)),
    "mul by one number": lambda g, y, c: g.node(Mul(), c(()), y),
    "div": lambda g, y, c: g.node(Div(), y, c(CHANNELS[1:])),
    "add": lambda g, y, c: g.node(Add(), c(CHANNELS), y),
    "sub": lambda g, y, c: g.node(Sub(), y, c(CHANNELS)),
    "from a number": lambda g, y, c: g.node(Sub(), c((1,)), y),
    "mul and add": lambda g, y, c: g.node(Add(), g.node(Mul(), y, c(CHANNELS)), c(CHANNELS)),
    "norm and mul": lambda g, y, c: g.node(Mul(), batch_norm(g, y, 6, np.random.default_rng(4)), c(CHANNELS)),
}


@pytest.mark.parametrize("name", AFFINE)
@pytest.mark.parametrize("left", [Conv(), Conv(group=2), ConvTranspose(group=2)])
def test_scales_and_shifts_of_channels_fold(rng: np.random.Generator, name: str, left: Any) -> None:
    g = GraphBuilder()
    x = g.input("x", "float32", [2, 4, 5, 6])
    shape = (4, 6 // left.group, 3, 2) if isinstance(left, ConvTranspose) else (6, 4 // left.group, 3, 2)
    y = g.node(left, x, *(g.constant(rng.standard_normal(s), "float32") for s in (shape, (6,))))
    y = AFFINE[name](g, y, lambda dims: g.constant(rng.uniform(0.5, 2, dims), "float32"))
    graph = fold_constants(g.graph([y]))
    folded = drop_dead_nodes(fold_affine(graph))
    assert keys(folded) == [left.op_type]
    given = rng.standard_normal((2, 4, 5, 6)).astype(np.float32)
    np.testing.assert_allclose(evaluate(folded, x=given)[0], evaluate(graph, x=given)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("op", "numbers"),
    [
        (Mul(), np.ones((1, 6, 1, 5)) * 2),
        (Mul(), np.ones((2, 1, 1, 1)) * 2),
        (Mul(), np.ones((1, 1, 1, 6, 1, 1)) * 2),
        (Mul(), np.full((1, 6, 1, 1), np.inf)),
        (Div(), np.zeros((1, 6, 1, 1))),
    ],
)
def test_other_scales_stay(rng: np.random.Generator, op: Any, numbers: Any) -> None:
    g = GraphBuilder()
    x = g.input("x", "float32", [2, 4, 5, 6])
    y = g.node(Conv(), x, g.constant(rng.standard_normal((6, 4, 3, 2)), "float32"))
    graph = fold_constants(g.graph([g.node(op, y, g.constant(numbers, "float32"))]))
    assert fold_affine(graph) is graph


def test_a_number_divided_by_a_value_stays(rng: np.random.Generator) -> None:
    g = GraphBuilder()
    y = g.node(Conv(), g.input("x", "float32", [1, 2, 3, 3]), g.constant(rng.standard_normal((2, 2, 1, 1)), "float32"))
    graph = fold_constants(g.graph([g.node(Div(), g.constant(1.0, "float32"), y)]))
    assert fold_affine(graph) is graph


@pytest.mark.parametrize(
    ("dtype", "weight", "bias", "op", "number", "x", "expected"),
    [
        ("float16", 300.0, 0.0, Mul(), 1000.0, 1e-3, 300.0),
        ("float16", 1.0, 60000.0, Add(), 60000.0, -60000.0, 60000.0),
        ("float16", 1e-3, 0.0, Mul(), 1e-4, 60000.0, 6e-3),
        ("float32", 1e20, 0.0, Mul(), 1e20, 1e-10, 1e30),
        ("float32", 1e20, 0.0, Div(), 1e-20, 1e-10, 1e30),
    ],
    ids=["weight", "bias", "subnormal weight", "weight in float32", "quotient in float32"],
)
@pytest.mark.parametrize("left", [Conv(group=2), ConvTranspose(group=2), Gemm(), Gemm(transB=True)])
def test_what_the_type_of_the_weights_does_not_hold_stays(
    left: Any, dtype: str, weight: float, bias: float, op: Any, number: float, x: float, expected: float
) -> None:
    """In the first of two channels; the other one stays as it is."""
    weights = np.diag([weight, 1]) if isinstance(left, Gemm) else np.reshape([weight, 1], (2, 1, 1, 1))
    spatial = (1,) * (weights.ndim - 2)
    neutral = 0 if isinstance(op, Add) else 1
    g = GraphBuilder()
    y = g.node(left, g.input("x", dtype, (1, 2, *spatial)), g.constant(weights, dtype), g.constant([bias, 0], dtype))
    numbers = g.constant(np.reshape([number, neutral], (2, *spatial)), dtype)
    graph = fold_constants(g.graph([g.node(op, y, numbers)]))
    assert fold_affine(graph) is graph
    (given,) = evaluate(graph, x=np.full((1, 2, *spatial), x, dtype))
    np.testing.assert_allclose(given[0, 0], expected, rtol=2e-3)


@pytest.mark.parametrize(
    ("left", "dims", "channel"),
    [(Conv(), (6, 4, 3, 2), 1), (ConvTranspose(group=2), (4, 3, 3, 2), np.s_[:2, 1]), (Gemm(), (4, 6), np.s_[:, 1])],
    ids=["Conv", "ConvTranspose", "Gemm"],
)
def test_a_few_subnormal_weights_fold(rng: np.random.Generator, left: Any, dims: tuple[int, ...], channel: Any) -> None:
    """They are as exact as the greatest ones of their channels. So does a channel whose weights are subnormal before."""
    weights = rng.uniform(0.5, 1, dims).astype(np.float16)
    weights.reshape(-1)[::7] *= np.float16(1e-4)
    weights[channel] = 1e-6
    g = GraphBuilder()
    y = g.node(left, g.input("x", "float16", (2, 4, 5, 6)[: len(dims)]), g.constant(weights))
    numbers = g.constant(np.full((6, *(1,) * (len(dims) - 2)), 0.01), "float16")
    assert keys(drop_dead_nodes(fold_affine(fold_constants(g.graph([g.node(Mul(), y, numbers)]))))) == [left.op_type]


def test_what_only_folded_nodes_read_takes_no_room_from_others() -> None:
    """Weights of bytes become floats in three steps: all steps together take more room than there is, and all results fit."""
    g, count, chains = GraphBuilder(), 1 << 12, 6
    y = g.input("x", "float32", ["N", count])
    for seed in range(chains):
        weights = g.constant(np.random.default_rng(seed).integers(0, 255, count).astype(np.uint8))
        floats = g.node(Sub(), g.node(Cast(to=DType.FLOAT32), weights), g.constant(np.float32(3)))
        y = g.node(Add(), y, g.node(Mul(), floats, g.constant(np.float32(0.5))))
    graph = g.model([y]).graph
    assert keys(fold_closed(graph, 16 * count, None)) == ["Add"] * chains
    assert len(fold_closed(graph, -20 * count, None).nodes) > chains


@pytest.mark.parametrize("run", [drop_dead_nodes, drop_identities])
def test_a_graph_of_which_nothing_is_dropped_comes_back_as_it_is(run: Callable[[Graph], Graph]) -> None:
    g = GraphBuilder()
    x = g.input("x", "float32", [2, 3])
    graph = fold_constants(g.graph([g.node(Relu(), g.node(Add(), x, g.constant([1.0], "float32")))]))
    assert run(graph) is graph
    longer = graph.replace(constants={**graph.constants, "unread": np.zeros(1)})
    assert drop_dead_nodes(longer) is not longer
