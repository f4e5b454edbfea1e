"""RotaryEmbedding. https://onnx.ai/onnx/operators/onnx__RotaryEmbedding.html (Su et al., 2021)"""

from typing import ClassVar

from dovetail.op import DType, GraphBuilder, KernelSource, Operator, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx._turned_pairs import TurnedPairs
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.concat import Concat
from dovetail_ops_onnx.gather import Gather
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.reshape import Reshape
from dovetail_ops_onnx.slice import Slice
from dovetail_ops_onnx.sub import Sub


class RotaryEmbedding(Operator):
    """X with pairs of elements of each head turned by the angles whose cosines and sines the caches hold.

    X is [batch, heads, sequence, head size], or [batch, sequence, heads * head size] with `num_heads`. The pairs are the two
    halves of the first `rotary_embedding_dim` elements (0: of all), or neighbours when `interleaved`; what follows stays.
    The caches are [positions, pairs] with `position_ids` [batch, sequence], else [batch, sequence, pairs]; or [1, sequence,
    pairs] for all samples, which PyTorch's exporter writes for language models and ONNX's reference takes.
    """

    since = 23
    inputs = ("X: T", "cos_cache: T", "sin_cache: T", "position_ids?: M")
    outputs = ("Y: T",)
    types = {"T": frozenset({DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16}), "M": frozenset({DType.INT64})}
    kernels: ClassVar[tuple[KernelSource, ...]] = (TurnedPairs(),)

    interleaved: bool = False
    num_heads: int | None = None
    rotary_embedding_dim: int = 0

    def heads(self, X: TensorType) -> tuple[int, int, int, int]:
        """Batch, sequence, heads and head size. Raises `ShapeError`."""
        if X.rank == 4:
            batch, heads, sequence, size = X.dims
            return batch, sequence, heads, size
        if X.rank != 3:
            raise ShapeError(f"input 'X' is {X}; accepted: rank 3 or 4")
        if not self.num_heads or X.dims[2] % self.num_heads:
            raise OperatorError(f"attribute 'num_heads' is {self.num_heads}; accepted: a divisor of {X.dims[2]}, for X {X}")
        return X.dims[0], X.dims[1], self.num_heads, X.dims[2] // self.num_heads

    def turned(self, X: TensorType) -> int:
        """How many elements of a head are turned. Raises `OperatorError` for an odd number or too many."""
        size = self.heads(X)[3]
        count = self.rotary_embedding_dim or size
        if count % 2 or not 0 < count <= size:
            raise OperatorError(f"{count} elements of a head are to be turned; accepted: an even number up to {size}")
        return count

    def infer(self, X: TensorType, cos: TensorType, sin: TensorType, ids: TensorType | None = None) -> TensorType:
        """The type of X. Raises `ShapeError` for caches that do not fit."""
        batch, sequence, _, _ = self.heads(X)
        pairs = self.turned(X) // 2
        fits = (cos.rank == 2 and ids is not None) or cos.shape in ((batch, sequence, pairs), (1, sequence, pairs))
        if ids is not None and ids.dims != (batch, sequence):
            raise ShapeError(f"input 'position_ids' is {ids}; accepted: [{batch}, {sequence}]")
        if cos.dims != sin.dims or not fits or cos.dims[-1] != pairs or (cos.rank != 2 and ids is not None):
            accepted = f"[positions, {pairs}]" if ids is not None else f"[{batch}, {sequence}, {pairs}]"
            raise ShapeError(f"input 'cos_cache' is {cos}, 'sin_cache' {sin}; accepted: both {accepted}")
        return X.with_shape(X.dims)

    def compose(self, g: GraphBuilder, X: str, cos: str, sin: str, ids: str = "") -> str:
        """The two elements of each pair apart, four products, a difference and a sum, and together again."""
        given = g.type_of(X)
        assert given is not None
        batch, sequence, heads, size = self.heads(given)
        count = self.turned(given)
        lead = (batch, heads, sequence) if given.rank == 4 else (batch, sequence, heads)
        x = X if given.rank == 4 else _reshaped(g, X, (*lead, size))
        rows = batch if ids else g.given(cos).dims[0]
        angles = (rows, 1, sequence, count // 2) if given.rank == 4 else (rows, sequence, 1, count // 2)
        cosine, sine = (_reshaped(g, g.node(Gather(), cache, ids) if ids else cache, angles) for cache in (cos, sin))
        step = 2 if self.interleaved else 1
        first = _cut(g, x, 0, count if self.interleaved else count // 2, step)
        second = _cut(g, x, 1 if self.interleaved else count // 2, count, step)
        real = g.node(Sub(), g.node(Mul(), first, cosine), g.node(Mul(), second, sine))
        imaginary = g.node(Add(), g.node(Mul(), first, sine), g.node(Mul(), second, cosine))
        if self.interleaved:
            pairs = [_reshaped(g, part, (*lead, count // 2, 1)) for part in (real, imaginary)]
            parts = [_reshaped(g, g.node(Concat(axis=-1), *pairs), (*lead, count))]
        else:
            parts = [real, imaginary]
        rest = [_cut(g, x, count, size, 1)] if count < size else []
        y = parts[0] if len(parts) + len(rest) == 1 else g.node(Concat(axis=-1), *parts, *rest)
        return y if given.rank == 4 else _reshaped(g, y, given.dims)


def _reshaped(g: GraphBuilder, x: str, shape: tuple[int, ...]) -> str:
    return str(g.node(Reshape(allowzero=True), x, g.constant(list(shape), DType.INT64)))


def _cut(g: GraphBuilder, x: str, start: int, stop: int, step: int) -> str:
    return str(g.node(Slice(), x, *(g.constant([number], DType.INT64) for number in (start, stop, -1, step))))
