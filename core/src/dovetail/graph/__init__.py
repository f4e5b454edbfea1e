"""The graph: data types, tensor types, nodes, graphs and models. Pure data; knows neither devices nor plugins."""

from dovetail.graph.builder import GraphBuilder
from dovetail.graph.dtype import DType
from dovetail.graph.graph import AbstractOperator, Graph, Node
from dovetail.graph.layout import Layout
from dovetail.graph.model import Model
from dovetail.graph.post_ops import Binary, Eltwise, PostOp, PostOps, Prelu, Sum
from dovetail.graph.reloadable import owner
from dovetail.graph.types import Dim, Shape, TensorType, as_constant

__all__ = [
    "AbstractOperator",
    "Binary",
    "DType",
    "Dim",
    "Eltwise",
    "Graph",
    "GraphBuilder",
    "Layout",
    "Model",
    "Node",
    "PostOp",
    "PostOps",
    "Prelu",
    "Shape",
    "Sum",
    "TensorType",
    "as_constant",
    "owner",
]
