"""Layer normalizations with a residual sum before them, or of a sum of embeddings."""

from typing import Any, ClassVar

from dovetail.op import FLOATS, DType, GraphBuilder, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.gather import Gather
from dovetail_ops_onnx.layer_normalization import LayerNormalization
from dovetail_ops_onnx.pow import Pow
from dovetail_ops_onnx.reciprocal import Reciprocal
from dovetail_ops_onnx.reduce_mean import ReduceMean
from dovetail_ops_onnx.reduce_sum import ReduceSum
from dovetail_ops_onnx.rms_normalization import RMSNormalization
from dovetail_ops_onnx.sqrt import Sqrt
from dovetail_ops_onnxruntime_contrib._base import FLOAT_TYPES, MicrosoftOperator
from dovetail_ops_onnxruntime_contrib._nodes import cast, ints, node

__all__ = [
    "EmbedLayerNormalization",
    "LayerNormalization_1",
    "SimplifiedLayerNormalization",
    "SkipLayerNormalization",
    "SkipSimplifiedLayerNormalization",
]

_F32 = frozenset({DType.FLOAT32})


class SimplifiedLayerNormalization(MicrosoftOperator):
    """RMSNormalization under the name that ONNX Runtime's exporters give it, in the standard domain. X / rms(X) * scale."""

    domain: ClassVar[str] = ""
    inputs = ("X: T", "scale: V")
    outputs = ("Y: V", "inv_std_var?: U")
    types = {"T": FLOATS, "V": FLOATS, "U": frozenset({DType.FLOAT32, DType.FLOAT64})}
    axis: int = -1
    epsilon: float = 1e-5
    stash_type: int = 1

    def infer(self, X: TensorType, scale: TensorType) -> tuple[TensorType, TensorType]:
        """Y, and 1 / rms with size 1 along the normalized axes."""
        y = RMSNormalization(axis=self.axis, epsilon=self.epsilon).infer(X, scale)
        axis = self.axis % X.rank
        inner = DType.FLOAT64 if X.dtype is DType.FLOAT64 else DType.FLOAT32
        return y, TensorType(inner, (*X.dims[:axis], *(1,) * (X.rank - axis)))

    def compose(self, g: GraphBuilder, X: str, scale: str) -> Any:
        """RMSNormalization."""
        x = g.given(X)
        y = node(g, RMSNormalization(axis=self.axis, epsilon=self.epsilon), X, scale)
        return y, _inverse_rms(g, X, x.dtype, tuple(range(self.axis % x.rank, x.rank)), self.epsilon)


class LayerNormalization_1(LayerNormalization):
    """The standard's, in models of operator sets before 17: ONNX Runtime's optimizers write it into all of them."""

    since = 1

    def compose(self, g: GraphBuilder, *inputs: str) -> Any:
        """The standard's, for which devices have kernels."""
        return g.node(LayerNormalization(axis=self.axis, epsilon=self.epsilon, stash_type=self.stash_type), *inputs, outputs=3)


class SkipSimplifiedLayerNormalization(MicrosoftOperator):
    """RMSNormalization of input + skip + bias over the last axis; the sum is the fourth output."""

    inputs = ("input: T", "skip: T", "gamma: T", "bias?: T")
    outputs = ("output: T", "mean?: U", "inv_std_var?: U", "input_skip_bias_sum?: T")
    types = {"T": FLOAT_TYPES, "U": _F32}
    epsilon: float = 1e-12

    def infer(self, x: TensorType, skip: TensorType, gamma: TensorType, bias: TensorType | None = None) -> tuple[TensorType, ...]:
        """The input's type four times, with size 1 along the last axis for the statistics."""
        return _skipped(x, skip, gamma, bias)

    def compose(self, g: GraphBuilder, x: str, skip: str, gamma: str, bias: str = "") -> Any:
        """Sums and RMSNormalization."""
        t = g.given(x)
        total = _sum(g, x, skip, bias)
        y = node(g, RMSNormalization(epsilon=self.epsilon), total, gamma)
        mean = cast(g, node(g, ReduceMean(), total, ints(g, [-1])), t.dtype, DType.FLOAT32)
        return y, mean, _inverse_rms(g, total, t.dtype, (t.rank - 1,), self.epsilon), total


class SkipLayerNormalization(MicrosoftOperator):
    """LayerNormalization of input + skip + bias over the last axis; the sum is the fourth output."""

    inputs = ("input: T", "skip: T", "gamma: T", "beta?: T", "bias?: T")
    outputs = ("output: T", "mean?: U", "inv_std_var?: U", "input_skip_bias_sum?: T")
    types = {"T": FLOAT_TYPES, "U": _F32}
    epsilon: float = 1e-12

    def infer(
        self, x: TensorType, skip: TensorType, gamma: TensorType, beta: TensorType | None = None, bias: TensorType | None = None
    ) -> tuple[TensorType, ...]:
        """The input's type four times, with size 1 along the last axis for the statistics."""
        return _skipped(x, skip, gamma, beta, bias)

    def compose(self, g: GraphBuilder, x: str, skip: str, gamma: str, beta: str = "", bias: str = "") -> Any:
        """Sums and LayerNormalization."""
        total = _sum(g, x, skip, bias)
        op = LayerNormalization(epsilon=self.epsilon)
        y, mean, inverse = g.node(op, total, gamma, *([beta] if beta else []), outputs=3)
        return y, mean, inverse, total


