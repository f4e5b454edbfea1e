"""The derivative of Erf."""

import math
from typing import Any

from dovetail_ops_onnx.exp import Exp


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = dY 2 / sqrt(pi) exp(-X^2)."""
    x, dy = inputs[0], gradients[0]
    return dy * (-(x * x)).apply(Exp()) * (2 / math.sqrt(math.pi))
