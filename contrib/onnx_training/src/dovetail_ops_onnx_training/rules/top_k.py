"""The derivative of TopK."""

from typing import Any

from dovetail_ops_onnx.scatter_elements import ScatterElements


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = dY where the values were taken from."""
    x, dy = inputs[0], gradients[0]
    if dy is None:
        return None
    return x.zeros().apply(ScatterElements(axis=op.axis), outputs[1], dy)
