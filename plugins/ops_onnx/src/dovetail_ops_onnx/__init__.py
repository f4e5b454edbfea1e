"""The operators of the ONNX standard: domain `ai.onnx`, one file each, named by the operator's stem.

The folder is the registry: `dovetail_ops_onnx/conv.py` defines Conv, and is imported when a model has one.
"""

from typing import TYPE_CHECKING

from dovetail.hookspecs import hookimpl
from dovetail.op import Operator, classes_in, stem_of, stems_in

if TYPE_CHECKING:
    from dovetail.hookspecs import OpRegistry

__all__ = ["dovetail_api", "dovetail_register_ops", "find", "find_all", "versions"]

dovetail_api = "1.0"


@hookimpl
def dovetail_register_ops(registry: "OpRegistry", domain: str) -> None:
    """Register the modules of this package by their file names."""
    registry.add_package(__name__)


def versions(op_type: str) -> tuple[type[Operator], ...]:
    """Every class of an operator, by version; empty when there is none."""
    return tuple(cls for cls in classes_in(__name__, stem_of(op_type)) if cls.op_type == op_type)


def find(op_type: str, version: int) -> type[Operator] | None:
    """The class of an operator that holds in operator set `version`, or None."""
    fitting = [cls for cls in versions(op_type) if cls.since <= version]
    return fitting[-1] if fitting else None


def find_all() -> tuple[type[Operator], ...]:
    """Every operator class, by stem and version. Imports them all."""
    return tuple(cls for stem in stems_in(__name__) for cls in classes_in(__name__, stem))
