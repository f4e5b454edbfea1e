"""CastLike: https://onnx.ai/onnx/operators/onnx__CastLike.html."""

from collections.abc import Sequence

from dovetail.op import GraphBuilder, Operator, TensorType
from dovetail_ops_onnx._types import FLOAT6, Array, Types
from dovetail_ops_onnx.cast import Cast


class CastLike(Operator):
    """Each element converted to the type of another tensor; Cast says how."""

    since = 15
    inputs = ("input: T1", "target_type: T2")
    outputs = ("output: T2",)
    types = {"T1": Cast.types["T1"] - FLOAT6, "T2": Cast.types["T2"] - FLOAT6}

    saturate: bool = True
    round_mode: str = "up"

    def infer(self, x: TensorType, target: TensorType) -> TensorType:
        """The input's shape with the type of the target."""
        return x.with_dtype(target.dtype)

    def reference(self, x: Array, target: Array) -> Array:
        """x as the target's type."""
        return self._cast(TensorType.of(target)).reference(x)

    def compose(self, g: GraphBuilder, x: str, target: str) -> str:
        """A Cast."""
        wanted = g.given(target)
        name: str = g.node(self._cast(wanted), x)
        return name

    def _cast(self, target: TensorType) -> Cast:
        return Cast(to=target.dtype, saturate=self.saturate, round_mode=self.round_mode)

    def flops(self, inputs: Types, outputs: Sequence[TensorType]) -> int:
        """One for each element, as Cast."""
        return outputs[0].size
