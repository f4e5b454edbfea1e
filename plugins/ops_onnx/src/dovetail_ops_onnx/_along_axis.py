"""Shared by Softmax, LogSoftmax and Hardmax: an axis, or everything from an axis on before operator set 13."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from dovetail.op import FLOATS, Operator, TensorType
from dovetail_ops_onnx._axes import flattened
from dovetail_ops_onnx._shapes import check_axis
from dovetail_ops_onnx._types import Array, Types


class _SameType(Operator):
    inputs = ("input: T",)
    outputs = ("output: T",)
    types = {"T": FLOATS}
    work: ClassVar[int] = 5
    """Floating-point operations an element."""
    axis: int

    @abstractmethod
    def compute(self, X: Array, axis: int) -> Array:
        """The result along one axis."""

    def infer(self, X: TensorType) -> TensorType:
        check_axis(self.axis, X.rank)
        return X.with_shape(X.dims)

    def flops(self, inputs: Types, outputs: Sequence[TensorType]) -> int:
        return self.work * outputs[0].size


class AlongAxis(_SameType):
    """Base of operators along `axis`, since version 13."""

    since = 13
    axis: int = -1

    def reference(self, X: Array) -> Array:
        return self.compute(X, self.axis)


class Flattened(_SameType):
    """Base of their older versions: the input is taken as a matrix, flattened before and from `axis`.

    A vector has no axis 1, which is the default: it is one row, as in the reference implementation of ONNX.
    """

    axis: int = 1

    def infer(self, X: TensorType) -> TensorType:
        _row_axis(self.axis, X.rank)
        return X.with_shape(X.dims)

    def reference(self, X: Array) -> Array:
        rows = X.reshape(flattened(X.shape, _row_axis(self.axis, X.ndim)))
        return self.compute(rows, 1).reshape(X.shape)


def _row_axis(axis: int, rank: int) -> int:
    """The first axis of a row, counted from the front. Raises `ShapeError` for one out of range."""
    return 0 if axis == rank == 1 else check_axis(axis, rank)
