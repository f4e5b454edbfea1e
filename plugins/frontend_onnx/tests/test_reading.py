"""A model as it should be: everything in the file arrives in the graph."""

import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dovetail.frontend import (
    DType,
    FormatError,
    Graph,
    GraphError,
    MapType,
    OptionalType,
    SequenceType,
    TensorType,
    UnboundOperator,
    UsageError,
)
from dovetail_frontend_onnx import dovetail_api, dovetail_read_model, messages
from dovetail_frontend_onnx.opsets import NEWEST_OPSET


def test_the_plugin_states_its_api() -> None:
    assert dovetail_api == "1.0"


def test_a_domain_of_a_vendor_that_is_not_imported_has_version_1(read: Any, build: Any) -> None:
    (node,) = read(build([helper.make_node("MatMulNBits", ["x"], ["y"], domain="com.acme")])).graph.nodes
    assert (node.op.domain, node.op.version) == ("com.acme", 1)
    with pytest.raises(FormatError, match=re.escape("no opset_import for the domain 'ai.onnx.ml'")):
        read(build([helper.make_node("Scaler", ["x"], ["y"], domain="ai.onnx.ml")]))


def test_options_are_refused() -> None:
    with pytest.raises(UsageError, match="'fast'"):
        dovetail_read_model(b"", {"fast": True})


def test_nodes_and_values_arrive(read: Any, build: Any) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w", ""], ["c"], name="conv", strides=[2, 2], auto_pad="SAME_UPPER"),
        helper.make_node("acme", ["c"], ["y", ""], name="own", domain="com.acme", alpha=0.5, n=3, words=["a", "é"], f=[1.0, 2.5]),
    ]
    weights = np.arange(24, dtype=np.float32).reshape(4, 3, 2, 1)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT16, ["N", 3, None, 0])
    model = read(build(nodes, [x], ["y"], initializer=[numpy_helper.from_array(weights, "w")], opsets={"": 17, "com.acme": 2}))
    conv, own = model.graph.nodes
    assert (conv.name, conv.inputs, conv.outputs, conv.origins) == ("conv", ("x", "w", ""), ("c",), ("conv",))
    assert (conv.op.domain, conv.op.op_type, conv.op.version) == ("", "Conv", 17)
    assert conv.op.raw == {"strides": (2, 2), "auto_pad": "SAME_UPPER"}
    assert (own.op.key, own.op.version, own.outputs) == ("com.acme::acme", 2, ("y", ""))
    assert own.op.raw == {"alpha": 0.5, "n": 3, "words": ("a", "é"), "f": (1.0, 2.5)}
    assert model.inputs == {"x": TensorType(DType.FLOAT16, ("N", 3, None, 0))}
    assert model.graph.types["w"] == TensorType(DType.FLOAT32, (4, 3, 2, 1))
    assert model.graph.types["w"].value is model.graph.constants["w"]
    assert not model.graph.constants["w"].flags.writeable
    np.testing.assert_array_equal(model.graph.constants["w"], weights)
    assert (model.outputs, model.opsets, model.format, model.source) == (("y",), {"": 17, "com.acme": 2}, "onnx", "<bytes>")


def test_value_info_is_read_where_nobody_else_may_know_the_types(read: Any, build: Any) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Neg", ["a"], ["b"]),
        helper.make_node("Own", ["b"], ["c", "d"], domain="com.acme"),
        helper.make_node("Add", ["c", "d"], ["y"]),
    ]
    proto = build(nodes, opsets={"": 17, "com.acme": 1})
    proto.graph.value_info.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT16, ["N", 3]) for name in "abc")
    proto.graph.value_info.add(name="d").type.opaque_type.name = "what is this?"
    types = read(proto).graph.types
    declared = TensorType(DType.FLOAT16, ("N", 3))
    assert {name: types.get(name) for name in "abcd"} == {"a": None, "b": declared, "c": declared, "d": None}


def test_input_of_unknown_rank(read: Any, build: Any) -> None:
    assert read(build([helper.make_node("Relu", ["x"], ["y"])])).inputs["x"] == TensorType(DType.FLOAT32, None)


