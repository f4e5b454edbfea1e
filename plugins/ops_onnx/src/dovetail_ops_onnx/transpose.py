"""Transpose: https://onnx.ai/onnx/operators/onnx__Transpose.html."""

from collections.abc import Sequence

from dovetail.op import BYXF, PLAIN, Layout, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx._shapes import Movement
from dovetail_ops_onnx._types import ALL, Array, Types


class Transpose(Movement):
    """Output axis i is input axis `perm[i]`; the axes are reversed when perm is left out."""

    inputs = ("data: T",)
    outputs = ("transposed: T",)
    propagates_nan = True
    magnitude = "sum"
    types = {"T": ALL}

    perm: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.perm is not None and sorted(self.perm) != list(range(len(self.perm))):
            raise OperatorError(
                f"attribute 'perm' is {list(self.perm)}; accepted: each of 0 to {len(self.perm) - 1} exactly once"
            )

    def infer(self, data: TensorType) -> TensorType:
        """The data's type with its dimensions in the order of perm."""
        return data.with_shape(tuple(data.dims[axis] for axis in self.order(data.rank)))

    def reference(self, data: Array) -> Array:
        """A transposed view of data."""
        return data.transpose(self.order(data.ndim))

    def order(self, rank: int) -> tuple[int, ...]:
        """perm for an input of this rank. Raises `ShapeError` when it has another length."""
        if self.perm is None:
            return tuple(reversed(range(rank)))
        if len(self.perm) != rank:
            raise ShapeError(f"attribute 'perm' is {list(self.perm)}, the input has rank {rank}; accepted: one entry an axis")
        return self.perm

    def unmoved(self, rank: int) -> Sequence[tuple[Layout, Layout]]:
        """Layouts of data and result between which nothing moves: for channels that go from last to second place, or back."""
        if not 3 <= rank <= 5:
            return ()
        moves = {(PLAIN, BYXF): (0, rank - 1, *range(1, rank - 1)), (BYXF, PLAIN): (0, *range(2, rank), 1)}
        return [layouts for layouts, order in moves.items() if order == self.order(rank)]

    def is_identity(self, inputs: Types, outputs: Sequence[TensorType]) -> bool:
        """True when the order stays."""
        rank = outputs[0].rank
        return self.order(rank) == tuple(range(rank))


class ViewedTranspose(Transpose):
    """A transpose between the layouts that `unmoved` gives: a view, for devices to put in its place."""

    stem = "viewed_transpose"
    is_view = True
