"""Sessions, compiled models and requests."""

from dovetail.runtime.compiled_model import CompiledModel
from dovetail.runtime.core import Core
from dovetail.runtime.infer_request import InferRequest, Results
from dovetail.runtime.options import REFERENCE_DEVICE
from dovetail.runtime.queue import AsyncInferQueue
from dovetail.runtime.report import NodePlacement, PlanReport, ValuePlacement
from dovetail.runtime.support import NodeSupport

__all__ = [
    "REFERENCE_DEVICE",
    "AsyncInferQueue",
    "CompiledModel",
    "Core",
    "InferRequest",
    "NodePlacement",
    "NodeSupport",
    "PlanReport",
    "Results",
    "ValuePlacement",
]
