"""Sessions, compiled models and requests."""

from dovetail.planning.options import REFERENCE_DEVICE
from dovetail.planning.report import NodePlacement, PlanReport, ValuePlacement
from dovetail.planning.support import NodeSupport
from dovetail.runtime.compiled_model import CompiledModel
from dovetail.runtime.core import Core
from dovetail.runtime.infer_request import InferRequest, Results
from dovetail.runtime.queue import AsyncInferQueue
from dovetail.runtime.recipe import Recipe
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
