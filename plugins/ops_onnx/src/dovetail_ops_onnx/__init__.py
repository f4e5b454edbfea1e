"""The operators of the ONNX standard: domain `ai.onnx`, one file each, named by the operator's stem.

The folder is the registry: `dovetail_ops_onnx/conv.py` defines Conv, and is imported when a model has one. Importing the package
itself needs no NumPy, because a plugin with hooks is loaded for `dovetail --help` too.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dovetail.hookspecs import hookimpl

if TYPE_CHECKING:
    from dovetail.hookspecs import OpRegistry
    from dovetail.op import Operator
    from dovetail.passes import GraphPass

__all__ = ["dovetail_api", "dovetail_graph_passes", "dovetail_register_ops", "find", "find_all", "versions"]

dovetail_api = "1.0"


@hookimpl
def dovetail_register_ops(registry: "OpRegistry", domain: str) -> None:
    """Register the modules of this package by their file names."""
    registry.add_package(__name__)


@hookimpl
def dovetail_graph_passes(options: Mapping[str, Any]) -> "tuple[GraphPass, ...]":
    """The passes that know the standard operators, in order."""
    from dovetail_ops_onnx.passes import PASSES

    return PASSES


def versions(op_type: str) -> "tuple[type[Operator], ...]":
    """Every class of an operator, by version; empty when there is none."""
    from dovetail.op import classes_in, stem_of

    return tuple(cls for cls in classes_in(__name__, stem_of(op_type)) if cls.op_type == op_type)


def find(op_type: str, version: int) -> "type[Operator] | None":
    """The class of an operator that holds in operator set `version`, or None."""
    fitting = [cls for cls in versions(op_type) if cls.since <= version]
    return fitting[-1] if fitting else None


def find_all() -> "tuple[type[Operator], ...]":
    """Every operator class, by stem and version. Imports them all."""
    from dovetail.op import classes_in, stems_in

    return tuple(cls for stem in stems_in(__name__) for cls in classes_in(__name__, stem))
