"""The derivative of Softsign."""

from typing import Any

from dovetail_ops_onnx.abs import Abs


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = dY (1 - |Y|)^2."""
    y, dy = outputs[0], gradients[0]
    inner = 1 - y.apply(Abs())
    return dy * inner * inner
