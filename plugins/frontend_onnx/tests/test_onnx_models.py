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

STORED = Path(loader.DATA_DIR)
OLD = "asks for version"


@functools.cache
def _node_cases() -> dict[str, ModelProto]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # onnx's own cases overflow on purpose
        return {case.name: case.model for case in loader.load_model_tests(kind="node") if case.model is not None}


def _expected_refusal(proto: ModelProto) -> str | None:
    if any(item.version < 7 for item in proto.opset_import if not item.domain):
        return OLD
    return None


def _check(read: Any, proto: ModelProto, source: Any) -> bool:
    """True when the model was read and equals the proto; False when it was refused, rightly."""
    refusal = _expected_refusal(proto)
    if refusal is None:
        _assert_equal(read(source), proto)
        return True
    with pytest.raises(FormatError, match=refusal):
        read(source)
    return False


def test_node_cases(read: Any) -> None:
    refused = sorted(name for name, proto in _node_cases().items() if not _check(read, proto, proto))
    assert len(_node_cases()) > 1500
    assert all(_old(name) for name in refused), refused


def _old(name: str) -> bool:
    return _expected_refusal(_node_cases()[name]) == OLD


@pytest.mark.parametrize("kind", ["light", "simple", "pytorch-converted", "pytorch-operator"])
def test_stored_models(read: Any, kind: str) -> None:
    paths = sorted((STORED / kind).rglob("*.onnx"))
    assert paths
    found = [_check(read, onnx.load(path), path) for path in paths]
    assert any(found) or kind == "pytorch-converted"


def test_light_and_simple_models_are_all_new_enough(read: Any) -> None:
    for path in [*(STORED / "light").glob("*.onnx"), *(STORED / "simple").rglob("*.onnx")]:
        assert read(path).graph.nodes, path


def _assert_equal(model: Model, proto: ModelProto) -> None:
    _assert_graph(model.graph, proto.graph)
    assert model.graph.outputs == tuple(item.name for item in proto.graph.output)
    for item in proto.graph.input:
        if item.name not in model.graph.constants:
            assert model.inputs[item.name].dtype.onnx == _element(item.type)


def _assert_graph(graph: Graph, proto: onnx.GraphProto) -> None:
    assert len(graph.nodes) == len(proto.node)
    assert set(graph.constants) == {item.name for item in proto.initializer} | {s.values.name for s in proto.sparse_initializer}
    for item in proto.initializer:
        assert graph.constants[item.name].tobytes() == numpy_helper.to_array(item).tobytes()
    for node, wanted in zip(graph.nodes, proto.node, strict=True):
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
