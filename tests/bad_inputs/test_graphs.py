"""Graphs that are none, and names that try to escape."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, NodeProto, TensorProto, helper, numpy_helper


def _relu(source: str, target: str, name: str = "") -> NodeProto:
    return helper.make_node("Relu", [source], [target], name=name)


def _weight(name: str) -> TensorProto:
    return numpy_helper.from_array(np.ones(3, np.float32), name)


def test_cycle(refuse: Any, build: Any) -> None:
    nodes = [
        helper.make_node("Add", ["x", "c"], ["a"], name="n1"),
        _relu("a", "b", "n2"),
        _relu("b", "c", "n3"),
        _relu("c", "y", "n4"),
    ]
    refuse(build(nodes), "the graph has a cycle", "'n1' (Add)", "'n2' (Relu)", "'n3' (Relu)")


def test_self_loop(refuse: Any, build: Any) -> None:
    refuse(build([helper.make_node("Add", ["x", "y"], ["y"], name="knot")]), "cycle: 'knot' (Add) -> 'knot' (Add)")


def test_cycle_through_a_sub_graph(refuse: Any, build: Any) -> None:
    branch = helper.make_graph([_relu("y", "t")], "b", [], [_float("t")])
    node = helper.make_node("If", ["c"], ["y"], name="choice", then_branch=branch, else_branch=branch)
    refuse(build([node], [helper.make_tensor_value_info("c", TensorProto.BOOL, [])]), "cycle: 'choice' (If)")


def test_cycle_in_a_sub_graph(refuse: Any, build: Any) -> None:
    branch = helper.make_graph([_relu("b", "a", "r1"), _relu("a", "b", "r2")], "b", [], [_float("b")])
    node = helper.make_node("If", ["c"], ["y"], name="choice", then_branch=branch, else_branch=branch)
    error = refuse(build([node], [helper.make_tensor_value_info("c", TensorProto.BOOL, [])]))
    assert "in a sub-graph of node 'choice' (If): the graph has a cycle" in str(error)


def test_cycle_of_many_nodes_is_shown_shortened(refuse: Any, build: Any) -> None:
    nodes = [_relu(f"v{i}", f"v{(i + 1) % 5000}") for i in range(5000)]
    refuse(build(nodes, [], ["v0"]), "cycle", "(5000 nodes)")


def test_unsorted_nodes_run(core: Any, build: Any) -> None:
    nodes = [helper.make_node("Neg", ["b"], ["y"]), _relu("a", "b"), helper.make_node("Abs", ["x"], ["a"])]
    compiled = core.compile_model(core.read_model(build(nodes).SerializeToString(), format="onnx"), "NUMPY")
    np.testing.assert_array_equal(compiled({"x": np.array([-1, 0, 2], np.float32)})["y"], np.array([-1, 0, -2], np.float32))


def test_input_never_defined(refuse: Any, build: Any) -> None:
    refuse(build([_relu("nowhere", "y", "act")]), "node 'act' (Relu) reads 'nowhere', which nothing defines")


def test_many_undefined_inputs(refuse: Any, build: Any) -> None:
    nodes = [_relu("x", f"a{i}") for i in range(20_000)] + [_relu(f"gone{i}", f"b{i}") for i in range(20_000)]
    refuse(build(nodes, outputs=["a0"]), "reads 'gone0'")


def test_output_defined_twice(refuse: Any, build: Any) -> None:
    refuse(
        build([_relu("x", "y", "n1"), _relu("x", "y", "n2")]), "'n2' (Relu) defines 'y'", "an output of node 'n1' (Relu) already"
    )


def test_node_writes_an_input(refuse: Any, build: Any) -> None:
    refuse(build([_relu("x", "x", "n")], outputs=["x"]), "'n' (Relu) defines 'x', which is a graph input already")


def test_node_writes_an_initializer(refuse: Any, build: Any) -> None:
    refuse(build([_relu("x", "w", "n")], outputs=["w"], initializer=[_weight("w")]), "defines 'w', which is a constant already")


def test_node_writes_one_name_twice(refuse: Any, build: Any) -> None:
    refuse(build([helper.make_node("Split", ["x"], ["y", "y"], name="n")]), "'n' (Split) defines 'y'")


def test_input_twice(refuse: Any, build: Any) -> None:
    refuse(build([_relu("x", "y")], ["x", "x"]), "'x' is a graph input already")


def test_duplicate_initializer(refuse: Any, build: Any) -> None:
    refuse(build([_relu("w", "y")], initializer=[_weight("w"), _weight("w")]), "initializer 'w' is there twice")


def test_initializer_that_shadows_an_input_is_its_value(core: Any, build: Any) -> None:
    model = build([helper.make_node("Add", ["x", "w"], ["y"])], ["x", "w"], initializer=[_weight("w")])
    compiled = core.compile_model(core.read_model(model.SerializeToString(), format="onnx"), "NUMPY")
    np.testing.assert_array_equal(compiled({"x": np.zeros(3, np.float32)})["y"], np.ones(3, np.float32))


def test_initializer_that_shadows_an_input_of_another_type(refuse: Any, build: Any) -> None:
    other = helper.make_tensor_value_info("w", TensorProto.INT64, [3])
    refuse(build([_relu("w", "y")], [other], initializer=[_weight("w")]), "declared as int64[3]; its initializer is float32[3]")


def test_duplicate_node_names_run(core: Any, build: Any) -> None:
    model = build([_relu("x", "a", "act"), _relu("a", "y", "act")])
    compiled = core.compile_model(core.read_model(model.SerializeToString(), format="onnx"), "NUMPY")
    np.testing.assert_array_equal(compiled({"x": np.array([-1, 0, 2], np.float32)})["y"], np.array([0, 0, 2], np.float32))


EMPTY_NAMES = {
    "input": (lambda m: m.graph.input.add(name="", type=m.graph.input[0].type), "a graph input has no name"),
    "initializer": (lambda m: m.graph.initializer.append(_weight("")), "the name is empty"),
    "graph output": (lambda m: m.graph.output.add(name=""), "a graph output has no name"),
    "operator": (lambda m: m.graph.node.add(name="n", output=["z"]), "node 'n' (): op_type is missing"),
    "attribute": (lambda m: m.graph.node[0].attribute.add(type=AttributeProto.INT), "an attribute has no name"),
}


@pytest.mark.parametrize("name", EMPTY_NAMES)
def test_empty_names(refuse: Any, build: Any, name: str) -> None:
    change, words = EMPTY_NAMES[name]
    model = build([_relu("x", "y")])
    change(model)
    refuse(model, words)


def test_graph_output_not_produced(refuse: Any, build: Any) -> None:
    refuse(build([_relu("x", "y")], outputs=["y", "z"]), "the graph output 'z' is not produced by any node")


def test_no_outputs(refuse: Any, build: Any) -> None:
    refuse(build([_relu("x", "y")], outputs=[]), "the graph has no outputs")


def test_zero_nodes_run(core: Any, build: Any) -> None:
    model = core.read_model(build([], outputs=["x", "w"], initializer=[_weight("w")]).SerializeToString(), format="onnx")
    result = core.compile_model(model, "NUMPY")({"x": np.array([1, 2, 3], np.float32)})
    np.testing.assert_array_equal(result["x"], np.array([1, 2, 3], np.float32))
    np.testing.assert_array_equal(result["w"], np.ones(3, np.float32))


@pytest.mark.parametrize("op_type", ["If", "Loop"])
def test_sub_graphs_nested_ten_thousand_deep(refuse: Any, good: bytes, op_type: str) -> None:
    """Written as bytes, because protobuf's own serializer gives up earlier."""
    graph = _field(1, _field(4, op_type.encode()))
    for _ in range(10_000):
        attribute = _field(1, b"body") + _field(6, graph) + b"\xa0\x01\x05"  # type = GRAPH
        graph = _field(1, _field(4, op_type.encode()) + _field(5, attribute))
    refuse(good + _field(7, graph), "nested more than about 30 deep")


