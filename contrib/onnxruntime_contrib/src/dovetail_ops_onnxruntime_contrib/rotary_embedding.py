"""RotaryEmbedding of ONNX Runtime, which came before the standard's, and that with three positions."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.op import DType, GraphBuilder, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.expand import Expand
from dovetail_ops_onnx.gather import Gather
from dovetail_ops_onnx.rotary_embedding import RotaryEmbedding as StandardRotaryEmbedding
from dovetail_ops_onnx.where import Where
from dovetail_ops_onnxruntime_contrib._base import FLOAT_TYPES, MicrosoftOperator
from dovetail_ops_onnxruntime_contrib._nodes import ints, node

__all__ = ["MRotaryEmbedding", "RotaryEmbedding"]


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
        t = g.given(x)
        batch, sequence = t.dims[0], t.dims[1 if t.rank == 3 else 2]
        if g.given(ids).rank == 1:
            row = node(g, Add(), ids, ints(g, range(sequence)))
            ids = node(g, Expand(), row, ints(g, (batch, sequence)))
        return node(g, self._standard(t, g.given(cos)), x, cos, sin, ids)

    def _standard(self, x: TensorType, cos: TensorType) -> StandardRotaryEmbedding:
        return _standard(self, x, cos)


class MRotaryEmbedding(MicrosoftOperator):
    """Pairs of elements turned by the angles of three positions: time, row and column of a picture, as Qwen-VL has them.

    `position_ids` are [3, batch, sequence], all else is as in RotaryEmbedding. Each pair takes one of the positions. With
    `mrope_layout` 0 the first `mrope_section[0]` pairs take the first one, the next ones the others. With 1 they alternate, for
    as many of the second and the third, and the rest take the first.
    """

    inputs = ("input: T", "position_ids: M", "cos_cache: T", "sin_cache: T")
    outputs = ("output: T",)
    types = {"T": FLOAT_TYPES, "M": frozenset({DType.INT64})}
    mrope_section: tuple[int, ...]
    interleaved: bool = False
    is_packed_batching: bool = False
    mrope_layout: int = 0
    num_heads: int = 0
    rotary_embedding_dim: int = 0
    scale: float = 1.0

    def __post_init__(self) -> None:
        if self.is_packed_batching or self.scale != 1:
            raise OperatorError("attributes 'is_packed_batching' and 'scale' are set; accepted: 0 and 1.0")
        if len(self.mrope_section) != 3 or min(self.mrope_section) < 0 or self.mrope_layout not in (0, 1):
            given = f"mrope_section {list(self.mrope_section)}, mrope_layout {self.mrope_layout}"
            raise OperatorError(f"attributes {given}; accepted: three numbers from 0 on, 0 or 1")

    def infer(self, x: TensorType, ids: TensorType, cos: TensorType, sin: TensorType) -> TensorType:
        """The input's type."""
        if x.rank not in (3, 4):
            raise ShapeError(f"input 'input' is {x}; accepted: rank 3 or 4")
        batch, sequence = x.dims[0], x.dims[1 if x.rank == 3 else 2]
        if ids.dims != (3, batch, sequence) or cos.rank != 2 or sum(self.mrope_section) != cos.dims[1]:
            wanted = f"[3, {batch}, {sequence}], [positions, {sum(self.mrope_section)}]"
            raise ShapeError(f"'position_ids' are {ids}, 'cos_cache' is {cos}; accepted: {wanted}")
        return _standard(self, x, cos).infer(x, cos, sin, ids.with_shape((batch, sequence)))

    def compose(self, g: GraphBuilder, x: str, ids: str, cos: str, sin: str) -> str:
        """The rows of the caches at each position, of which each pair takes one, and the standard's."""
        t = g.given(cos)
        taken = self._taken(t.dims[1])
        angles = []
        for cache in (cos, sin):
            rows = node(g, Gather(), cache, ids)
            first, second, third = (node(g, Gather(), rows, g.constant(stream, DType.INT64)) for stream in range(3))
            rest = node(g, Where(), g.constant(taken == 2), third, first)
            angles.append(node(g, Where(), g.constant(taken == 1), second, rest))
        return node(g, _standard(self, g.given(x), t), x, *angles)

    def _taken(self, pairs: int) -> NDArray[Any]:
        """The position that each pair takes."""
        taken = np.zeros(pairs, np.int64)
        first, second, third = self.mrope_section
        if self.mrope_layout:
            taken[1 : 3 * second : 3] = 1
            taken[2 : 3 * third : 3] = 2
        else:
            taken[first : first + second] = 1
            taken[first + second :] = 2
        return taken


def _standard(op: RotaryEmbedding | MRotaryEmbedding, x: TensorType, cos: TensorType) -> StandardRotaryEmbedding:
    """The standard's, for caches [positions, pairs]."""
    if cos.rank != 2:
        raise ShapeError(f"input 'cos_cache' is {cos}; accepted: [positions, pairs]")
    heads = op.num_heads or (x.dims[-1] // max(1, 2 * cos.dims[1]) if x.rank == 3 else 0)
    turned = op.rotary_embedding_dim
    return StandardRotaryEmbedding(interleaved=op.interleaved, num_heads=heads or None, rotary_embedding_dim=turned)