def test_an_output_that_is_an_input_keeps_the_type_of_the_input(read: Any, build: Any) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3])
    less = helper.make_tensor_value_info("x", TensorProto.FLOAT, None)
    model = read(build([helper.make_node("Relu", ["x"], ["y"])], [x], ["y", less]))
    assert model.graph.types["x"] == TensorType(DType.FLOAT32, ("N", 3))


def test_domain_ai_onnx_is_the_empty_one(read: Any, build: Any) -> None:
    model = read(build([helper.make_node("Relu", ["x"], ["y"], domain="ai.onnx")], opsets={"ai.onnx": 13}))
    assert (model.graph.nodes[0].op.domain, model.opsets) == ("", {"": 13})


def test_nodes_without_names_get_one_from_operator_and_position(read: Any, build: Any) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Neg", ["b"], ["y"], name="Relu_1"),
    ]
    assert [n.name for n in read(build(nodes)).graph.nodes] == ["Relu_0", "Relu_1_1", "Relu_1"]


def test_duplicate_node_names_are_made_unique_and_reported(read: Any, build: Any, caplog: pytest.LogCaptureFixture) -> None:
    nodes = [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"], name="act") for i in range(3)]
    with caplog.at_level(logging.INFO):
        model = read(build(nodes, ["v0"], ["v3"]))
    assert [n.name for n in model.graph.nodes] == ["act", "act_1", "act_2"]
    assert "got one of their own: 2, such as 'act_1'" in caplog.text


def test_order_is_left_as_it_is(read: Any, build: Any) -> None:
    nodes = [helper.make_node("Neg", ["a"], ["y"], name="second"), helper.make_node("Relu", ["x"], ["a"], name="first")]
    assert [n.name for n in read(build(nodes)).graph.nodes] == ["second", "first"]


@pytest.mark.parametrize("ir_version", [3, 8])
def test_an_initializer_that_is_an_input_too_is_a_constant(read: Any, build: Any, ir_version: int) -> None:
    w = helper.make_tensor_value_info("w", TensorProto.FLOAT, ["n"])
    initializer = numpy_helper.from_array(np.ones(2, np.float32), "w")
    model = read(build([helper.make_node("Add", ["x", "w"], ["y"])], ["x", w], initializer=[initializer], ir_version=ir_version))
    assert model.graph.inputs == ("x",)
    assert list(model.graph.constants) == ["w"]


def test_a_graph_without_nodes(read: Any, build: Any) -> None:
    model = read(build([], ["x"], ["x", "w"], initializer=[numpy_helper.from_array(np.ones(2, np.float32), "w")]))
    assert (model.graph.nodes, model.outputs) == ((), ("x", "w"))


def test_attributes_of_every_kind(read: Any, build: Any) -> None:
    tensor = numpy_helper.from_array(np.array([[1, 2]], np.int64))
    values = np.array([3.0], np.float32)
    sparse = helper.make_sparse_tensor(
        helper.make_tensor("v", TensorProto.FLOAT, [1], values), helper.make_tensor("i", TensorProto.INT64, [1], [2]), [4]
    )
    tensor_type = helper.make_tensor_type_proto(TensorProto.INT8, [2, "k"])
    sequence_type = helper.make_sequence_type_proto(tensor_type)
    given = {
        "t": tensor,
        "ts": [tensor, tensor],
        "s": sparse,
        "ss": [sparse],
        "p": tensor_type,
        "ps": [sequence_type],
        "b": b"\xff\x00",
    }
    raw = read(build([helper.make_node("Any", ["x"], ["y"], **given)])).graph.nodes[0].op.raw
    np.testing.assert_array_equal(raw["t"], [[1, 2]])
    assert raw["t"].dtype == np.int64
    assert not raw["t"].flags.writeable
    assert [t.tolist() for t in raw["ts"]] == [[[1, 2]], [[1, 2]]]
    np.testing.assert_array_equal(raw["s"], np.array([0, 0, 3, 0], np.float32))
    assert raw["ss"][0].tolist() == [0, 0, 3, 0]
    assert raw["p"] == "tensor(int8)"
    assert raw["ps"] == ("seq(tensor(int8))",)
    assert raw["b"].encode("utf-8", "surrogateescape") == b"\xff\x00"


def test_attribute_values_that_proto3_writers_leave_out_are_zero(read: Any, build: Any) -> None:
    model = build([helper.make_node("Any", ["x"], ["y"])])
    for name, kind in (("i", onnx.AttributeProto.INT), ("f", onnx.AttributeProto.FLOAT), ("s", onnx.AttributeProto.STRING)):
        model.graph.node[0].attribute.add(name=name, type=kind)
    assert read(model).graph.nodes[0].op.raw == {"i": 0, "f": 0.0, "s": ""}


def test_sub_graphs_capture_values_from_outside(read: Any, build: Any) -> None:
    constant = numpy_helper.from_array(np.ones(2, np.float32), "one")
    then = helper.make_graph([helper.make_node("Add", ["x", "one"], ["t"])], "then", [], [_float("t")], [constant])
    other = helper.make_graph([helper.make_node("Neg", ["x"], ["t"])], "else", [], [_float("t")])
    node = helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    graph = read(build([node], ["x", condition])).graph
    branch = graph.nodes[0].op.raw["then_branch"]
    assert isinstance(branch, Graph)
    assert (branch.captures, branch.outputs, list(branch.constants)) == (("x",), ("t",), ["one"])
    assert branch.nodes[0].name == "If_0/then_branch/Add_0"
    assert set(graph.nodes[0].reads) == {"c", "x"}


def test_sub_graph_inputs_need_no_type(read: Any, build: Any) -> None:
    names = ("i", "cond", "v")
    body = helper.make_graph(
        [helper.make_node("Neg", ["v"], ["w"])], "b", [_untyped(n) for n in names], [_untyped("cond"), _untyped("w")]
    )
    graph = read(build([helper.make_node("Loop", ["", "", "x"], ["y"], body=body)])).graph
    inner = graph.nodes[0].op.raw["body"]
    assert (inner.inputs, dict(inner.types)) == (names, {})


def test_metadata_and_path(read: Any, build: Any, saved: Any) -> None:
    model = build([helper.make_node("Relu", ["x"], ["y"])], producer_name="maker", producer_version="1.2")
    helper.set_model_props(model, {"author": "me"})
    path = saved(model)
    found = read(path)
    assert found.source == str(path)
    assert found.metadata == {
        "author": "me",
        "onnx.ir_version": "8",
        "onnx.producer_name": "maker",
        "onnx.producer_version": "1.2",
    }


@pytest.mark.parametrize("version", [7, NEWEST_OPSET])
def test_both_ends_of_the_opset_range(read: Any, build: Any, version: int) -> None:
    assert read(build([helper.make_node("Relu", ["x"], ["y"])], opsets={"": version})).graph.nodes[0].op.version == version


@pytest.mark.parametrize("version", [0, NEWEST_OPSET + 1, 999])
def test_outside_the_opset_range(read: Any, build: Any, version: int) -> None:
    with pytest.raises(FormatError, match=rf"version {version} of the domain 'ai.onnx'(.|\n)*1 to {NEWEST_OPSET}"):
        read(build([helper.make_node("Relu", ["x"], ["y"])], opsets={"": version}))


def test_the_same_opset_import_twice_is_harmless(read: Any, build: Any) -> None:
    model = build([helper.make_node("Relu", ["x"], ["y"])])
    model.opset_import.add(domain="ai.onnx", version=17)
    assert read(model).opsets == {"": 17}


def test_unknown_protobuf_fields_are_ignored(read: Any, build: Any) -> None:
    content = build([helper.make_node("Relu", ["x"], ["y"])]).SerializeToString()
    unknown = b"\xf8\x7f\x05"  # field 2047, varint 5
    assert read(content + unknown).graph.nodes[0].op.op_type == "Relu"


def test_operators_without_attributes_are_shared(read: Any, build: Any) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    first, second = read(build(nodes)).graph.nodes
    assert isinstance(first.op, UnboundOperator)
    assert first.op is second.op


def test_a_weight_shares_memory_with_the_bytes_of_protobuf(read: Any, build: Any) -> None:
    weight = read(build([], [], ["w"], initializer=[numpy_helper.from_array(np.ones(9, np.float32), "w")])).graph.constants["w"]
    while isinstance(weight, np.ndarray):
        assert weight.base is not None
        weight = weight.base
    assert isinstance(weight, bytes)


def test_a_long_chain_needs_no_recursion(read: Any) -> None:
    graph = onnx.GraphProto(name="chain")
    graph.input.append(_float("v0"))
    for i in range(100_000):
        graph.node.add(op_type="Relu", input=[f"v{i}"], output=[f"v{i + 1}"])
    graph.output.append(_float("v100000"))
    assert len(read(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])).graph.nodes) == 100_000