def _field(number: int, content: bytes) -> bytes:
    """A length-delimited field of a protobuf message."""
    length, size = b"", len(content)
    while size > 0x7F:
        length += bytes([size & 0x7F | 0x80])
        size >>= 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + content


def test_thirty_nested_sub_graphs_are_read(core: Any, build: Any) -> None:
    graph = helper.make_graph([_relu("x", "t")], "g", [], [_float("t")])
    for _ in range(30):
        graph = helper.make_graph([helper.make_node("If", ["c"], ["t"], then_branch=graph)], "g", [], [_float("t")])
    model = build(list(graph.node), ["x", helper.make_tensor_value_info("c", TensorProto.BOOL, [])], ["t"])
    assert core.read_model(model.SerializeToString(), format="onnx").outputs == ("t",)


@pytest.mark.parametrize("deep", [False, True])
def test_recursive_function(refuse: Any, build: Any, deep: bool) -> None:
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    call = helper.make_node("loop", ["X"], ["Y"], domain="f")
    if deep:
        call = helper.make_node("If", ["X"], ["Y"], then_branch=helper.make_graph([call], "g", [], [_float("Y")]))
    function = helper.make_function("f", "loop", ["X"], ["Y"], [call], imports)
    model = build([helper.make_node("loop", ["x"], ["y"], name="start", domain="f")], functions=[function], opset_imports=imports)
    refuse(model, "node 'start' (f::loop)", "the local function calls itself: f::loop -> f::loop")


