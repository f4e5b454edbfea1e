"""The derivative of ScatterElements."""

from typing import Any

from dovetail_ops_onnx.gather_elements import GatherElements
from dovetail_ops_onnx.scatter_elements import ScatterElements
from dovetail_ops_onnx_training.rules._places import require


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dUpdates = dY where they were put; dData = dY, without those places unless they were added."""
    _, indices, updates = inputs
    dy = gradients[0]
    require(op, ("none", "add"))
    kept = dy if op.reduction == "add" else dy.apply(ScatterElements(axis=op.axis), indices, updates.zeros())
    return kept, None, dy.apply(GatherElements(axis=op.axis), indices)
