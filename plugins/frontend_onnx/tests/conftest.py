"""Fixtures: read a model from a ModelProto, bytes or a path, and turn a graph back into ONNX to run it."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, NodeProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from dovetail.frontend import Graph, Model, UnboundOperator
from dovetail_frontend_onnx import dovetail_read_model

Read = Callable[[Any], Model]


@pytest.fixture
def read() -> Read:
    """`read(model)` for a ModelProto, bytes or a path."""
    return lambda source: dovetail_read_model(source.SerializeToString() if isinstance(source, ModelProto) else source, {})


@pytest.fixture
def build() -> Callable[..., ModelProto]:
    """`build(nodes, inputs, outputs)`: a model whose values are float32 of unknown rank unless a value info is given."""
    return _build


def _build(nodes: Iterable[NodeProto], inputs: Iterable[Any] = "x", outputs: Iterable[Any] = "y", **more: Any) -> ModelProto:
    graph_fields = {key: more.pop(key) for key in ("initializer", "sparse_initializer") if key in more}
    graph = helper.make_graph(list(nodes), "g", [_info(i) for i in inputs], [_info(o) for o in outputs], **graph_fields)
    opsets = more.pop("opsets", {"": 17})
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    return helper.make_model(graph, opset_imports=imports, **{"ir_version": 8, **more})


def _info(item: Any) -> Any:
    return helper.make_tensor_value_info(item, onnx.TensorProto.FLOAT, None) if isinstance(item, str) else item


@pytest.fixture
def evaluate() -> Callable[..., list[Any]]:
    """`evaluate(model, feeds)`: the outputs of a ModelProto or a `Model`, by ONNX's own reference implementation."""

    def run(model: ModelProto | Model, feeds: Mapping[str, Any]) -> list[Any]:
        proto = model if isinstance(model, ModelProto) else _exported(model)
        return list(ReferenceEvaluator(proto).run(None, dict(feeds)))

    return run


def _exported(model: Model) -> ModelProto:
    imports = [helper.make_opsetid(domain, version) for domain, version in model.opsets.items()]
    return helper.make_model(_graph(model.graph), opset_imports=imports, ir_version=10)


def _graph(graph: Graph) -> onnx.GraphProto:
    nodes = []
    for node in graph.nodes:
        assert isinstance(node.op, UnboundOperator)
        proto = helper.make_node(node.op.op_type, node.inputs, node.outputs, name=node.name, domain=node.op.domain)
        proto.attribute.extend(helper.make_attribute(name, _value(value)) for name, value in node.op.raw.items())
        nodes.append(proto)
    constants = [numpy_helper.from_array(array, name) for name, array in graph.constants.items()]
    return helper.make_graph(nodes, "g", [_info(i) for i in graph.inputs], [_info(o) for o in graph.outputs], constants)


def _value(value: Any) -> Any:
    if isinstance(value, Graph):
        return _graph(value)
    return numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value


@pytest.fixture
def saved(tmp_path: Path) -> Callable[[ModelProto], Path]:
    """`saved(model)`: the path of a file with it."""

    def save(model: ModelProto) -> Path:
        path = tmp_path / "model.onnx"
        path.write_bytes(model.SerializeToString())
        return path

    return save