def test_duplicate_function(refuse: Any, build: Any) -> None:
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    functions = [helper.make_function("f", "g", ["X"], ["Y"], [_relu("X", "Y")], imports) for _ in range(2)]
    refuse(build([_relu("x", "y")], functions=functions, opset_imports=imports), "the local function f::g is there twice")


NAMES = {
    "newline": "two\nlines",
    "NUL": "nul\0inside",
    "ANSI": "\x1b[2J\x1b[31mred",
    "bidirectional": "a\u202etxt",
    "separators": "../../etc/passwd",
    "dunder": "__class__",
    "quote": 'it\'s "quoted"',
    "braces": "{0.__class__} %s %(x)s",
    "long": "n" * 1_000_000,
    "wide": "名前 🙂",
}


@pytest.mark.parametrize("kind", NAMES)
def test_names_in_messages_are_escaped_and_short(refuse: Any, build: Any, kind: str) -> None:
    name = NAMES[kind]
    refuse(build([_relu(name, name + "y", name), _relu(name + "y", name, name + "2")], [], [name]), "cycle")
    refuse(build([_relu("gone" + name, "y", name)]), "which nothing defines")
    refuse(build([helper.make_node(name, ["gone"], ["y"], name=name)]), "which nothing defines")
    refuse(build([_relu("x", "y")], outputs=[name]), "is not produced")
    refuse(build([_relu("x", "y")], initializer=[TensorProto(name=name, data_type=99)]), "unknown number 99")
    refuse(build([helper.make_node("Relu", ["x"], ["y"], name=name, domain=f"ai.onnx.{name}")]), "no opset_import")
    node = helper.make_node("Relu", ["x"], ["y"], name=name)
    node.attribute.add(name=name)
    refuse(build([node]), "no type that is known")
    model = build([_relu("x", "y")])
    model.opset_import.add(domain=name, version=-1)
    refuse(model, "version -1")


@pytest.mark.parametrize("kind", NAMES)
def test_odd_names_are_only_names(core: Any, build: Any, kind: str) -> None:
    name = NAMES[kind]
    model = core.read_model(build([_relu(name, name + "y", name)], [name], [name + "y"]).SerializeToString(), format="onnx")
    result = core.compile_model(model, "NUMPY")({name: np.array([-1, 0, 2], np.float32)})
    np.testing.assert_array_equal(result[name + "y"], np.array([0, 0, 2], np.float32))


NOT_UTF8 = {
    "node name": lambda model, text: setattr(model.graph.node[0], "name", text),
    "input": lambda model, text: model.graph.node[0].input.append(text),
    "operator": lambda model, text: setattr(model.graph.node[0], "op_type", text),
    "domain": lambda model, text: setattr(model.graph.node[0], "domain", text),
    "attribute": lambda model, text: model.graph.node[0].attribute.add(name=text, type=AttributeProto.INT),
    "graph input": lambda model, text: setattr(model.graph.input[0], "name", text),
    "graph output": lambda model, text: setattr(model.graph.output[0], "name", text),
    "initializer": lambda model, text: model.graph.initializer.append(_weight(text)),
    "opset domain": lambda model, text: model.opset_import.add(domain=text, version=1),
    "dimension": lambda model, text: setattr(model.graph.input[0].type.tensor_type.shape.dim[0], "dim_param", text),
    "function": lambda model, text: model.functions.add(name=text),
}