class EmbedLayerNormalization(MicrosoftOperator):
    """LayerNormalization of the sum of word, position and segment embeddings, and how many tokens of each text the mask leaves.

    Positions count from 0 unless `position_ids` are given.
    """

    inputs = (
        "input_ids: T1",
        "segment_ids?: T1",
        "word_embedding: T",
        "position_embedding: T",
        "segment_embedding?: T",
        "gamma: T",
        "beta: T",
        "mask?: T1",
        "position_ids?: T1",
    )
    outputs = ("output: T", "mask_index?: T1", "embedding_sum?: T")
    types = {"T": frozenset({DType.FLOAT32, DType.FLOAT16}), "T1": frozenset({DType.INT32})}
    epsilon: float = 1e-12
    mask_index_type: int = 0

    def infer(self, ids: TensorType, segments: TensorType | None, words: TensorType, *rest: TensorType | None) -> Any:
        """[batch, sequence, hidden], [batch], [batch, sequence, hidden]."""
        positions, table, gamma, beta, mask, places = rest
        if ids.rank != 2 or words.rank != 2 or (segments is None) != (table is None):
            raise ShapeError(f"input 'input_ids' is {ids}, 'word_embedding' {words}; accepted: matrices; both segments or none")
        for name, t in (("position_embedding", positions), ("segment_embedding", table)):
            if t is not None and (t.rank != 2 or t.dims[1] != words.dims[1]):
                raise ShapeError(f"input {name!r} is {t}; accepted: [entries, {words.dims[1]}]")
        for name, t in (("segment_ids", segments), ("mask", mask)):
            if t is not None and t.dims != ids.dims:
                raise ShapeError(f"input {name!r} is {t}; accepted: {list(ids.dims)}")
        for name, t in (("gamma", gamma), ("beta", beta)):
            if t is not None and t.dims != words.dims[1:]:
                raise ShapeError(f"input {name!r} is {t}; accepted: [{words.dims[1]}]")
        if places is None and positions is not None and positions.dims[0] < ids.dims[1]:
            raise ShapeError(f"input 'position_embedding' is {positions}; accepted: {ids.dims[1]} entries or more")
        if self.mask_index_type not in (0, 1):
            raise OperatorError(f"attribute 'mask_index_type' is {self.mask_index_type}; accepted: 0, 1")
        y = words.with_shape((*ids.dims, words.dims[1]))
        return y, ids.with_shape(ids.dims[:1]), y

    def compose(self, g: GraphBuilder, ids: str, segments: str, words: str, positions: str, table: str, *rest: str) -> Any:
        """Gathers, sums and LayerNormalization."""
        gamma, beta, mask, places = (*rest, "", "")[:4]
        pairs = [(words, ids), (positions, places or self.rows(g, ids)), *([(table, segments)] if segments else [])]
        parts = [node(g, Gather(), source, rows) for source, rows in pairs]
        return self.normalized(g, parts, gamma, beta, g.given(ids), mask)

    def rows(self, g: GraphBuilder, ids: str) -> str:
        """The positions of tokens that count from 0."""
        return ints(g, range(g.given(ids).dims[1]))

    def normalized(self, g: GraphBuilder, parts: list[str], gamma: str, beta: str, ids: TensorType, mask: str) -> Any:
        """The three outputs, from embeddings [batch, sequence, hidden] or [sequence, hidden]."""
        total = node(g, Add(), *parts[:2])
        total = node(g, Add(), total, parts[2]) if len(parts) > 2 else total
        y = node(g, LayerNormalization(epsilon=self.epsilon), total, gamma, beta)
        empty = [0] * ids.dims[0]
        count = node(g, ReduceSum(keepdims=False), mask, ints(g, [1])) if mask else g.constant(empty, DType.INT32)
        return y, count, total


def _skipped(x: TensorType, skip: TensorType, gamma: TensorType, *vectors: TensorType | None) -> tuple[TensorType, ...]:
    fits = skip.dims == x.dims or (x.rank == 3 and skip.dims in (x.dims[1:], (1, *x.dims[1:])))
    if x.rank not in (2, 3) or not fits:
        raise ShapeError(
            f"input 'input' is {x}, 'skip' {skip}; accepted: rank 2 or 3, equal shapes, or one skip for all of a batch"
        )
    for name, t in (("gamma", gamma), ("beta or bias", vectors[0]), ("bias", vectors[-1])):
        if t is not None and t.dims != x.dims[-1:]:
            raise ShapeError(f"input {name!r} is {t}; accepted: [{x.dims[-1]}]")
    statistic = TensorType(DType.FLOAT32, (*x.dims[:-1], 1))
    return x.with_shape(x.dims), statistic, statistic, x.with_shape(x.dims)


def _sum(g: GraphBuilder, x: str, skip: str, bias: str) -> str:
    total = node(g, Add(), x, skip)
    return node(g, Add(), total, bias) if bias else total


def _inverse_rms(g: GraphBuilder, x: str, dtype: DType, axes: tuple[int, ...], epsilon: float) -> str:
    inner = DType.FLOAT64 if dtype is DType.FLOAT64 else DType.FLOAT32
    squares = node(g, Pow(), cast(g, x, dtype, inner), g.constant(2, inner))
    mean = node(g, ReduceMean(), squares, ints(g, axes))
    return node(g, Reciprocal(), node(g, Sqrt(), node(g, Add(), mean, g.constant(epsilon, inner))))
