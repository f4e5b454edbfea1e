"""Decomposition: bodies replace operators, with names that show where they come from."""

from typing import Any

import numpy as np
import pytest

from dovetail.errors import OperatorError
from dovetail.graph import Graph, GraphBuilder, Node, TensorType
from dovetail.internal.copy import Copy
from dovetail.op import FLOATS, DType, Operator
from dovetail.passes import drop_dead_nodes
from dovetail.passes.constant_folding import fold_constants
from dovetail.passes.decompose import decompose, decompose_halves, decompose_quantized
from dovetail.passes.pipeline import pipeline
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.concat import Concat
from dovetail_ops_onnx.dequantize_linear import DequantizeLinear
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.split import Split


class Shifted(Operator):
    domain = "test"
    inputs = ("X: T",)
    types = {"T": FLOATS}
    by: float = 1.0

    def compose(self, g: GraphBuilder, x: str) -> str:
        t = g.type_of(x)
        assert t is not None
        y: str = g.node(Add(), x, g.constant(self.by, t.dtype), name="shift")
        return y


class Both(Operator):
    """relu(x + 2), x, and a constant: an inner result, an input and a constant as outputs."""

    domain = "test"
    inputs = ("X: T", "unused?: T")
    outputs = ("Y: T", "same: T", "two: T")
    types = {"T": FLOATS}

    def infer(self, X: TensorType, unused: TensorType | None = None) -> tuple[TensorType, ...]:
        return X, X, X.with_shape(())

    def compose(self, g: GraphBuilder, x: str, unused: str = "") -> tuple[str, ...]:
        assert unused == ""
        return g.node(Relu(), g.node(Shifted(by=2.0), x), name="relu"), x, g.constant(2.0, "float32")


class Optional(Operator):
    """x + y, or x + 1 without y."""

    domain = "test"
    inputs = ("X: T", "Y?: T")
    types = {"T": FLOATS}

    def compose(self, g: GraphBuilder, x: str, y: str = "") -> Any:
        return g.node(Add(), x, y or g.constant(1.0, "float32"))


class Wrong(Operator):
    """Compositions that break a promise, each in its own way."""

    domain = "test"
    how: str = ""

    def compose(self, g: GraphBuilder, x: str) -> Any:
        if self.how == "shape":
            return g.node(Concat(axis=0), x, x)
        if self.how == "name":
            return "nowhere"
        if self.how == "nothing":
            return ()
        if self.how == "none":
            return None
        if self.how == "undefined":
            return g.node(Relu(), "nowhere")
        g.node(Relu(), x, name="unread")
        return g.node(Relu(), x, name="read")


class Swapped(Operator):
    """The halves of x, the other way round."""

    domain = "test"

    def compose(self, g: GraphBuilder, x: str) -> Any:
        first, second = g.node(Split(axis=0, num_outputs=2), x, outputs=2)
        return g.node(Concat(axis=0), second, first)


