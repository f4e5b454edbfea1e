"""Local functions are expanded: the same results as ONNX's reference, names in the caller's scope, and no recursion."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import FunctionProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from dovetail.frontend import FormatError, GraphError

OPSETS = {"": 17, "f": 1}
X = np.array([[-1.5, 2.0, 0.25]], np.float32)


def _function(name: str, nodes: Sequence[NodeProto], inputs: str = "X", outputs: str = "Y", **more: Any) -> FunctionProto:
    opsets = [helper.make_opsetid(d, v) for d, v in more.pop("opsets", OPSETS).items()]
    return helper.make_function("f", name, inputs.split(), outputs.split(), nodes, opsets, **more)


def _node(op_type: str, inputs: str, outputs: str, **attributes: Any) -> NodeProto:
    return helper.make_node(op_type, [i.replace("_", "") for i in inputs.split()], outputs.split(), **attributes)


def _call(function: str, inputs: str, outputs: str, **attributes: Any) -> NodeProto:
    return _node(function, inputs, outputs, domain="f", **attributes)


def _reference(name: str, to: str, kind: int) -> onnx.AttributeProto:
    return onnx.AttributeProto(name=name, ref_attr_name=to, type=kind)


@pytest.fixture
def model(build: Callable[..., ModelProto]) -> Callable[..., ModelProto]:
    def make(nodes: Sequence[NodeProto], *functions: FunctionProto, **more: Any) -> ModelProto:
        return build(nodes, functions=functions, opsets=OPSETS, **{"ir_version": 10, **more})

    return make


def test_names_are_in_the_scope_of_the_call(read: Any, model: Any) -> None:
    inner = _function("inner", [_node("Neg", "X", "t"), _node("Abs", "t", "Y", name="abs")])
    outer = _function("outer", [_call("inner", "X", "m", name="i"), _call("inner", "m", "Y")])
    graph = read(model([_call("outer", "x", "y", name="o")], outer, inner)).graph
    assert [(n.name, n.op.op_type, n.inputs, n.outputs) for n in graph.nodes] == [
        ("o/i/Neg_0", "Neg", ("x",), ("o/i/t",)),
        ("o/i/abs", "Abs", ("o/i/t",), ("o/m",)),
        ("o/inner_1/Neg_0", "Neg", ("o/m",), ("o/inner_1/t",)),
        ("o/inner_1/abs", "Abs", ("o/inner_1/t",), ("y",)),
    ]


def test_a_scoped_name_that_is_taken_is_avoided(read: Any, model: Any, evaluate: Any) -> None:
    function = _function("f", [_node("Neg", "X", "t"), _node("Abs", "t", "Y")])
    proto = model([_node("Exp", "x", "c/t"), _call("f", "c/t", "z", name="c"), _node("Add", "z c/t", "y")], function)
    found = read(proto)
    assert found.graph.nodes[1].outputs == ("c_1/t",)
    np.testing.assert_allclose(evaluate(found, {"x": X})[0], 2 * np.exp(X))


def test_versions_are_those_of_the_function(read: Any, model: Any) -> None:
    function = _function("f", [_node("Neg", "X", "Y")], opsets={"": 13})
    graph = read(model([_call("f", "x", "a"), _node("Abs", "a", "y")], function)).graph
    assert [n.op.version for n in graph.nodes] == [13, 17]


def test_attributes_come_from_call_default_or_nowhere(read: Any, model: Any) -> None:
    leaky, elu, softmax = _node("LeakyRelu", "X", "a"), _node("Elu", "a", "b"), _node("Softmax", "b", "Y")
    leaky.attribute.append(_reference("alpha", "slope", onnx.AttributeProto.FLOAT))
    elu.attribute.append(_reference("alpha", "alpha", onnx.AttributeProto.FLOAT))
    softmax.attribute.append(_reference("axis", "axis", onnx.AttributeProto.INT))
    function = _function(
        "f",
        [leaky, elu, softmax],
        attributes=["slope", "axis"],
        attribute_protos=[helper.make_attribute("alpha", 0.5)],
    )
    nodes = read(model([_call("f", "x", "y", slope=0.125)], function)).graph.nodes
    assert [n.op.raw for n in nodes] == [{"alpha": 0.125}, {"alpha": 0.5}, {}]


def test_attributes_pass_through_nested_calls(read: Any, model: Any) -> None:
    leaky = _node("LeakyRelu", "X", "Y")
    leaky.attribute.append(_reference("alpha", "a", onnx.AttributeProto.FLOAT))
    inner = _function("inner", [leaky], attributes=["a"])
    call = _call("inner", "X", "Y")
    call.attribute.append(_reference("a", "b", onnx.AttributeProto.FLOAT))
    outer = _function("outer", [call], attributes=["b"])
    graph = read(model([_call("outer", "x", "m", b=0.25), _call("outer", "m", "y")], outer, inner)).graph
    assert [n.op.raw for n in graph.nodes] == [{"alpha": 0.25}, {}]


def test_inputs_and_outputs_left_out(read: Any, model: Any) -> None:
    function = _function("f", [_node("Clip", "X LO HI", "Y"), _node("Neg", "X", "Z")], "X LO HI", "Y Z")
    first, second = read(model([_call("f", "x _ x", "y")], function)).graph.nodes
    assert first.inputs == ("x", "", "x")
    assert second.outputs == ("f_0/Z",)


def test_an_output_that_is_an_input(read: Any, model: Any, evaluate: Any) -> None:
    function = _function("f", [_node("Neg", "X", "Y")], "X", "X Y")
    found = read(model([_call("f", "x", "a b"), _node("Add", "a b", "y")], function))
    np.testing.assert_array_equal(evaluate(found, {"x": X})[0], np.zeros_like(X))


def test_constants_are_read_once_for_all_calls(read: Any, model: Any) -> None:
    value = numpy_helper.from_array(np.ones(5, np.float32))
    function = _function("f", [_node("Constant", "", "c", value=value), _node("Add", "X c", "Y")])
    graph = read(model([_call("f", "x", "a"), _call("f", "a", "y")], function)).graph
    assert graph.constants["f_0/c"] is graph.constants["f_1/c"]


def _branch(node: NodeProto, output: str) -> onnx.GraphProto:
    return helper.make_graph([node], "g", [], [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)])


@pytest.mark.parametrize("flag", [True, False])
def test_sub_graphs_in_functions_and_calls_in_sub_graphs(read: Any, model: Any, evaluate: Any, flag: bool) -> None:
    scale = _node("LeakyRelu", "X", "t")
    scale.attribute.append(_reference("alpha", "alpha", onnx.AttributeProto.FLOAT))
    inner = _function("inner", [_node("Neg", "X", "t"), _node("Exp", "t", "Y")])
    choice = _node("If", "C", "Y", then_branch=_branch(scale, "t"), else_branch=_branch(_call("inner", "X", "t"), "t"))
    choose = _function("choose", [choice], "C X", "Y", attributes=["alpha"])
    outer = _node(
        "If",
        "c",
        "y",
        then_branch=_branch(_call("choose", "c x", "z", alpha=0.5), "z"),
        else_branch=_branch(_call("choose", "c x", "z", alpha=2.0), "z"),
    )
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    proto = model([outer], choose, inner, inputs=["x", condition])
    feeds = {"x": X, "c": np.array(flag)}
    expected = np.where(X < 0, X * 0.5, X) if flag else np.exp(-X)
    np.testing.assert_allclose(evaluate(read(proto), feeds)[0], expected, rtol=1e-6)


def test_a_sub_graph_that_hides_a_name_of_its_function(read: Any, model: Any, evaluate: Any) -> None:
    """Both inputs are the same value outside, and the branch makes a `Y` of its own."""
    branch = helper.make_graph(
        [_node("Exp", "X", "Z"), _node("Add", "Z X", "t")], "g", [], [helper.make_tensor_value_info("t", TensorProto.FLOAT, None)]
    )
    function = _function("f", [_node("If", "C", "Y", then_branch=branch, else_branch=branch)], "C X Z", "Y")
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    found = read(model([_call("f", "c x x", "y")], function, inputs=["x", condition]))
    np.testing.assert_allclose(evaluate(found, {"x": X, "c": np.array(True)})[0], np.exp(X) + X)


def test_overloads(read: Any, model: Any) -> None:
    first, second = _function("f", [_node("Neg", "X", "Y")]), _function("f", [_node("Abs", "X", "Y")], overload="other")
    graph = read(model([_call("f", "x", "a", overload="other"), _call("f", "a", "y")], first, second)).graph
    assert [n.op.op_type for n in graph.nodes] == ["Abs", "Neg"]


def test_functions_may_stand_for_standard_operators(read: Any, model: Any) -> None:
    function = _function("Relu", [_node("Abs", "X", "Y")])
    function.domain = "ai.onnx"
    assert [n.op.op_type for n in read(model([_node("Relu", "x", "y")], function)).graph.nodes] == ["Abs"]


# --- refused -----------------------------------------------------------------------------------------------------------


def _identity(name: str, **more: Any) -> FunctionProto:
    return _function(name, [_node("Identity", "X", "Y")], **more)


def _referring(kind: int) -> NodeProto:
    node = _node("LeakyRelu", "X", "Y")
    node.attribute.append(_reference("alpha", "a", kind))
    return node


REFUSED: dict[str, tuple[list[NodeProto], list[FunctionProto], str]] = {
    "itself": ([_call("a", "x", "y")], [_function("a", [_call("a", "X", "Y")])], r"calls itself: f::a -> f::a"),
    "each other": (
        [_call("a", "x", "y", name="start")],
        [_function("a", [_call("b", "X", "Y")]), _function("b", [_call("c", "X", "Y")]), _function("c", [_call("b", "X", "Y")])],
        r"node 'start' \(f::a\): .*calls itself: f::b -> f::c -> f::b",
    ),
    "itself in a sub-graph": (
        [_call("a", "x", "y")],
        [_function("a", [_node("If", "X", "Y", then_branch=_branch(_call("a", "X", "t"), "t"))])],
        r"calls itself: f::a -> f::a",
    ),
    "twice": ([_call("a", "x", "y")], [_identity("a"), _identity("a")], "local function f::a is there twice"),
    "unnamed": ([_call("a", "x", "y")], [_identity("")], "local function of domain 'f' has no name"),
    "attribute": ([_call("a", "x", "y", k=1)], [_identity("a")], "local function has no attribute 'k'"),
    "kind": (
        [_call("a", "x", "y", a=1)],
        [_function("a", [_referring(1)], attributes=["a"])],
        "is FLOAT, but the function's 'a' is INT",
    ),
    "inputs": (
        [_call("a", "x x", "y")],
        [_identity("a")],
        r"2 inputs and 1 outputs\n  accepted by the local function: at most 1 and 1",
    ),
    "outputs": ([_call("a", "x", "y z")], [_identity("a")], "1 inputs and 2 outputs"),
    "same inputs": (
        [_call("a", "x", "y")],
        [_function("a", [_node("Neg", "X", "Y")], "X X")],
        "inputs have an empty name, or one twice",
    ),
    "not closed": ([_call("a", "x", "y")], [_function("a", [_node("Neg", "x", "Y")])], "reads 'a_0/x', which nothing defines"),
    "output missing": ([_call("a", "x", "y")], [_function("a", [_node("Neg", "X", "T")])], "'y' is not produced"),
    "writes its input": (
        [_call("a", "x", "y")],
        [_function("a", [_node("Neg", "X", "X")])],
        "defines 'x', which is a graph input already",
    ),
    "no import": (
        [_call("a", "x", "y")],
        [_identity("a", opsets={"other": 1})],
        "local function f::a has no opset_import for the domain 'ai.onnx'",
    ),
    "reference outside": ([_referring(1)], [_identity("a")], "of a function, outside of one"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(read: Any, model: Any, name: str) -> None:
    nodes, functions, message = REFUSED[name]
    with pytest.raises((FormatError, GraphError), match=message):
        read(model(nodes, *functions))


def test_a_long_chain_of_functions_is_refused_before_python_runs_out_of_stack(read: Any, model: Any) -> None:
    chain = [_function(f"f{i}", [_call(f"f{i + 1}", "X", "Y")]) for i in range(10_000)]
    with pytest.raises(GraphError, match="nested more than 64 deep"):
        read(model([_call("f0", "x", "y")], *chain, _identity("f10000")))


def test_sixty_functions_in_each_other_are_fine(read: Any, model: Any) -> None:
    chain = [_function(f"f{i}", [_call(f"f{i + 1}", "X", "Y")]) for i in range(60)]
    assert len(read(model([_call("f0", "x", "y")], *chain, _identity("f60"))).graph.nodes) == 1


@pytest.mark.parametrize("leaf", [[_node("Identity", "X", "Y")], []], ids=["nodes", "only calls"])
def test_functions_that_double_and_double_are_refused(read: Any, model: Any, leaf: list[NodeProto]) -> None:
    doubling = [_function(f"f{i}", [_call(f"f{i + 1}", "X", "a"), _call(f"f{i + 1}", "a", "Y")]) for i in range(50)]
    with pytest.raises(FormatError, match=r"local functions are expanded: the model of .* bytes would grow by more than"):
        read(model([_call("f0", "x", "y")], *doubling, _function("f50", leaf)))


def test_long_names_cannot_multiply(read: Any, model: Any) -> None:
    body = [_node("Neg", "X", f"v{i}") for i in range(2000)]
    with pytest.raises(FormatError, match="would grow by more than"):
        read(model([_call("f", "x", "y", name="n" * 1_000_000)], _function("f", body)))
