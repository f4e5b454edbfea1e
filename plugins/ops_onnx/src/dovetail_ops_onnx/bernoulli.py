"""Bernoulli: https://onnx.ai/onnx/operators/onnx__Bernoulli.html."""

from dovetail.op import FLOATS, NUMERIC, DType, Operator, TensorType
from dovetail_ops_onnx._random import generator
from dovetail_ops_onnx._types import BOOL, Array


class Bernoulli(Operator):
    """1 with the probability that each element says, else 0. With a seed the same at every run."""

    since = 15
    inputs = ("input: T1",)
    outputs = ("output: T2",)
    types = {"T1": FLOATS, "T2": NUMERIC | BOOL}
    is_random = True

    dtype: DType | None = None
    seed: float | None = None

    def infer(self, x: TensorType) -> TensorType:
        """The input's shape, and its type if none is given."""
        return TensorType(self.dtype or x.dtype, x.dims)

    def reference(self, x: Array) -> Array:
        """1 where a number drawn from 0 to 1 is below the probability."""
        dtype = x.dtype if self.dtype is None else self.dtype.numpy
        return (generator(self.seed).random(x.shape) < x).astype(dtype)