def test_input_that_is_no_tensor(read: Any, build: Any) -> None:
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    sequence = helper.make_sequence_type_proto(tensor)
    names = helper.make_map_type_proto(TensorProto.STRING, tensor)
    for proto, expected in (
        (sequence, SequenceType(DType.FLOAT32, None)),
        (helper.make_optional_type_proto(tensor), OptionalType(DType.FLOAT32, None)),
        (helper.make_optional_type_proto(sequence), OptionalType(DType.FLOAT32, None)),
        (names, MapType(DType.FLOAT32, None, keys=DType.STRING)),
        (helper.make_map_type_proto(TensorProto.INT64, tensor), MapType(DType.FLOAT32, None, keys=DType.INT64)),
        (helper.make_sequence_type_proto(names), SequenceType(DType.FLOAT32, None, keys=DType.STRING)),
    ):
        given = helper.make_value_info("x", proto)
        assert read(build([helper.make_node("Identity", ["x"], ["y"])], [given])).inputs == {"x": expected}
    for proto, text in (
        (helper.make_sequence_type_proto(sequence), r"seq\(seq\(tensor\(float32\)\)\)"),
        (helper.make_map_type_proto(TensorProto.INT32, tensor), r"map\(int32, tensor\(float32\)\)"),
        (helper.make_map_type_proto(TensorProto.INT64, sequence), r"map\(int64, seq\(tensor\(float32\)\)\)"),
        (helper.make_optional_type_proto(names), r"optional\(map\(string, tensor\(float32\)\)\)"),
    ):
        given = helper.make_value_info("x", proto)
        with pytest.raises(FormatError, match=rf"input 'x': the type is {text}\n  accepted: tensors, seq"):
            read(build([helper.make_node("Identity", ["x"], ["y"])], [given]))


