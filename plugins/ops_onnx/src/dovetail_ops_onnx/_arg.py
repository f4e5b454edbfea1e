"""The base of ArgMax and ArgMin."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from dovetail.op import NUMERIC, DType, Operator, ShapeError, TensorType
from dovetail_ops_onnx._elementwise import wide
from dovetail_ops_onnx._shapes import check_axis
from dovetail_ops_onnx._types import Array, Types


class ArgReduction(Operator, ABC):
    """reduced = the index along `axis` of the extreme element: of equal ones the first, or the last with `select_last_index`.

    A NaN counts as the extreme. A subclass defines `position`.
    """

    inputs = ("data: T",)
    outputs = ("reduced: int64",)
    types = {"T": NUMERIC}
    axis: int = 0
    keepdims: bool = True
    select_last_index: bool = False

    def infer(self, data: TensorType) -> TensorType:
        axis = check_axis(self.axis, data.rank)
        if data.dims[axis] == 0:
            raise ShapeError(f"data is {data}: axis {axis} has no elements; accepted: at least one")
        kept = (1,) if self.keepdims else ()
        return TensorType(DType.INT64, (*data.dims[:axis], *kept, *data.dims[axis + 1 :]))

    def reference(self, data: Array) -> Array:
        axis = check_axis(self.axis, data.ndim)
        x = wide(data)
        last = data.shape[axis] - 1
        index = last - self.position(np.flip(x, axis), axis) if self.select_last_index else self.position(x, axis)
        return np.asarray(np.expand_dims(index, axis) if self.keepdims else index, np.int64)

    @abstractmethod
    def position(self, x: Array, axis: int) -> Any:
        """The index of the first extreme element along `axis`, which is dropped."""

    def flops(self, inputs: Types, outputs: Sequence[TensorType]) -> int:
        assert inputs[0] is not None
        return inputs[0].size
