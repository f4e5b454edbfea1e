"""MaxUnpool: https://onnx.ai/onnx/operators/onnx__MaxUnpool.html."""

import math
from typing import ClassVar

import numpy as np

from dovetail.op import FLOATS, DType, KernelSource, Operator, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx._shapes import are_below, check_dims, ints, known_ints
from dovetail_ops_onnx._types import Array
from dovetail_ops_onnx._written import IntoResult


class MaxUnpool(Operator):
    """Zeros with the elements of X at the places I, which MaxPool has given: its inverse.

    With `output_shape` the result is at the start of zeros of that shape.
    """

    since = 9
    inputs = ("X: T1", "I: T2", "output_shape?: T2")
    outputs = ("output: T1",)
    types = {"T1": FLOATS, "T2": frozenset({DType.INT64})}
    kernels: ClassVar[tuple[KernelSource, ...]] = (IntoResult(),)

    kernel_shape: tuple[int, ...]
    pads: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None

    def infer(self, X: TensorType, index: TensorType, shape: TensorType | None = None) -> TensorType:
        """The shape before the pooling, or the one given."""
        if index.dims != X.dims:
            raise ShapeError(f"input 'X' is {X}, 'I' {index}; accepted: equal shapes")
        return X.with_shape(self._shapes(X.dims, None if shape is None else known_ints(shape, "output_shape"))[1])

    def reference(self, X: Array, index: Array, shape: Array | None = None) -> Array:
        """The elements at their places. Raises `OperatorError` for a place that does not exist."""
        y = np.empty(self._shapes(X.shape, None if shape is None else ints(shape, "output_shape"))[1], X.dtype)
        self.write(y, X, index, shape)
        return y

    def write(self, dst: Array, X: Array, index: Array, shape: Array | None = None) -> None:
        """The same into dst."""
        inner, dims = self._shapes(X.shape, None if shape is None else ints(shape, "output_shape"))
        size = math.prod(inner)
        if index.size and not are_below(index, size):
            raise OperatorError(f"input 'I' has places outside 0 to {size - 1}")
        dst.fill(0)
        y = dst if dims == inner else np.zeros(inner, X.dtype)
        y.reshape(-1)[index.reshape(-1)] = X.reshape(-1)
        if y is not dst:
            dst[tuple(slice(n) for n in inner)] = y

    def _shapes(self, dims: tuple[int, ...], given: tuple[int, ...] | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The shape that the places count in, and that of the output."""
        rank = len(dims) - 2
        strides, pads = self.strides or (1,) * rank, self.pads or (0,) * 2 * rank
        if rank < 1 or (len(self.kernel_shape), len(strides), len(pads)) != (rank, rank, 2 * rank):
            raise ShapeError(
                f"X has shape {list(dims)}, kernel_shape is {self.kernel_shape}; accepted: a number for each spatial axis"
            )
        spatial = [
            (n - 1) * s - pads[i] - pads[i + rank] + k
            for i, (n, s, k) in enumerate(zip(dims[2:], strides, self.kernel_shape, strict=True))
        ]
        inner = check_dims((*dims[:2], *spatial), "the shape before pooling")
        if given is None:
            return inner, inner
        if len(given) != len(inner) or any(g < n for g, n in zip(given, inner, strict=True)):
            raise ShapeError(f"input 'output_shape' is {list(given)}; accepted: {list(inner)} or larger")
        return inner, given
