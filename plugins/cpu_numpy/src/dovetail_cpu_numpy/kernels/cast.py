"""Cast between data types where NumPy's conversion is ONNX's."""

from collections.abc import Iterable
from functools import partial

import numpy as np

from dovetail.device import DType, Reason, Refusal, TypedNode
from dovetail.op import INTEGERS
from dovetail_cpu_numpy.kernel import BLAS, Call, NumpyKernel
from dovetail_cpu_numpy.launch import Launch
from dovetail_ops_onnx.cast import conversion

_WHOLE = INTEGERS | {DType.BOOL}
_HALF = frozenset({DType.FLOAT16, DType.FLOAT32})


class CastCopy(NumpyKernel):
    """A converting copy. From float to integer it is undefined out of range, so that is left to the reference."""

    name = "copy"
    elementwise = True

    def refuse(self, node: TypedNode) -> Refusal | None:
        source, (target,) = node.given(0), node.outputs
        if {source.dtype, target.dtype} == _HALF:
            return None
        if source.dtype in _WHOLE and target.dtype in _WHOLE | BLAS:
            return None
        if source.dtype in BLAS and target.dtype in BLAS | {DType.BOOL}:
            return None
        return Refusal(Reason.DTYPE, f"from {source.dtype} to {target.dtype}")

    def bind(self, call: Call) -> Iterable[Launch]:
        src, dst = call.input(0), call.outputs[0]
        yield conversion(src, dst) if np.float16 in (src.dtype, dst.dtype) else partial(np.copyto, dst, src, "unsafe")


KERNELS = (CastCopy(),)
