"""Which versions of ONNX's operator set are read: unchanged, and after `upgrade`."""

from collections.abc import Iterator

from dovetail_frontend_onnx.messages import GraphProto, ModelProto, NodeProto, vendored

__all__ = ["CHANGED", "NEWEST_OPSET", "OLDEST_OPSET", "all_nodes", "is_old", "versions"]

OLDEST_OPSET = 7
"""The oldest version that is read unchanged."""
NEWEST_OPSET = int(vendored("newest-opset.txt"))
"""The newest version of the ONNX release whose messages are vendored."""

_CHANGES = {
    2: "GlobalLpPool LpPool Pad Split",
    4: "Concat",
    5: "Reshape",
    6: "Abs Cast Ceil Clip Elu Exp Floor HardSigmoid InstanceNormalization LeakyRelu Log Max Mean Min Neg Reciprocal Relu Selu"
    " Sigmoid Sqrt Sum Tanh Tile",
    7: "Acos Add And Asin Atan AveragePool BatchNormalization Cos Div Dropout Equal GRU Gemm Greater LSTM Less Mul Multinomial"
    " Or PRelu Pow RNN Sin Sub Tan Upsample Xor",
}
CHANGED = {name: version for version, names in _CHANGES.items() for name in names.split()}
"""Operator -> the version of its definition in operator set 7, where that is not 1."""


def is_old(proto: ModelProto) -> bool:
    """Whether the model has to be converted: it imports a set before 7, where one of its operators had another definition."""
    found = versions(proto)
    if not found or not 1 <= found[0] < OLDEST_OPSET:
        return False
    return any(CHANGED.get(node.op_type, 1) > found[0] for node in all_nodes(proto.graph) if node.domain in ("", "ai.onnx"))


def all_nodes(graph: GraphProto) -> Iterator[NodeProto]:
    """The nodes of a graph and of its sub-graphs."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs):
                yield from all_nodes(inner)


def versions(proto: ModelProto) -> list[int]:
    """The versions of ONNX's own operator set that the model imports: one, if it is right."""
    return [item.version for item in proto.opset_import if item.domain in ("", "ai.onnx")]
