"""The operators of TIM-VX as an op pack: domain `tim.vx`, one operator a file. Loaded when a model has a node of that domain."""

from typing import TYPE_CHECKING

from dovetail.hookspecs import hookimpl
from dovetail_ops_tim_vx.h_swish import HSwish

if TYPE_CHECKING:
    from dovetail.hookspecs import OpRegistry

__all__ = ["HSwish"]

dovetail_api = "1.0"


@hookimpl
def dovetail_register_ops(registry: "OpRegistry", domain: str) -> None:
    """Register the operators of this pack."""
    registry.add(HSwish)
