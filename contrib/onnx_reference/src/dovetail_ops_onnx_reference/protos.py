"""Attributes as ONNX writes them, sub-graphs included."""

from typing import Any

import numpy as np
import onnx
from onnx import helper

import dovetail_ops_onnx as ops
from dovetail.op import AbstractOperator, DType, Graph, OperatorError

__all__ = ["attribute_proto"]

_EMPTY = {"tuple[int, ...]": "INTS", "tuple[float, ...]": "FLOATS", "tuple[str, ...]": "STRINGS"}


def attribute_proto(name: str, value: Any, type_name: str) -> onnx.AttributeProto:
    """The attribute; `type_name` is what its `AttributeSpec` says. Raises `OperatorError` for a graph that cannot be written."""
    if isinstance(value, Graph):
        return helper.make_attribute(name, _graph_proto(name, value))
    if isinstance(value, np.ndarray):
        return helper.make_attribute(name, onnx.numpy_helper.from_array(value, name))
    if isinstance(value, tuple) and not value:
        return helper.make_attribute(name, value, attr_type=onnx.AttributeProto.AttributeType.Value(_EMPTY[type_name]))
    number = value.onnx if isinstance(value, DType) else int(value) if isinstance(value, bool) else value
    return helper.make_attribute(name, number)


def _graph_proto(name: str, graph: Graph) -> onnx.GraphProto:
    if graph.captures:
        raise OperatorError(
            f"attribute {name!r} is a graph that reads {graph.captures[0]!r} from outside; accepted: one that does not"
        )
    nodes = [_node_proto(name, node.op, node.inputs, node.outputs) for node in graph.nodes]
    inputs = [onnx.ValueInfoProto(name=value) for value in graph.inputs]
    constants = [onnx.numpy_helper.from_array(array, value) for value, array in graph.constants.items()]
    return helper.make_graph(nodes, graph.name, inputs, [onnx.ValueInfoProto(name=v) for v in graph.outputs], constants)


def _node_proto(name: str, op: AbstractOperator, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> onnx.NodeProto:
    if op.domain or ops.find(op.op_type, onnx.defs.onnx_opset_version()) is not type(op):
        raise OperatorError(f"attribute {name!r} is a graph with {op.key} of version {op.since}; accepted: the newest of ai.onnx")
    node = helper.make_node(op.op_type, inputs, outputs)
    for key, spec in op.attributes.items():
        if (value := getattr(op, key)) is not None:
            node.attribute.append(attribute_proto(key, value, spec.type_name))
    return node
