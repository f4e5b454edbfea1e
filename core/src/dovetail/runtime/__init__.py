"""Sessions, compiled models and requests. All are imported on first use."""

from typing import TYPE_CHECKING

from dovetail._lazy import lazy_names

if TYPE_CHECKING:
    from dovetail.planning.options import REFERENCE_DEVICE
    from dovetail.planning.report import NodePlacement, PlanReport, ValuePlacement
    from dovetail.planning.support import NodeSupport
    from dovetail.runtime.compiled_model import CompiledModel
    from dovetail.runtime.core import Core
    from dovetail.runtime.infer_request import InferRequest
    from dovetail.runtime.queue import AsyncInferQueue
    from dovetail.runtime.recipe import Recipe
    from dovetail.runtime.results import Results
    from dovetail.tracing import Slice, Trace

__all__ = [
    "REFERENCE_DEVICE",
    "AsyncInferQueue",
    "CompiledModel",
    "Core",
    "InferRequest",
    "NodePlacement",
    "NodeSupport",
    "PlanReport",
    "Recipe",
    "Results",
    "Slice",
    "Trace",
    "ValuePlacement",
]

__getattr__ = lazy_names(
    __name__,
    {
        "dovetail.planning.options": ("REFERENCE_DEVICE",),
        "dovetail.planning.report": ("NodePlacement", "PlanReport", "ValuePlacement"),
        "dovetail.planning.support": ("NodeSupport",),
        "dovetail.runtime.compiled_model": ("CompiledModel",),
        "dovetail.runtime.core": ("Core",),
        "dovetail.runtime.infer_request": ("InferRequest",),
        "dovetail.runtime.results": ("Results",),
        "dovetail.runtime.queue": ("AsyncInferQueue",),
        "dovetail.runtime.recipe": ("Recipe",),
        "dovetail.tracing": ("Slice", "Trace"),
    },
)