class Drawn(Operator):
    """Stands for an operator that is never folded."""

    domain = "test"
    is_random = True

    def reference(self, X: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return X + 1


class OfDrawn(Operator):
    domain = "test"

    def compose(self, g: GraphBuilder, x: str) -> Any:
        return g.node(Drawn(), x)


class Endless(Operator):
    domain = "test"

    def compose(self, g: GraphBuilder, x: str) -> Any:
        return g.node(Relay(), x)


class Relay(Operator):
    domain = "test"

    def compose(self, g: GraphBuilder, x: str) -> Any:
        return g.node(Endless(), x)


class OfBytes(Operator):
    """Bytes as floats, plus 1."""

    domain = "test"
    inputs = ("X: uint8",)
    outputs = ("Y: float32",)

    def infer(self, X: TensorType) -> TensorType:
        return X.with_dtype(DType.FLOAT32)

    def compose(self, g: GraphBuilder, x: str) -> Any:
        return g.node(Shifted(), g.node(DequantizeLinear(axis=0), x, g.constant(0.5, "float32")))


def never(node: Node, graph: Graph) -> bool:
    return False


def typed(op: Operator, outputs: int = 1) -> Graph:
    g = GraphBuilder()
    x = g.input("x", "float32", [3])
    names = [f"out{i}" for i in range(outputs)]
    g.node(op, x, name="top", outputs=names)
    return fold_constants(g.graph(names))


def run(graph: Graph, x: np.ndarray[Any, Any]) -> list[Any]:
    """Fold the whole graph with its input as a constant."""
    done = fold_constants(graph.replace(inputs=(), constants={**graph.constants, "x": x}))
    return [done.constants[name] for name in graph.outputs]


def test_names_tell_the_way_and_nested_bodies_are_expanded() -> None:
    graph = decompose(typed(Both(), 3), never)
    assert {n.name for n in graph.nodes} >= {"top/shifted/shift", "top/relu"}
    assert {n.op.key for n in graph.nodes} == {"Add", "Relu", "dovetail::Copy"}
    assert all(n.origins == ("top",) for n in graph.nodes)


def test_every_output_has_its_value() -> None:
    x = np.array([-3, 0.5, 7], np.float32)
    relu, same, two = run(decompose(typed(Both(), 3), never), x)
    np.testing.assert_array_equal(relu, [0, 2.5, 9])
    np.testing.assert_array_equal(same, x)
    assert two == 2


def test_a_kept_operator_stays_at_any_depth() -> None:
    graph = decompose(typed(Both(), 3), lambda node, inside: node.op.op_type == "Shifted")
    assert "test::Shifted" in {n.op.key for n in graph.nodes}
    whole = typed(Both(), 3)
    assert decompose(whole, lambda node, inside: True).nodes == whole.nodes


def test_the_composition_serves_as_reference() -> None:
    np.testing.assert_array_equal(Shifted(by=0.5).reference(np.float32([1, 2]))[0], np.float32([1.5, 2.5]))


def test_a_composition_of_itself_is_an_error_that_shows_the_chain() -> None:
    with pytest.raises(OperatorError, match=r"test::Endless -> test::Relay -> test::Endless"):
        decompose(typed(Endless()), never)


def test_a_recursion_that_is_evaluated_is_an_error_too() -> None:
    with pytest.raises(OperatorError, match=r"contains itself: test::Endless -> test::Relay -> test::Endless"):
        Endless().reference(np.zeros(2, np.float32))
    np.testing.assert_array_equal(Shifted().reference(np.zeros(2, np.float32))[0], [1, 1])
    g = GraphBuilder()
    with pytest.raises(OperatorError, match="contains itself"):
        fold_constants(g.graph([g.node(Endless(), g.constant([1.0], "float32"))]))


def test_an_operator_may_stand_twice_in_a_composition_but_not_in_itself() -> None:
    g = GraphBuilder()
    y = g.node(Shifted(), g.node(Shifted(), g.input("x", "float32", [2]), name="top"), name="top")
    graph = decompose(fold_constants(g.graph([y])), never)
    assert [n.name for n in graph.nodes] == ["top/shift", "top_1/shift"]
    np.testing.assert_array_equal(run(graph, np.float32([1, 2]))[0], [3, 4])


@pytest.mark.parametrize("given", [False, True])
def test_an_input_left_out_is_an_empty_name(given: bool) -> None:
    g = GraphBuilder()
    x = g.input("x", "float32", [2])
    y = g.node(Optional(), x, *([x] if given else []))
    (result,) = run(decompose(fold_constants(g.graph([y])), never), np.float32([3, -3]))
    np.testing.assert_array_equal(result, [6, -6] if given else [4, -2])
    values = [np.float32([3]), np.float32([5]) if given else None]
    np.testing.assert_array_equal(Optional().reference(*values)[0], [8] if given else [4])


def test_names_of_the_model_are_not_taken_twice() -> None:
    g = GraphBuilder()
    x = g.input("top/shift:0", "float32", [2])
    y = g.node(Shifted(by=2.0), x, name="top")
    z = g.node(Relu(), g.node(Relu(), y, name="top/shift"), name="top_1/shift")
    graph = decompose(fold_constants(g.graph([z, y, x])), never)
    names = [n.name for n in graph.nodes]
    assert names == ["top_2/shift", "top/shift", "top_1/shift"]
    values = [*graph.inputs, *graph.constants, *(name for n in graph.nodes for name in n.outputs)]
    assert len(set(values)) == len(values)
    done = fold_constants(graph.replace(inputs=(), constants={**graph.constants, x: np.float32([-3, 1])}))
    np.testing.assert_array_equal(done.constants[graph.outputs[0]], [0, 3])
    np.testing.assert_array_equal(done.constants[graph.outputs[1]], [-1, 3])


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("shape", r"output 0: compose\(\) gives float32\[6\], infer\(\) says float32\[3\]"),
        ("name", r"compose\(\) returned 'nowhere'"),
        ("nothing", r"compose\(\) returned 0 outputs, the node has 1"),
        ("none", r"compose\(\) returned None; accepted: the name of its output, or a tuple of names"),
        ("undefined", r"node 'relu' reads 'nowhere', which is not defined"),
    ],
)
def test_a_composition_that_breaks_its_promise_is_an_error_naming_the_node(how: str, message: str) -> None:
    with pytest.raises(OperatorError, match=rf"node 'top' \(test::Wrong\).*{message}"):
        decompose(typed(Wrong(how=how)), never)


