"""Gather: https://onnx.ai/onnx/operators/onnx__Gather.html."""

import numpy as np

from dovetail.op import TensorType
from dovetail_ops_onnx._shapes import Movement, check_axis, check_indices
from dovetail_ops_onnx._strings import indexed
from dovetail_ops_onnx._types import BASIC, INDICES, Array


class Gather(Movement):
    """The slices of the data at `indices` along `axis`; negative indices count from the end."""

    inputs = ("data: T", "indices: Tind")
    outputs = ("output: T",)
    propagates_nan = True
    types = {"T": BASIC, "Tind": INDICES}

    axis: int = 0

    def infer(self, data: TensorType, indices: TensorType) -> TensorType:
        """The data's type with the indices' shape in place of the axis."""
        axis = check_axis(self.axis, data.rank)
        return data.with_shape((*data.dims[:axis], *indices.dims, *data.dims[axis + 1 :]))

    def reference(self, data: Array, indices: Array) -> Array:
        """data.take(indices, axis). Raises `OperatorError` for an index out of range."""
        axis = check_axis(self.axis, data.ndim)
        check_indices(indices, data.shape[axis], axis)
        if data.dtype != object:
            return np.asarray(data.take(indices, axis))
        found = np.moveaxis(indexed(np.moveaxis(data, axis, 0), (indices.reshape(-1),)), 0, axis)
        return found.reshape(*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :])
