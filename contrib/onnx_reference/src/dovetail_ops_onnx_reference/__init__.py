"""Every operator of ONNX's schemas that dovetail has no class for, computed by `onnx.reference`. Loaded when a model has one."""

from typing import TYPE_CHECKING

from dovetail.hookspecs import hookimpl

if TYPE_CHECKING:
    from dovetail.hookspecs import OpRegistry

__all__ = ["dovetail_api", "dovetail_register_ops"]

dovetail_api = "1.0"


@hookimpl
def dovetail_register_ops(registry: "OpRegistry", domain: str) -> None:
    """Register a class for each version of each operator of the domain that dovetail lacks."""
    from dovetail_ops_onnx_reference.classes import operator_classes  # imports onnx

    for operator in operator_classes("" if domain == "ai.onnx" else domain):
        registry.add(operator)