def test_the_default_of_an_input_must_fit_its_type(read: Any, build: Any) -> None:
    w = helper.make_tensor_value_info("w", TensorProto.FLOAT, [3])
    initializer = numpy_helper.from_array(np.ones(2, np.float32), "w")
    with pytest.raises(FormatError, match=r"input 'w' is declared as float32\[3\]; its initializer is float32\[2\]"):
        read(build([helper.make_node("Add", ["x", "w"], ["y"])], ["x", w], initializer=[initializer]))


def test_errors_of_sub_graphs_name_the_way_there(read: Any, build: Any) -> None:
    bad = helper.make_graph([helper.make_node("Neg", ["gone"], ["t"], name="inner")], "then", [], [_float("t")])
    node = helper.make_node("If", ["x"], ["y"], name="outer", then_branch=bad)
    with pytest.raises(GraphError, match=r"node 'outer' \(If\), in node 'inner' \(Neg\) of its sub-graph, reads 'gone'"):
        read(build([node]))


def test_a_model_that_onnxruntime_saved_for_one_machine_says_how_to_save_it(read: Any, build: Any) -> None:
    opsets = {"": 17, "com.microsoft.nchwc": 1}  # onnxruntime imports all of its domains, used or not
    assert read(build([helper.make_node("Neg", ["x"], ["y"])], opsets=opsets)).graph.nodes
    with pytest.raises(FormatError, match=r"node 'r' \(com.microsoft.nchwc::ReorderInput\): .*one machine") as caught:
        read(build([helper.make_node("ReorderInput", ["x"], ["y"], name="r", domain="com.microsoft.nchwc")], opsets=opsets))
    assert "ORT_ENABLE_EXTENDED" in caught.value.hint


