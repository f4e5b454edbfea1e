"""Dropout: https://onnx.ai/onnx/operators/onnx__Dropout.html."""

import numpy as np

from dovetail.errors import DataDependentShape
from dovetail.op import DType, OperatorError, TensorType
from dovetail_ops_onnx._elementwise import computed
from dovetail_ops_onnx._shapes import Movement
from dovetail_ops_onnx._types import BOOL, FLOATS, Array

_FLOAT8 = {DType.FLOAT8_E4M3FN, DType.FLOAT8_E4M3FNUZ, DType.FLOAT8_E5M2, DType.FLOAT8_E5M2FNUZ}
_OLD_FLOATS = FLOATS - {DType.BFLOAT16}


class Dropout(Movement):
    """At inference, and with a ratio of 0, the input as it is and a mask of True. In training each element is dropped by chance.

    What is kept is divided by 1 - ratio. With a `seed` the elements are those that ONNX's reference chooses: the same at
    every run. Outputs of training depend on chance, so that the node runs on the host; else output 0 is a view of the data.
    """

    since = 12
    inputs = ("data: T", "ratio?: T1", "training_mode?: T2")
    outputs = ("output: T", "mask?: T2")
    types = {"T": FLOATS | _FLOAT8, "T1": FLOATS | _FLOAT8, "T2": BOOL}
    is_view = True
    is_random = True

    seed: int | None = None

    def infer(
        self, data: TensorType, ratio: TensorType | None = None, training_mode: TensorType | None = None
    ) -> tuple[TensorType, TensorType]:
        """The data's type, and bools in its shape. Raises `DataDependentShape` unless it is known that nothing is dropped."""
        if training_mode is not None:
            share = np.array(0.5) if ratio is None else ratio.value
            if training_mode.value is None or (np.any(training_mode.value) and (share is None or np.any(share != 0))):
                raise DataDependentShape("whether the output is the input depends on 'training_mode' and 'ratio'")
        return data.with_shape(data.shape), data.with_dtype(DType.BOOL)

    def reference(self, data: Array, ratio: Array | None = None, training_mode: Array | None = None) -> tuple[Array, Array]:
        """A view of the data and True everywhere, or in training the data with elements dropped. Raises `OperatorError`."""
        share = 0.5 if ratio is None else float(np.asarray(ratio, np.float64).reshape(()))
        if training_mode is None or not np.any(training_mode) or share == 0:
            return data.view(), np.ones(data.shape, np.bool_)
        if not 0 <= share < 1:
            raise OperatorError(f"input 'ratio' is {share}; accepted: 0 up to 1, without 1")
        kept = self._drawn(data.shape) >= share
        return computed(lambda x: _masked(np.asarray(x * x.dtype.type(1 / (1 - share))), kept), data), kept

    def _drawn(self, shape: tuple[int, ...]) -> Array:
        """Uniform numbers of [0, 1). The generator that ONNX's reference has takes 3 times as long, and 80 us to begin."""
        if self.seed is None:
            return np.random.default_rng().random(shape, np.float32)
        return np.asarray(np.random.RandomState(self.seed).uniform(0, 1, shape))


def _masked(y: Array, kept: Array) -> Array:
    """y with 0 where it is not kept: by its bits, in a third of the time of a choice."""
    bits = y.view(f"u{y.itemsize}")
    np.multiply(bits, kept, out=bits)
    return y


class TrainingDropout(Dropout):
    """Dropout that drops elements, known before it runs: no view, so that devices plan it like any other node. A pass has it."""

    domain = "dovetail"
    is_view = False

    def infer(
        self, data: TensorType, ratio: TensorType | None = None, training_mode: TensorType | None = None
    ) -> tuple[TensorType, TensorType]:
        """The data's type, and bools in its shape."""
        return data.with_shape(data.shape), data.with_dtype(DType.BOOL)


class Dropout_10(Movement):
    """The input as it is, and a mask of True."""

    since = 10
    inputs = ("data: T",)
    outputs = ("output: T", "mask?: T1")
    types = {"T": _OLD_FLOATS, "T1": BOOL}
    is_view = True

    ratio: float = 0.5

    def infer(self, data: TensorType) -> tuple[TensorType, TensorType]:
        """The data's type, and bools in its shape."""
        return data.with_shape(data.shape), data.with_dtype(DType.BOOL)

    def reference(self, data: Array) -> tuple[Array, Array]:
        """A view of the data, and True everywhere."""
        return data.view(), np.ones(data.shape, np.bool_)


class Dropout_7(Movement):
    """The input as it is, and a mask of ones in the data's type."""

    since = 7
    inputs = ("data: T",)
    outputs = ("output: T", "mask?: T")
    types = {"T": _OLD_FLOATS}
    is_view = True

    ratio: float = 0.5

    def reference(self, data: Array) -> tuple[Array, Array]:
        """A view of the data, and ones."""
        return data.view(), np.ones(data.shape, data.dtype)