@pytest.mark.parametrize("where", NOT_UTF8)
def test_names_that_are_not_utf8(refuse: Any, build: Any, where: str) -> None:
    model = build([_relu("x", "y")])
    NOT_UTF8[where](model, "@@@@@@@@")
    refuse(model.SerializeToString().replace(b"@@@@@@@@", b"@@\xff\xfe\x1b@@@"), "UTF-8")


def test_graph_name_and_metadata_that_are_not_utf8_do_not_matter(core: Any, build: Any) -> None:
    model = build([_relu("x", "y")], producer_name="@@@@@@@@")
    model.graph.name = "@@@@@@@@"
    found = core.read_model(model.SerializeToString().replace(b"@@@@@@@@", b"@@\xff\xfe\x1b@@@"), format="onnx")
    assert found.outputs == ("y",)


@pytest.mark.parametrize(
    ("attribute", "words"),
    [
        (AttributeProto(name="a"), "no type that is known"),
        (AttributeProto(name="a", type=AttributeProto.TENSOR), "type is TENSOR, but its value is missing"),
        (AttributeProto(name="a", type=AttributeProto.GRAPH), "type is GRAPH, but its value is missing"),
        (AttributeProto(name="a", type=AttributeProto.INT, f=1.0), "type is INT, but there is a value in 'f'"),
        (AttributeProto(name="a", type=AttributeProto.INT, i=1, ints=[1]), "type is INT, but there is a value in 'ints'"),
        (AttributeProto(name="a", type=AttributeProto.INT, ref_attr_name="b"), "of a function, outside of one"),
        (AttributeProto(name="a", type=AttributeProto.TENSOR, t=TensorProto(data_type=1, dims=[2])), "float_data has 0 values"),
    ],
)
def test_attributes(refuse: Any, build: Any, attribute: AttributeProto, words: str) -> None:
    node = _relu("x", "y", "act")
    node.attribute.append(attribute)
    refuse(build([node]), "node 'act' (Relu): attribute 'a'", words)


def test_attribute_twice(refuse: Any, build: Any) -> None:
    node = helper.make_node("LeakyRelu", ["x"], ["y"], name="act", alpha=0.5)
    node.attribute.append(node.attribute[0])
    refuse(build([node]), "node 'act' (LeakyRelu)", "the attribute 'alpha' is there twice")


@pytest.mark.parametrize(
    ("dims", "words"),
    [
        ([2**62, 2**62], "more than 2^63 - 1 elements"),
        ([1] * 65, "rank 65; accepted: at most 64"),
    ],
)
def test_input_shapes(refuse: Any, build: Any, dims: list[int], words: str) -> None:
    refuse(build([_relu("x", "y")], [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)]), "input 'x'", words)


@pytest.mark.parametrize("dim", [-1, -(2**40)])
def test_a_negative_dimension_is_open(core: Any, build: Any, dim: int) -> None:
    model = core.read_model(
        build([_relu("x", "y")], [helper.make_tensor_value_info("x", TensorProto.FLOAT, [dim, 2])]).SerializeToString(), "onnx"
    )
    assert model.inputs["x"].shape == (None, 2)
    assert core.compile_model(model, "NUMPY")([np.full((3, 2), -1, np.float32)])["y"].tolist() == [[0, 0]] * 3


@pytest.mark.parametrize("number", [0, -5, 99])
def test_input_types(refuse: Any, build: Any, number: int) -> None:
    model = build([_relu("x", "y")])
    model.graph.input[0].type.tensor_type.elem_type = number
    refuse(model, "input 'x'", f"unknown number {number}")


def test_input_without_a_type(refuse: Any, build: Any) -> None:
    refuse(build([_relu("x", "y")], [onnx.ValueInfoProto(name="x")]), "input 'x'", "no type")


def _float(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, [3])
