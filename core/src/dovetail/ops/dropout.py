"""Dropout: https://onnx.ai/onnx/operators/onnx__Dropout.html."""

import numpy as np

from dovetail.op import DType, OperatorError, TensorType
from dovetail.ops._shapes import Movement
from dovetail.ops._types import BOOL, FLOATS, Array

_FLOAT8 = {DType.FLOAT8_E4M3FN, DType.FLOAT8_E4M3FNUZ, DType.FLOAT8_E5M2, DType.FLOAT8_E5M2FNUZ}
_OLD_FLOATS = FLOATS - {DType.BFLOAT16}


class Dropout(Movement):
    """At inference, and with a ratio of 0, the input as it is and a mask of True; other training is refused.

    Output 0 is a view of the data. The mask, when it is asked for, has to be written.
    """

    since = 12
    inputs = ("data: T", "ratio?: T1", "training_mode?: T2")
    outputs = ("output: T", "mask?: T2")
    types = {"T": FLOATS | _FLOAT8, "T1": FLOATS | _FLOAT8, "T2": BOOL}
    is_view = True

    seed: int | None = None

    def infer(
        self, data: TensorType, ratio: TensorType | None = None, training_mode: TensorType | None = None
    ) -> tuple[TensorType, TensorType]:
        """The data's type, and bools in its shape. Raises `OperatorError` when it is not known that nothing is dropped."""
        if training_mode is not None:
            if training_mode.value is None:
                raise OperatorError("input 'training_mode' is not known while planning; accepted: a constant false, or none")
            _refuse_training(training_mode.value, None if ratio is None else ratio.value)
        return data.with_shape(data.shape), data.with_dtype(DType.BOOL)

    def reference(self, data: Array, ratio: Array | None = None, training_mode: Array | None = None) -> tuple[Array, Array]:
        """A view of the data, and True everywhere."""
        if training_mode is not None:
            _refuse_training(training_mode, ratio)
        return data.view(), np.ones(data.shape, np.bool_)


class Dropout_10(Movement):  # noqa: N801  # <op_type>_<since>
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


class Dropout_7(Movement):  # noqa: N801  # <op_type>_<since>
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


def _refuse_training(training_mode: Array, ratio: Array | None) -> None:
    if np.any(training_mode) and (ratio is None or np.any(ratio != 0)):
        raise OperatorError("input 'training_mode' is true; accepted: false", hint="dovetail runs inference only")
