"""Host kernels that compute into the result, where a reference makes an array that a device then copies."""

from collections.abc import Sequence
from typing import Any

from dovetail.op import ANY, DType, HostConfig, HostKernel
from dovetail_ops_onnx._types import Types

__all__ = ["IntegersInPlace", "IntoResult"]


class IntoResult(HostKernel):
    """Calls `write(dst, *inputs)` of the operator, which writes all of `dst`. Strings are left to the reference."""

    def configurations(self, op: Any, inputs: Types, outputs: Types) -> Sequence[HostConfig]:
        is_text = any(t is not None and t.dtype is DType.STRING for t in inputs)
        return () if is_text else (HostConfig.uniform(inputs, outputs),)

    def execute(self, op: Any, config: HostConfig, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        op.write(outputs[0], *inputs)


class IntegersInPlace(HostKernel):
    """The ufunc `function` of the operator on integers of NumPy's own types; devices have kernels for other numbers."""

    def configurations(self, op: Any, inputs: Types, outputs: Types) -> Sequence[HostConfig]:
        is_integer = all(t is not None and t.dtype.numpy.kind in "iu" for t in inputs)
        return (HostConfig.uniform(inputs, outputs, ANY, in_place=0),) if is_integer else ()

    def execute(self, op: Any, config: HostConfig, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        op.function(inputs[0], out=outputs[0])
