"""The derivative of GatherElements."""

from typing import Any

from dovetail_ops_onnx.scatter_elements import ScatterElements


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """each element of dY is added where it was taken from."""
    data, indices = inputs
    return data.zeros().apply(ScatterElements(axis=op.axis, reduction="add"), indices, gradients[0])
