"""dovetail: a neural-network inference runtime. Devices, model formats and operators are pip packages.

    import dovetail
    core = dovetail.Core()
    compiled = core.compile_model("model.onnx")
    outputs = compiled({"input": array})

Importing this package imports neither NumPy nor any plugin: every public name is loaded when it is first used.
"""

from dovetail._lazy import lazy_names
from dovetail._version import __version__

TYPE_CHECKING = False  # as type checkers read it: importing typing takes twenty times as long as this package
if TYPE_CHECKING:
    from dovetail.errors import DovetailError
    from dovetail.graph import DType, Graph, GraphBuilder, Model, PostOps, TensorType
    from dovetail.hookspecs import hookimpl
    from dovetail.op import Operator
    from dovetail.runtime import AsyncInferQueue, CompiledModel, Core, InferRequest, Recipe, Trace

__all__ = [
    "AsyncInferQueue",
    "CompiledModel",
    "Core",
    "DType",
    "DovetailError",
    "Graph",
    "GraphBuilder",
    "InferRequest",
    "Model",
    "Operator",
    "PostOps",
    "Recipe",
    "TensorType",
    "Trace",
    "__version__",
    "hookimpl",
]

__getattr__ = lazy_names(
    __name__,
    {
        "dovetail.errors": ("DovetailError",),
        "dovetail.graph": ("DType", "Graph", "GraphBuilder", "Model", "PostOps", "TensorType"),
        "dovetail.hookspecs": ("hookimpl",),
        "dovetail.op": ("Operator",),
        "dovetail.runtime": ("AsyncInferQueue", "CompiledModel", "Core", "InferRequest", "Recipe", "Trace"),
    },
)


def __dir__() -> list[str]:
    return __all__
