"""TopK: the k largest or smallest elements along an axis. https://onnx.ai/onnx/operators/onnx__TopK.html"""

from collections.abc import Sequence

import numpy as np

from dovetail.op import NUMERIC, DType, Operator, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx._elementwise import wide
from dovetail_ops_onnx._shapes import check_axis, known
from dovetail_ops_onnx._types import Array, Types


class TopK(Operator):
    """Values and Indices of the K largest (or smallest) elements along `axis`, in order; of equal ones the lower index is first.

    NaN counts as larger than every number. With `sorted` 0 the order is not promised; it is the same here.
    """

    inputs = ("X: T", "K: int64")
    outputs = ("Values: T", "Indices: I")
    types = {"T": NUMERIC, "I": frozenset({DType.INT64})}
    legacy_attributes = {"k": "K"}
    axis: int = -1
    largest: bool = True
    sorted: bool = True

    def infer(self, X: TensorType, K: TensorType) -> tuple[TensorType, TensorType]:
        axis = check_axis(self.axis, X.rank)
        k = _count(known(K, "K"), X.dims[axis])
        shape = (*X.dims[:axis], k, *X.dims[axis + 1 :])
        return X.with_shape(shape), TensorType(DType.INT64, shape)

    def reference(self, X: Array, K: Array) -> tuple[Array, Array]:
        axis = check_axis(self.axis, X.ndim)
        size = X.shape[axis]
        x = wide(X)
        if self.largest:
            # Ascending over the mirrored axis, read backwards: descending, and equal elements keep their order.
            order = size - 1 - np.flip(np.argsort(np.flip(x, axis), axis=axis, kind="stable"), axis)
        else:
            order = np.argsort(x, axis=axis, kind="stable")
        index = np.take(order, np.arange(_count(K, size)), axis=axis).astype(np.int64)
        return np.take_along_axis(X, index, axis=axis), index

    def flops(self, inputs: Types, outputs: Sequence[TensorType]) -> int:
        assert inputs[0] is not None
        return inputs[0].size


def _count(K: Array, size: int) -> int:
    if K.size != 1:
        raise ShapeError(f"K has shape {list(K.shape)}; accepted: one number")
    k = int(K.reshape(()))
    if not 0 <= k <= size:
        raise OperatorError(f"K is {k}; accepted: 0 to {size}, the size of the axis")
    return k
