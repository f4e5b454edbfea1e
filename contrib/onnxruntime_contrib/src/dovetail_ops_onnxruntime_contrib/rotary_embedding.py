"""RotaryEmbedding of ONNX Runtime, which came before the standard's."""

from dovetail.op import DType, GraphBuilder, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.expand import Expand
from dovetail_ops_onnx.rotary_embedding import RotaryEmbedding as StandardRotaryEmbedding
from dovetail_ops_onnxruntime_contrib._base import FLOAT_TYPES, MicrosoftOperator
from dovetail_ops_onnxruntime_contrib._nodes import given, ints, node

__all__ = ["RotaryEmbedding"]


class RotaryEmbedding(MicrosoftOperator):
    """Pairs of elements of each head turned by cached angles; see RotaryEmbedding of the standard.

    The input is [batch, sequence, heads * head size] or [batch, heads, sequence, head size]; `position_ids` are
    [batch, sequence], or [1], from which on positions count. Without `num_heads` a head has twice as many elements as the
    caches have columns.
    """

    inputs = ("input: T", "position_ids: M", "cos_cache: T", "sin_cache: T")
    outputs = ("output: T",)
    types = {"T": FLOAT_TYPES, "M": frozenset({DType.INT64})}
    interleaved: bool = False
    is_packed_batching: bool = False
    num_heads: int = 0
    rotary_embedding_dim: int = 0
    scale: float = 1.0

    def __post_init__(self) -> None:
        if self.is_packed_batching or self.scale != 1:
            raise OperatorError("attributes 'is_packed_batching' and 'scale' are set; accepted: 0 and 1.0")
        if self.rotary_embedding_dim and not self.num_heads:
            raise OperatorError("attribute 'rotary_embedding_dim' is given without 'num_heads'; accepted: both")

    def infer(self, x: TensorType, ids: TensorType, cos: TensorType, sin: TensorType) -> TensorType:
        """The input's type."""
        if x.rank not in (3, 4):
            raise ShapeError(f"input 'input' is {x}; accepted: rank 3 or 4")
        batch, sequence = x.dims[0], x.dims[1 if x.rank == 3 else 2]
        if ids.dims not in ((1,), (batch, sequence)):
            raise ShapeError(f"input 'position_ids' is {ids}; accepted: [1] or [{batch}, {sequence}]")
        return self._standard(x, cos).infer(x, cos, sin, ids.with_shape((batch, sequence)))

    def compose(self, g: GraphBuilder, x: str, ids: str, cos: str, sin: str) -> str:
        """The standard's, with positions for every token."""
        t = given(g, x)
        batch, sequence = t.dims[0], t.dims[1 if t.rank == 3 else 2]
        if given(g, ids).rank == 1:
            row = node(g, Add(), ids, ints(g, range(sequence)))
            ids = node(g, Expand(), row, ints(g, (batch, sequence)))
        return node(g, self._standard(t, given(g, cos)), x, cos, sin, ids)

    def _standard(self, x: TensorType, cos: TensorType) -> StandardRotaryEmbedding:
        if cos.rank != 2:
            raise ShapeError(f"input 'cos_cache' is {cos}; accepted: [positions, pairs]")
        heads = self.num_heads or (x.dims[-1] // max(1, 2 * cos.dims[1]) if x.rank == 3 else 0)
        turned = self.rotary_embedding_dim
        return StandardRotaryEmbedding(interleaved=self.interleaved, num_heads=heads or None, rotary_embedding_dim=turned)
