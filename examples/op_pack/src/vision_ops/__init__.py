"""Operators of domain com.example.vision, and how other formats call them. Imported when a model has a node of such a domain."""

from typing import TYPE_CHECKING

from dovetail.hookspecs import hookimpl
from vision_ops.flow_warp import FlowWarp
from vision_ops.frame_blend import FrameBlend
from vision_ops.image_to_tensor import ImageToTensor
from vision_ops.translations import TRANSLATIONS

if TYPE_CHECKING:
    from dovetail.hookspecs import OpRegistry

__all__ = ["FlowWarp", "FrameBlend", "ImageToTensor"]

dovetail_api = "1.0"

OPERATORS = (FlowWarp, FrameBlend, ImageToTensor)


@hookimpl
def dovetail_register_ops(registry: "OpRegistry", domain: str) -> None:
    """Register the operators of the domain, and translations to operators of it."""
    for operator in OPERATORS:
        if domain in (operator.domain, *(translation.domain for translation in operator.translations)):
            registry.add(operator)


@hookimpl
def dovetail_register_translations(registry: "OpRegistry", domain: str) -> None:
    """Register what others call operators that dovetail has."""
    for translation in TRANSLATIONS:
        if translation.domain == domain:
            registry.add(translation)
