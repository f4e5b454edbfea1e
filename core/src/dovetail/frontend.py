"""All that a model-format author imports.

A frontend turns a file into a `Model` whose operators are only named::

    from dovetail.errors import FormatError
    from dovetail.graph.graph import Graph, Node, UnboundOperator
    from dovetail.graph.model import Model
    from dovetail.graph.source import ModelSource
    from dovetail.hookspecs import hookimpl

    dovetail_api = "1.0"

    @hookimpl
    def dovetail_read_model(source, options):
        file = ModelSource(source)
        return parse(file.read(limit=2**31 - 1), file)

It never evaluates anything. Malformed input raises `FormatError` or `GraphError`, naming the file and the node.
"""

from typing import TYPE_CHECKING

from dovetail._lazy import lazy_names
from dovetail.errors import FormatError, GraphError, OutOfMemory, UsageError
from dovetail.graph.builder import GraphBuilder
from dovetail.graph.dtype import DType
from dovetail.graph.graph import Graph, Node, UnboundOperator
from dovetail.graph.mapped_file import SMALLEST_REGION, MappedFile
from dovetail.graph.model import Model
from dovetail.graph.reloadable import Reloadable
from dovetail.graph.source import ModelSource
from dovetail.graph.types import MAX_RANK, Dim, MapType, OptionalType, SequenceType, Shape, TensorType, as_constant
from dovetail.graph.validate import validate
from dovetail.names import free_name, printable, unique_name
from dovetail.operators.attributes import AttributeText

if TYPE_CHECKING:
    from dovetail.graph.growth import Grown, Growth
    from dovetail.internal.copy import Copy

__all__ = [
    "MAX_RANK",
    "SMALLEST_REGION",
    "AttributeText",
    "Copy",
    "DType",
    "Dim",
    "FormatError",
    "Graph",
    "GraphBuilder",
    "GraphError",
    "Grown",
    "Growth",
    "MapType",
    "MappedFile",
    "Model",
    "ModelSource",
    "Node",
    "OptionalType",
    "OutOfMemory",
    "Reloadable",
    "SequenceType",
    "Shape",
    "TensorType",
    "UnboundOperator",
    "UsageError",
    "as_constant",
    "free_name",
    "printable",
    "unique_name",
    "validate",
]

__getattr__ = lazy_names(
    __name__,  # few models have states that grow, and writing one needs copies
    {"dovetail.graph.growth": ("Grown", "Growth"), "dovetail.internal.copy": ("Copy",)},
)
