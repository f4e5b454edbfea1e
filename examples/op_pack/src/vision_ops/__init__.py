"""Operators of domain com.example.vision. Imported when a model has a node of that domain."""

from typing import TYPE_CHECKING

from dovetail.hookspecs import hookimpl
from vision_ops.flow_warp import FlowWarp
from vision_ops.image_to_tensor import ImageToTensor

if TYPE_CHECKING:
    from dovetail.hookspecs import OpRegistry

__all__ = ["FlowWarp", "ImageToTensor"]

dovetail_api = "1.0"


@hookimpl
def dovetail_register_ops(registry: "OpRegistry", domain: str) -> None:
    """Register the operators of this pack."""
    registry.add(FlowWarp)
    registry.add(ImageToTensor)
