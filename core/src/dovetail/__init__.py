"""dovetail: neural-network inference whose devices, model formats and operators are pip packages.

    import dovetail
    core = dovetail.Core()
    compiled = core.compile_model("model.onnx")
    outputs = compiled({"input": array})

Importing this package imports neither NumPy nor any plugin: every public name is loaded when it is first used.
"""

from typing import TYPE_CHECKING

from dovetail._version import __version__

if TYPE_CHECKING:
    from dovetail.errors import DovetailError
    from dovetail.graph import DType, Graph, GraphBuilder, Model, PostOps, TensorType
    from dovetail.hookspecs import hookimpl
    from dovetail.op import Operator
    from dovetail.runtime import AsyncInferQueue, CompiledModel, Core, InferRequest

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
    "TensorType",
    "__version__",
    "hookimpl",
]

_HOMES = {
    "AsyncInferQueue": "dovetail.runtime",
    "CompiledModel": "dovetail.runtime",
    "Core": "dovetail.runtime",
    "DType": "dovetail.graph",
    "DovetailError": "dovetail.errors",
    "Graph": "dovetail.graph",
    "GraphBuilder": "dovetail.graph",
    "InferRequest": "dovetail.runtime",
    "Model": "dovetail.graph",
    "Operator": "dovetail.op",
    "PostOps": "dovetail.graph",
    "TensorType": "dovetail.graph",
    "hookimpl": "dovetail.hookspecs",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