def test_inner_nodes_that_nothing_reads_are_dropped() -> None:
    assert [n.name for n in decompose(typed(Wrong()), never).nodes] == ["top/read"]


def test_an_output_left_out_is_not_computed() -> None:
    g = GraphBuilder()
    g.node(Both(), g.input("x", "float32", [3]), name="top", outputs=["", "same", ""])
    graph = drop_dead_nodes(decompose(fold_constants(g.graph(["same"])), never))
    assert [type(n.op) for n in graph.nodes] == [Copy]
    np.testing.assert_array_equal(run(graph, np.float32([1, -2, 3]))[0], [1, -2, 3])


def test_random_operators_are_run_when_a_composition_is_evaluated() -> None:
    np.testing.assert_array_equal(OfDrawn().reference(np.float32([1]))[0], [2])


def test_a_composition_may_ask_for_a_number_of_outputs() -> None:
    g = GraphBuilder()
    y = g.node(Swapped(), g.node(Swapped(), g.input("x", "float32", [4])))
    graph = decompose(fold_constants(g.graph([y])), never)
    np.testing.assert_array_equal(run(graph, np.float32([1, 2, 3, 4]))[0], [1, 2, 3, 4])
    np.testing.assert_array_equal(Swapped().reference(np.float32([1, 2, 3, 4]))[0], [3, 4, 1, 2])
    assert [n.name for n in graph.nodes] == ["swapped/split", "swapped/concat", "swapped_1/split", "swapped_1/concat"]


def test_operators_on_bytes_are_expanded_before_the_passes_on_quantized_forms() -> None:
    g = GraphBuilder()
    y = g.node(Shifted(), g.node(OfBytes(), g.input("x", "uint8", [3])))
    graph = fold_constants(g.graph([y]))
    assert [type(n.op) for n in decompose_quantized(graph, never).nodes] == [DequantizeLinear, Shifted, Shifted]
    assert decompose_quantized(graph, lambda node, scope: isinstance(node.op, OfBytes)) is graph
    order = [(one.stage, one.name) for one in pipeline()]
    assert order.index(("quantize", "decompose_quantized")) < order.index(("expand", "decompose"))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_operators_on_halves_are_expanded_unless_the_device_has_a_kernel_for_them_or_for_float32(dtype: str) -> None:
    g = GraphBuilder()
    x, z = g.input("x", dtype, [3]), g.input("z", "float32", [3])
    graph = fold_constants(g.graph([g.node(Shifted(), x), g.node(Shifted(), z)]))

    def only(kept: DType) -> Graph:
        return decompose_halves(graph, lambda node, scope: all(scope.types[n].dtype is kept for n in node.writes))

    assert [type(n.op) for n in only(DType.FLOAT64).nodes] == [Add, Shifted]
    assert only(DType(dtype)) is graph
    assert only(DType.FLOAT32) is graph
    order = [(one.stage, one.name) for one in pipeline()]
    assert order.index(("quantize", "decompose_halves")) < order.index(("expand", "decompose"))