def test_with_protobuf_in_pure_python(build: Any, saved: Any) -> None:
    """It is what installs where protobuf has no wheel, and it reports text that is not UTF-8 in another way."""
    path = saved(build([helper.make_node("Relu", ["x"], ["y"], name="@@@@")]))
    script = """
import pathlib, sys
from google.protobuf.internal import api_implementation
from dovetail_frontend_onnx import dovetail_read_model
assert api_implementation.Type() == "python"
content = pathlib.Path(sys.argv[1]).read_bytes()
print(dovetail_read_model(content, {}).graph.nodes[0])
try:
    dovetail_read_model(content.replace(b"@@@@", b"@@\\xff@"), {})
except Exception as error:
    print(type(error).__name__, error)
"""
    environment = {**os.environ, "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"}
    done = subprocess.run([sys.executable, "-c", script, str(path)], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "'@@@@' (Relu)\nFormatError <bytes>: a name in the file is not UTF-8\n"


@pytest.mark.parametrize("implementation", ["upb", "python"])
def test_the_onnx_package_is_imported_only_for_old_models(build: Any, saved: Any, implementation: str) -> None:
    relu = [helper.make_node("Relu", ["x"], ["y"])]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    old = build([helper.make_node("Add", ["x", "x"], ["y"])], [x], [y], opsets={"": 6}, ir_version=3)
    unchanged = build(relu, [x], [y], opsets={"": 6}, ir_version=3)
    script = """
import pathlib, sys
from dovetail_frontend_onnx import dovetail_read_model
assert dovetail_read_model(pathlib.Path(sys.argv[1]), {}).opsets == {"": 17}
assert dovetail_read_model(bytes.fromhex(sys.argv[3]), {}).opsets == {"": 7}
assert "onnx" not in sys.modules
assert dovetail_read_model(bytes.fromhex(sys.argv[2]), {}).opsets == {"": 13}
assert "onnx" in sys.modules
"""
    environment = {**os.environ, "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": implementation}
    # Where protobuf has no wheel with upb (3.14t), it warns and takes the other one.
    command = [sys.executable, "-W", "ignore:Selected implementation upb", "-c", script, str(saved(build(relu)))]
    command += [model.SerializeToString().hex() for model in (old, unchanged)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


WITHOUT = """
import sys
sys.modules["onnx"] = sys.modules["ml_dtypes"] = None
import dovetail
from dovetail.errors import DovetailError
for content in map(bytes.fromhex, sys.argv[1:]):
    try:
        print(dovetail.Core().compile_model(dovetail.Core().read_model(content, format="onnx"), "NUMPY")([[-1.0, 2.0]])["y"])
    except DovetailError as error:
        print(error)
"""


def test_reading_needs_neither_onnx_nor_ml_dtypes(build: Any) -> None:
    def model(dtype: int, op_type: str = "Relu", **options: Any) -> str:
        x, y = (helper.make_tensor_value_info(name, dtype, [1, 2]) for name in "xy")
        inputs = ["x"] * (2 if op_type == "Add" else 1)
        content: bytes = build([helper.make_node(op_type, inputs, ["y"])], [x], [y], **options).SerializeToString()
        return content.hex()

    old: dict[str, Any] = {"opsets": {"": 6}, "ir_version": 3}
    number = TensorProto.FLOAT
    models = [model(number), model(TensorProto.BFLOAT16), model(number, **old), model(number, "Add", **old)]
    done = subprocess.run([sys.executable, "-c", WITHOUT, *models], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "[[0. 2.]]",
        "data type bfloat16 needs the package ml_dtypes",
        "  pip install ml_dtypes",
        "[[0. 2.]]",
        "<bytes>: the model is of operator set 6, and converting it needs the package onnx",
        "  pip install dovetail-frontend-onnx[upgrade]",
    ]


def _fields(descriptors: Iterable[Any]) -> set[tuple[str, int, int]]:
    """Name, number and type of each field of the messages, nested ones too."""
    found = {(field.full_name, field.number, field.type) for one in descriptors for field in one.fields}
    nested = [inner for one in descriptors for inner in one.nested_types]
    return found | (_fields(nested) if nested else set())


def test_the_vendored_messages_are_not_older_than_the_installed_onnx() -> None:
    vendored = messages.ModelProto.DESCRIPTOR.file
    installed = onnx.ModelProto.DESCRIPTOR.file
    wanted = _fields(list(installed.message_types_by_name.values()))
    assert len(wanted) > 80
    advice = "run python plugins/frontend_onnx/vendor.py"
    assert wanted - _fields(list(vendored.message_types_by_name.values())) == set(), advice
    assert onnx.IR_VERSION <= messages.IR_VERSION, advice
    assert onnx.defs.onnx_opset_version() <= NEWEST_OPSET, advice


def _float(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, None)


def _untyped(name: str) -> onnx.ValueInfoProto:
    return onnx.ValueInfoProto(name=name)


def test_constant_nodes_are_constants(read: Any, build: Any, evaluate: Any) -> None:
    """In the graph and in its sub-graphs; as outputs too."""
    inner = helper.make_graph(
        [helper.make_node("Constant", [], ["two"], value_float=2.0), helper.make_node("Mul", ["x", "two"], ["o"])],
        "inner",
        [],
        [helper.make_tensor_value_info("o", TensorProto.FLOAT, None)],
    )
    nodes = [
        helper.make_node("Constant", [], ["k"], name="k", value=numpy_helper.from_array(np.array([1, 2], np.float32))),
        helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner),
        helper.make_node("Constant", [], ["whole"], value_ints=[3, 4]),
        helper.make_node("Relu", ["x"], ["z"]),
    ]
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    graph = (model := read(build(nodes, ["x", condition], ["k", "y", "whole", "z"]))).graph
    assert [node.name for node in graph.nodes] == ["If_1", "Relu_3"]  # names count all nodes of the file
    assert list(graph.constants) == ["k", "whole"]
    assert [graph.types[name].dtype for name in graph.constants] == [DType.FLOAT32, DType.INT64]
    assert list(graph.nodes[0].op.named_subgraphs["then_branch"].constants) == ["two"]
    k, y, whole, _ = evaluate(model, {"x": np.array([1, -1], np.float32), "c": np.array(True)})
    assert (k.tolist(), y.tolist(), whole.tolist()) == ([1, 2], [2, -2], [3, 4])


def test_sparse_values_of_constant_nodes_are_dense(read: Any, build: Any, evaluate: Any) -> None:
    values = numpy_helper.from_array(np.array([1.5, -2], np.float32))
    flat = helper.make_sparse_tensor(values, numpy_helper.from_array(np.array([1, 5])), [2, 3])
    pairs = helper.make_sparse_tensor(values, numpy_helper.from_array(np.array([[0, 1], [1, 2]])), [2, 3])
    nodes = [helper.make_node("Constant", [], [f"k{i}"], sparse_value=s) for i, s in enumerate((flat, pairs))]
    model = read(build([*nodes, helper.make_node("Add", ["k0", "k1"], ["y"])], [], ["y"]))
    assert [node.op.op_type for node in model.graph.nodes] == ["Add"]
    assert evaluate(model, {})[0].tolist() == [[0, 3, 0], [0, 0, -4]]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ([helper.make_node("Constant", [], ["k"], value_int=1)], "node 'Constant_1' (Constant) defines 'k', which is a constant"),
        ([helper.make_node("Relu", ["x"], ["k"])], "node 'Relu_1' (Relu) defines 'k', which is a constant already"),
        ([helper.make_node("Constant", [], ["x"], value_int=1)], "'x' is a graph input already and is defined again"),
    ],
)
def test_the_value_of_a_constant_node_is_defined_once(read: Any, build: Any, more: list[Any], message: str) -> None:
    first = helper.make_node("Constant", [], ["k"], value_int=2)
    with pytest.raises(GraphError, match=re.escape(message)):
        read(build([first, *more, helper.make_node("Neg", ["x"], ["y"])]))


def test_constant_nodes_that_binding_refuses_stay_nodes(read: Any, build: Any) -> None:
    wrong = helper.make_node("Constant", [], ["k"], value_int=2, value_float=1.0)
    assert [node.op.op_type for node in read(build([wrong, helper.make_node("Neg", ["x"], ["y"])])).graph.nodes] == [
        "Constant",
        "Neg",
    ]
