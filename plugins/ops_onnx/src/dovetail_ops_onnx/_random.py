"""The bases of the operators that fill a tensor with random numbers, and their generator."""

from typing import Any, ClassVar

import numpy as np

from dovetail.op import FLOATS, DType, Operator, TensorType
from dovetail_ops_onnx._shapes import check_dims
from dovetail_ops_onnx._types import BASIC


def generator(seed: float | None) -> np.random.Generator:
    """A generator from a seed, the same at every run, or from the system's entropy without one."""
    return np.random.default_rng(None if seed is None else int(np.float32(seed).view(np.uint32)))


class RandomTensor(Operator):
    """A tensor of the shape and type in its attributes. With a seed the same at every run."""

    inputs: ClassVar[tuple[Any, ...]] = ()
    outputs: ClassVar[tuple[Any, ...]] = ("output: T",)
    types = {"T": FLOATS}
    is_random = True

    shape: tuple[int, ...]
    dtype: DType = DType.FLOAT32
    seed: float | None = None

    def infer(self) -> TensorType:
        """The shape and type given."""
        return TensorType(self.dtype, check_dims(self.shape, "shape"))


class RandomLike(Operator):
    """A tensor of the input's shape, and of its type if none is given. With a seed the same at every run."""

    inputs: ClassVar[tuple[Any, ...]] = ("input: T1",)
    outputs: ClassVar[tuple[Any, ...]] = ("output: T2",)
    types = {"T1": BASIC, "T2": FLOATS}
    is_random = True

    dtype: DType | None = None
    seed: float | None = None

    def infer(self, x: TensorType) -> TensorType:
        """The input's shape."""
        return TensorType(self.dtype or x.dtype, x.dims)
