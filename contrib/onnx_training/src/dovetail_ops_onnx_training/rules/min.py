"""The derivative of Min."""

from typing import Any

from dovetail_ops_onnx_training.rules._ties import shared


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dY goes to the inputs that are the minimum, in equal parts."""
    return shared(inputs, outputs[0], gradients[0])
