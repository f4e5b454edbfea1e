"""BipolarQuant: the sign of numbers. https://github.com/fastmachinelearning/qonnx"""

from dovetail.op import FLOATS, GraphBuilder, TensorType, Translation
from dovetail_ops_onnx.greater_or_equal import GreaterOrEqual
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.where import Where
from dovetail_ops_qonnx._base import BREVITAS, QonnxOperator, elementwise, node

__all__ = ["BipolarQuant"]


class BipolarQuant(QonnxOperator):
    """`scale` where x is 0 or more, -scale elsewhere; `scale` broadcasts to x."""

    inputs = ("x: T", "scale: T")
    outputs = ("y: T",)
    types = {"T": FLOATS}
    translations = (Translation(domain=BREVITAS, op_type="BipolarQuant"),)

    def infer(self, x: TensorType, scale: TensorType) -> TensorType:
        """The type of x."""
        return elementwise(x, scale=scale)

    def compose(self, g: GraphBuilder, x: str, scale: str) -> str:
        """1 or -1, multiplied."""
        zero, one, minus = (g.constant(number, g.given(x).dtype) for number in (0, 1, -1))
        return node(g, Mul(), node(g, Where(), node(g, GreaterOrEqual(), x, zero), one, minus), scale)
