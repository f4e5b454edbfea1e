"""All that an operator author imports.

An operator is one class. Annotated class variables are its attributes; `inputs` and `outputs` describe its ports; `infer`
gives the output types; `reference` computes in NumPy. From these it runs on every device. An OpenCL kernel (`kernels`) or a
composition of other operators (`compose`) makes it fast::

    class HardSwish6(Operator):
        domain = "com.acme"
        inputs = ("X: T",)
        outputs = ("Y: T",)
        types = {"T": FLOATS}
        scale: float = 1.0

        def reference(self, X):
            return self.scale * X * np.clip(X / 6 + 0.5, 0, 1)
"""

from typing import TYPE_CHECKING

from dovetail._lazy import lazy_names
from dovetail.errors import OperatorError, ShapeError
from dovetail.evaluate.composition import evaluate_composition
from dovetail.graph.builder import GraphBuilder
from dovetail.graph.dtype import DType
from dovetail.graph.graph import AbstractOperator, Graph, Iterations, KernelSource, Port, RunGraph, TypesOf, UnboundOperator
from dovetail.graph.layout import ANY, BFYX, BYXF, FYXB, NHWC, PLAIN, YXFB, Layout
from dovetail.graph.post_ops import Binary, Eltwise, PostOp
from dovetail.graph.types import MAX_RANK, Dim, MapType, OptionalType, SequenceType, Shape, TensorType, one_of
from dovetail.names import free_name, stem_of, unique_name
from dovetail.operators.operator import Operator
from dovetail.operators.packages import classes_in, stems_in
from dovetail.operators.ports import FLOATS, INTEGERS, NUMERIC
from dovetail.operators.translation import Translation

if TYPE_CHECKING:
    from dovetail.evaluate.error_function import erf
    from dovetail.operators.decorator import operator
    from dovetail.operators.formula import Formula, dimensions
    from dovetail.operators.host_kernel import HostConfig, HostKernel, KernelRefused, PortConfig
    from dovetail.operators.kernels import OpenCLKernel
    from dovetail.operators.translated import is_translated, translation_target

__all__ = [
    "ANY",
    "BFYX",
    "BYXF",
    "FLOATS",
    "FYXB",
    "INTEGERS",
    "MAX_RANK",
    "NHWC",
    "NUMERIC",
    "PLAIN",
    "YXFB",
    "AbstractOperator",
    "Binary",
    "DType",
    "Dim",
    "Eltwise",
    "Formula",
    "Graph",
    "GraphBuilder",
    "HostConfig",
    "HostKernel",
    "Iterations",
    "KernelRefused",
    "KernelSource",
    "Layout",
    "MapType",
    "OpenCLKernel",
    "Operator",
    "OperatorError",
    "OptionalType",
    "Port",
    "PortConfig",
    "PostOp",
    "RunGraph",
    "SequenceType",
    "Shape",
    "ShapeError",
    "TensorType",
    "Translation",
    "TypesOf",
    "UnboundOperator",
    "classes_in",
    "dimensions",
    "erf",
    "evaluate_composition",
    "free_name",
    "is_translated",
    "one_of",
    "operator",
    "stem_of",
    "stems_in",
    "translation_target",
    "unique_name",
]

__getattr__ = lazy_names(
    __name__,  # few operators need these, and every model imports this module
    {
        "dovetail.evaluate.error_function": ("erf",),
        "dovetail.operators.decorator": ("operator",),
        "dovetail.operators.formula": ("Formula", "dimensions"),
        "dovetail.operators.host_kernel": ("HostConfig", "HostKernel", "KernelRefused", "PortConfig"),
        "dovetail.operators.kernels": ("OpenCLKernel",),
        "dovetail.operators.translated": ("is_translated", "translation_target"),
    },
)
