"""The small rewritings that passes share."""

import numpy as np

from dovetail.graph import DType, Graph, Node, TensorType
from dovetail.graph.graph import UnboundOperator
from dovetail.passes import represented_by, with_constants

RELU = UnboundOperator("", "Relu", 22, {})


def test_a_node_without_origins_represents_itself() -> None:
    assert represented_by(Node("relu", RELU, ("x",), ("y",))) == ("relu",)


def test_nodes_represent_the_origins_of_all_each_once_in_order() -> None:
    first = Node("a.0", RELU, ("x",), ("v",), (), ("b", "a"))
    second = Node("a.1", RELU, ("v",), ("w",), (), ("a",))
    assert represented_by(first, second, Node("c", RELU, ("w",), ("y",))) == ("b", "a", "c")


def test_constants_come_with_their_types_and_contents() -> None:
    x = TensorType(DType.FLOAT32, (2,))
    graph = Graph((), ("x",), ("x",), {"old": np.zeros(1)}, {"x": x})
    shape = np.array([2, 1])
    wider = with_constants(graph, {"shape": shape})
    assert wider.constants == {"old": graph.constants["old"], "shape": shape}
    assert wider.types == {"x": x, "shape": TensorType(DType.INT64, (2,))}
    assert wider.types["shape"].value is shape
    assert "shape" not in graph.constants
