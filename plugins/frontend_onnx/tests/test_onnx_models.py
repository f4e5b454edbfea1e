"""Every model that the onnx package brings arrives as it is, or is refused for a named reason."""

import functools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, ModelProto, helper, numpy_helper
from onnx.backend.test import loader

from dovetail.frontend import FormatError, Graph, Model, TensorType, UnboundOperator
from dovetail_frontend_onnx.opsets import CHANGED

STORED = Path(loader.DATA_DIR)


@functools.cache
def _node_cases() -> dict[str, ModelProto]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # onnx's own cases overflow on purpose
        return {case.name: case.model for case in loader.load_model_tests(kind="node") if case.model is not None}


def _is_old(proto: ModelProto) -> bool:
    return any(item.version < 7 for item in proto.opset_import if not item.domain)


def _check(read: Any, proto: ModelProto, source: Any) -> None:
    """The model arrives as it is, or converted when it is of an old operator set; tests/conformance runs these."""
    if _is_old(proto):
        assert read(source).opsets[""] >= 7
    else:
        _assert_equal(read(source), proto)


def test_node_cases(read: Any) -> None:
    assert len(_node_cases()) > 1500
    for proto in _node_cases().values():
        _check(read, proto, proto)


@pytest.mark.parametrize("kind", ["light", "simple", "pytorch-converted", "pytorch-operator"])
def test_stored_models(read: Any, kind: str) -> None:
    paths = sorted((STORED / kind).rglob("*.onnx"))
    assert paths
    for path in paths:
        _check(read, onnx.load(path), path)


def test_an_old_model_that_cannot_be_converted_is_refused(read: Any) -> None:
    x = helper.make_tensor_value_info("x", 1, [2])
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["y"], no_such_attribute=1)], "g", [x], [helper.make_tensor_value_info("y", 1, [2])]
    )
    old = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 6)], ir_version=3)
    with pytest.raises(FormatError, match=r"of operator set 6, and converting it failed(.|\n)*accepted: 7 and later"):
        read(old)


def _assert_equal(model: Model, proto: ModelProto) -> None:
    _assert_graph(model.graph, proto.graph)
    assert model.graph.outputs == tuple(item.name for item in proto.graph.output)
    for item in proto.graph.input:
        if item.name not in model.graph.constants:
            assert model.inputs[item.name].dtype.onnx == _element(item.type)


def _assert_graph(graph: Graph, proto: onnx.GraphProto) -> None:
    values = {node.output[0]: value for node in proto.node if (value := _constant(node)) is not None}
    values |= {item.name: numpy_helper.to_array(item) for item in proto.initializer}
    assert set(graph.constants) == values.keys() | {s.values.name for s in proto.sparse_initializer}
    for name, value in values.items():
        assert (graph.constants[name].dtype, graph.constants[name].shape) == (value.dtype, value.shape)
        assert graph.constants[name].tobytes() == value.tobytes()
    for node, wanted in zip(graph.nodes, [n for n in proto.node if n.output[0] not in values], strict=True):
        op = node.op
        assert isinstance(op, UnboundOperator)
        assert (op.op_type, op.domain, node.inputs, node.outputs) == (
            wanted.op_type,
            wanted.domain.removeprefix("ai.onnx") if wanted.domain == "ai.onnx" else wanted.domain,
            tuple(wanted.input),
            tuple(wanted.output),
        )
        assert set(op.raw) == {attribute.name for attribute in wanted.attribute}
        for attribute in wanted.attribute:
            _assert_attribute(op.raw[attribute.name], attribute)


def _constant(node: onnx.NodeProto) -> Any:
    """The value of a Constant node, which is a constant of the graph; None for other nodes, and for strings outside tensors."""
    if (node.op_type, node.domain) != ("Constant", ""):
        return None
    (attribute,) = node.attribute
    dtypes = {AttributeProto.FLOAT: np.float32, AttributeProto.FLOATS: np.float32}
    dtypes |= {AttributeProto.INT: np.int64, AttributeProto.INTS: np.int64}
    if attribute.type == AttributeProto.TENSOR:
        return numpy_helper.to_array(attribute.t)
    value = helper.get_attribute_value(attribute)
    return np.array(value, dtypes[attribute.type]) if attribute.type in dtypes else None


def _element(proto: onnx.TypeProto) -> int:
    """The data type of the tensors that a value holds."""
    while not proto.HasField("tensor_type"):
        proto = (proto.sequence_type if proto.HasField("sequence_type") else proto.optional_type).elem_type
    return int(proto.tensor_type.elem_type)


def _assert_attribute(value: Any, proto: AttributeProto) -> None:
    wanted = helper.get_attribute_value(proto)
    if isinstance(value, Graph):
        _assert_graph(value, wanted)
    elif isinstance(value, np.ndarray):
        if proto.type == AttributeProto.TENSOR:
            np.testing.assert_array_equal(value, numpy_helper.to_array(wanted))
        else:
            assert value.shape == tuple(wanted.dims)
    elif isinstance(value, str) and proto.type == AttributeProto.STRING:
        assert value == wanted.decode()
    elif isinstance(value, tuple):
        assert list(value) == [w.decode() if isinstance(w, bytes) else w for w in wanted]
    else:
        assert isinstance(value, TensorType) or value == wanted or proto.type == AttributeProto.TYPE_PROTO


def test_versions_of_operators_that_changed_before_set_7() -> None:
    newest = {
        schema.name: onnx.defs.get_schema(schema.name, 7).since_version
        for schema in onnx.defs.get_all_schemas_with_history()
        if not schema.domain and schema.since_version <= 7
    }
    assert {name: version for name, version in newest.items() if version > 1} == CHANGED


@pytest.mark.parametrize("version", [5, 4])
def test_labels_behind_a_tree(read: Any, version: int) -> None:
    """As scikit-learn's converter writes paths through a tree; onnx's inference ends the process for it."""
    x = helper.make_tensor_value_info("x", 1, [None, 2])
    tree = helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["t"], domain="ai.onnx.ml", n_targets=1, nodes_treeids=[0], nodes_nodeids=[0],
        nodes_featureids=[0], nodes_modes=["LEAF"], nodes_values=[0.0], nodes_truenodeids=[0], nodes_falsenodeids=[0],
        target_treeids=[0], target_nodeids=[0], target_ids=[0], target_weights=[3.0],
    )  # fmt: skip
    labels = helper.make_node(
        "LabelEncoder", ["t"], ["s"], domain="ai.onnx.ml", keys_floats=[3.0], values_strings=["a"], default_string="b"
    )
    nodes = [tree, labels, helper.make_node("Reshape", ["s", "shape"], ["y"])]
    shape = helper.make_tensor("shape", 7, [1], [-1])
    graph = helper.make_graph(nodes, "g", [x], [helper.make_tensor_value_info("y", 8, [None])], [shape])
    opsets = [helper.make_opsetid("", version), helper.make_opsetid("ai.onnx.ml", 2)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    if version == 5:
        assert read(model).opsets == {"": 7, "ai.onnx.ml": 2}
    else:
        with pytest.raises(FormatError, match=r"of operator set 4 and has a LabelEncoder(.|\n)*accepted: 7 and later"):
            read(model)
