"""ONNX's Gradient: the graph around the node, differentiated in reverse mode. Loaded when a model has such a node."""

from typing import TYPE_CHECKING

from dovetail.hookspecs import hookimpl
from dovetail_ops_onnx_training.gradient import Gradient
from dovetail_ops_onnx_training.values import Value

if TYPE_CHECKING:
    from dovetail.hookspecs import OpRegistry

__all__ = ["Gradient", "Value", "dovetail_api", "dovetail_register_ops"]

dovetail_api = "1.0"


@hookimpl
def dovetail_register_ops(registry: "OpRegistry", domain: str) -> None:
    """Register Gradient."""
    registry.add(Gradient)
