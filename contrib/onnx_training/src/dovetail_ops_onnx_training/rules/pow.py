"""The derivative of Pow."""

from typing import Any

from dovetail_ops_onnx.equal import Equal
from dovetail_ops_onnx.log import Log
from dovetail_ops_onnx.pow import Pow
from dovetail_ops_onnx_training.values import select


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = dY Y X^(Y - 1), dY = dZ Z log(X); 0 where the factor in front of an infinity is."""
    x, exponent = inputs
    z, dz = outputs[0], gradients[0]
    power = exponent.cast(x.dtype)
    steep = x.apply(Pow(), power - 1)
    dx = select(power.apply(Equal(), 0), 0, dz * power * steep)
    # Where Z is 0 the logarithm of X is minus infinity.
    positive = z.apply(Equal(), 0)
    grown = dz * z * select(positive, 1, x).apply(Log())
    return dx.like(x), select(positive, 0, grown).like(exponent).cast(exponent.dtype)
