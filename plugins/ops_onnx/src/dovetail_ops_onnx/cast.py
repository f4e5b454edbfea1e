"""Cast: https://onnx.ai/onnx/operators/onnx__Cast.html."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from dovetail.op import DType, HostConfig, HostKernel, KernelSource, Operator, OperatorError, TensorType
from dovetail_ops_onnx._casts import cast, write_integers
from dovetail_ops_onnx._halves import conversion
from dovetail_ops_onnx._types import ALL, FLOAT6, Array, Types

__all__ = ["Cast", "conversion"]

_TYPES = (ALL | FLOAT6) - {DType.COMPLEX64, DType.COMPLEX128}
_ROUND_MODES = ("up", "down", "nearest")


class ToIntegers(HostKernel):
    """Floats to NumPy's own integers, written into the result."""

    def configurations(self, op: "Cast", inputs: Types, outputs: Types) -> Sequence[HostConfig]:
        x, y = inputs[0], outputs[0]
        is_float = x is not None and x.dtype in (DType.FLOAT32, DType.FLOAT64)
        return (HostConfig.uniform(inputs, outputs),) if is_float and y is not None and y.dtype.numpy.kind in "iu" else ()

    def execute(self, op: "Cast", config: HostConfig, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        with np.errstate(all="ignore"):
            write_integers(outputs[0], inputs[0])


class Cast(Operator):
    """Each element converted to the type `to`; see `dovetail_ops_onnx._casts` for what ONNX leaves open."""

    inputs = ("input: T1",)
    outputs = ("output: T2",)
    types = {"T1": _TYPES, "T2": _TYPES}
    kernels: ClassVar[tuple[KernelSource, ...]] = (ToIntegers(),)

    to: DType
    saturate: bool = True
    round_mode: str = "up"

    def __post_init__(self) -> None:
        if self.to not in _TYPES:
            raise OperatorError(f"attribute 'to' is {self.to}; accepted: every type that is not complex")
        if self.round_mode not in _ROUND_MODES:
            raise OperatorError(f"attribute 'round_mode' is {self.round_mode!r}; accepted: {', '.join(_ROUND_MODES)}")

    def infer(self, x: TensorType) -> TensorType:
        """The input's shape with the type `to`."""
        return x.with_dtype(self.to)

    def reference(self, x: Array) -> Array:
        """x as `to`."""
        return cast(x, self.to, saturate=self.saturate, round_mode=self.round_mode)

    def is_identity(self, inputs: Types, outputs: Sequence[TensorType]) -> bool:
        """True when the input has the type already."""
        return inputs[0] == outputs[0]
