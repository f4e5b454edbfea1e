"""The operators of TIM-VX as an op pack: domain `tim.vx`, one file each, imported when a model has that one."""

from typing import TYPE_CHECKING

from dovetail.hookspecs import hookimpl

if TYPE_CHECKING:
    from dovetail.hookspecs import OpRegistry

__all__ = ["dovetail_api", "dovetail_register_ops"]

dovetail_api = "1.0"


@hookimpl
def dovetail_register_ops(registry: "OpRegistry", domain: str) -> None:
    """Register the modules of this package by their file names."""
    registry.add_package(__name__)
