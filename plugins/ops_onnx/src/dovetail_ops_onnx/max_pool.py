"""MaxPool: the largest element of each window. https://onnx.ai/onnx/operators/onnx__MaxPool.html"""

from collections.abc import Sequence

import numpy as np

from dovetail.op import FLOATS, DType, OperatorError, TensorType
from dovetail_ops_onnx._numerics import lowest
from dovetail_ops_onnx._pooling import Pooling
from dovetail_ops_onnx._types import Array, Types
from dovetail_ops_onnx._windows import windows


class MaxPool(Pooling):
    """Y [N, C, O1, ...] = maximum of X [N, C, D1, ...] over windows; Indices = its place in X flattened, padding not counted.

    NaN wins over every number. Of equal elements the first in the window counts. With `storage_order` 1 the spatial part of
    an index is counted in column-major order.
    """

    outputs = ("Y: T", "Indices?: I")
    propagates_nan = True
    types = {"T": FLOATS | {DType.INT8, DType.UINT8}, "I": frozenset({DType.INT64})}
    storage_order: int = 0

    def __post_init__(self) -> None:
        if self.storage_order not in (0, 1):
            raise OperatorError(f"attribute 'storage_order' is {self.storage_order}; accepted: 0 (row major), 1 (column major)")

    def infer(self, X: TensorType) -> tuple[TensorType, TensorType]:
        shape = (*X.dims[:2], *self.geometry(X).output)
        return X.with_shape(shape), TensorType(DType.INT64, shape)

    def reference(self, X: Array) -> tuple[Array, Array]:
        geometry = self.geometry(TensorType.of(X)).trimmed
        size = int(np.prod(geometry.input))
        places = np.arange(size).reshape(geometry.input, order="F" if self.storage_order else "C")
        values = windows(X, geometry, lowest(X.dtype))
        sources = windows(places[None, None], geometry, -1)
        y = np.full((*X.shape[:2], *geometry.output), lowest(X.dtype), X.dtype)
        index = np.full(y.shape, -1, np.int64)
        for k in np.ndindex(*geometry.kernel):
            value, source = values[(..., *k)], sources[(..., *k)]
            with np.errstate(invalid="ignore"):
                better = ((value > y) | ((value != value) & (y == y)) | (index < 0)) & (source >= 0)
            np.copyto(y, value, where=better)
            np.copyto(index, source, where=better)
        planes = np.arange(X.shape[0] * X.shape[1]).reshape(*X.shape[:2], *(1,) * geometry.rank)
        return y, np.where(index < 0, index, index + planes * size)

    def flops(self, inputs: Types, outputs: Sequence[TensorType]) -> int:
        return outputs[0].size * int(np.prod(self.kernel_shape))
