"""Operations of OpenVINO that ONNX has nothing for: domain `openvino`, which only models of this package have."""

from typing import TYPE_CHECKING

from dovetail.hookspecs import hookimpl
from dovetail_frontend_openvino.operators.beams import GatherTree
from dovetail_frontend_openvino.operators.detectron import (
    DetectronDetectionOutput,
    DetectronROIFeatureExtractor,
    GenerateProposals,
)
from dovetail_frontend_openvino.operators.losses import CTCLoss
from dovetail_frontend_openvino.operators.matrices import Inverse
from dovetail_frontend_openvino.operators.proposals import Proposal
from dovetail_frontend_openvino.operators.regions import PSROIPooling
from dovetail_frontend_openvino.operators.rotated import NMSRotated, ROIAlignRotated
from dovetail_frontend_openvino.operators.sparse import SparseFillEmptyRows
from dovetail_frontend_openvino.operators.suppressions import MatrixNms, MulticlassNms

if TYPE_CHECKING:
    from dovetail.hookspecs import OpRegistry

__all__ = [
    "CTCLoss",
    "DetectronDetectionOutput",
    "DetectronROIFeatureExtractor",
    "GatherTree",
    "GenerateProposals",
    "Inverse",
    "MatrixNms",
    "MulticlassNms",
    "NMSRotated",
    "PSROIPooling",
    "Proposal",
    "ROIAlignRotated",
    "SparseFillEmptyRows",
    "dovetail_api",
    "dovetail_register_ops",
]

_OPERATORS = (
    CTCLoss,
    DetectronDetectionOutput,
    GatherTree,
    GenerateProposals,
    Inverse,
    MatrixNms,
    MulticlassNms,
    NMSRotated,
    PSROIPooling,
    Proposal,
    ROIAlignRotated,
    SparseFillEmptyRows,
    DetectronROIFeatureExtractor,
)

dovetail_api = "1.0"


@hookimpl
def dovetail_register_ops(registry: "OpRegistry", domain: str) -> None:
    """Register the operators."""
    for operator in _OPERATORS:
        registry.add(operator)
