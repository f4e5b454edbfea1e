"""MaxPool: the largest element of each window. https://onnx.ai/onnx/operators/onnx__MaxPool.html"""

import math
from collections.abc import Sequence

import numpy as np

from dovetail.op import FLOATS, DType, OperatorError, TensorType
from dovetail_ops_onnx._numerics import lowest
from dovetail_ops_onnx._pooling import Pooling
from dovetail_ops_onnx._types import Array, Types
from dovetail_ops_onnx._windows import windows
from dovetail_ops_onnx.spatial import ConvGeometry


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
        count, kernel = math.prod(geometry.kernel), [(..., *k) for k in np.ndindex(*geometry.kernel)]
        values = windows(X, geometry, lowest(X.dtype))
        inside = windows(np.ones((1, 1, *geometry.input), bool), geometry, False)
        with np.errstate(invalid="ignore"):
            y = values[kernel[0]].copy()
            for k in kernel[1:]:
                np.maximum(y, values[k], out=y)
            has_nan = bool((y != y).any())
            rank = np.zeros(y.shape, np.min_scalar_type(count))  # of the first kernel element that is the maximum, from the end
            for number, k in enumerate(kernel):
                found = values[k] == y
                if has_nan:
                    found |= values[k] != values[k]
                found &= inside[k]
                np.maximum(rank, found * rank.dtype.type(count - number), out=rank)
        return y, self._indices(rank, geometry)

    def _indices(self, rank: Array, g: ConvGeometry) -> Array:
        """The places in X of the kernel elements that are `rank` from the end; -1 where that is 0."""
        steps = [math.prod(g.input[:a] if self.storage_order else g.input[a + 1 :]) for a in range(g.rank)]
        index = np.arange(math.prod(rank.shape[:2])).reshape(*rank.shape[:2], *(1,) * g.rank) * math.prod(g.input)
        for axis, step in enumerate(steps):
            start = (np.arange(g.output[axis]) * g.strides[axis] - g.pads_begin[axis]) * step
            index = index + start.reshape(-1, *(1,) * (g.rank - axis - 1))
        taps = np.indices(g.kernel).reshape(g.rank, -1)
        moves = np.array(steps) * g.dilations @ taps
        index += np.concatenate(([0], moves[::-1])).take(rank)
        if rank.size and not rank.min():
            index[rank == 0] = -1
        return index

    def flops(self, inputs: Types, outputs: Sequence[TensorType]) -> int:
        return outputs[0].size * int(np.prod(self.kernel_shape))
