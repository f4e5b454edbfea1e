"""SwiGLU. https://onnx.ai/onnx/operators/onnx__SwiGLU.html (Shazeer, 2020)"""

from dovetail.op import FLOATS, GraphBuilder, Operator, ShapeError, TensorType
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.swish import Swish


class SwiGLU(Operator):
    """A / (1 + exp(-alpha A)) * B, for A and B of one shape."""

    since = 28
    inputs = ("A: T", "B: T")
    outputs = ("Y: T",)
    types = {"T": FLOATS}

    alpha: float = 1.0

    def infer(self, A: TensorType, B: TensorType) -> TensorType:
        """The type of A. Raises `ShapeError` for another shape of B."""
        if A.dims != B.dims:
            raise ShapeError(f"input 'A' is {A}, 'B' {B}; accepted: equal shapes")
        return A.with_shape(A.dims)

    def compose(self, g: GraphBuilder, A: str, B: str) -> str:
        """Swish and a product."""
        return str(g.node(Mul(), g.node(Swish(alpha=self.alpha), A), B))
