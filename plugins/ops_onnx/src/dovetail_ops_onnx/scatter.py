"""Scatter: https://onnx.ai/onnx/operators/onnx__Scatter.html, since version 11 called ScatterElements."""

from dovetail.op import DType, GraphBuilder, TensorType
from dovetail_ops_onnx._shapes import Movement
from dovetail_ops_onnx._types import BASIC, INDICES
from dovetail_ops_onnx.scatter_elements import ScatterElements


class Scatter(Movement):
    """ScatterElements without a reduction."""

    since = 9
    inputs = ("data: T", "indices: Tind", "updates: T")
    outputs = ("output: T",)
    types = {"T": BASIC - {DType.BFLOAT16}, "Tind": INDICES}

    axis: int = 0

    def infer(self, data: TensorType, indices: TensorType, updates: TensorType) -> TensorType:
        """The data's type. Raises as ScatterElements does."""
        return ScatterElements(axis=self.axis).infer(data, indices, updates)

    def compose(self, g: GraphBuilder, data: str, indices: str, updates: str) -> str:
        """ScatterElements."""
        return str(g.node(ScatterElements(axis=self.axis), data, indices, updates))
