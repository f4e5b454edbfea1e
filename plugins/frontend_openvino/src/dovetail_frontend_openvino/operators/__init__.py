"""Operations of OpenVINO that ONNX has nothing for: domain `openvino`, which only models of this package have."""

from typing import TYPE_CHECKING

from dovetail.hookspecs import hookimpl
from dovetail_frontend_openvino.operators.beams import GatherTree
from dovetail_frontend_openvino.operators.losses import CTCLoss
from dovetail_frontend_openvino.operators.matrices import Inverse
from dovetail_frontend_openvino.operators.proposals import Proposal
from dovetail_frontend_openvino.operators.regions import PSROIPooling

if TYPE_CHECKING:
    from dovetail.hookspecs import OpRegistry

__all__ = ["CTCLoss", "GatherTree", "Inverse", "PSROIPooling", "Proposal", "dovetail_api", "dovetail_register_ops"]

dovetail_api = "1.0"


@hookimpl
def dovetail_register_ops(registry: "OpRegistry", domain: str) -> None:
    """Register the operators."""
    for operator in (CTCLoss, GatherTree, Inverse, PSROIPooling, Proposal):
        registry.add(operator)
