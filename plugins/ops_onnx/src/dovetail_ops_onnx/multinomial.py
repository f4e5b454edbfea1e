"""Multinomial: https://onnx.ai/onnx/operators/onnx__Multinomial.html."""

import numpy as np

from dovetail.op import FLOATS, DType, Operator, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx._random import generator
from dovetail_ops_onnx._types import INDICES, Array


class Multinomial(Operator):
    """For each row of unnormalised log-probabilities [N, classes] the classes [N, sample_size] that were drawn."""

    since = 7
    inputs = ("input: T1",)
    outputs = ("output: T2",)
    types = {"T1": FLOATS, "T2": INDICES}
    is_random = True

    dtype: DType = DType.INT32
    sample_size: int = 1
    seed: float | None = None

    def __post_init__(self) -> None:
        if self.dtype not in INDICES or self.sample_size < 1:
            given = f"'dtype' {self.dtype}, 'sample_size' {self.sample_size}"
            raise OperatorError(f"attributes {given}; accepted: int32 or int64, and 1 or more")

    def infer(self, x: TensorType) -> TensorType:
        """[N, sample_size]."""
        if x.rank != 2 or not x.dims[1]:
            raise ShapeError(f"the input is {x}; accepted: [N, classes] with a class at least")
        return TensorType(self.dtype, (x.dims[0], self.sample_size))

    def reference(self, x: Array) -> Array:
        """The class in whose part of the summed probabilities a number from 0 to 1 falls."""
        with np.errstate(all="ignore"):
            wide = x.astype(np.float64)
            summed = np.cumsum(np.exp(wide - wide.max(1, keepdims=True)), 1)
            drawn = generator(self.seed).random((len(x), self.sample_size)) * summed[:, -1:]
        found = [np.searchsorted(row, numbers, "right") for row, numbers in zip(summed, drawn, strict=True)]
        chosen: Array = np.minimum(np.array(found).reshape(drawn.shape), x.shape[1] - 1).astype(self.dtype.numpy)
        return chosen
