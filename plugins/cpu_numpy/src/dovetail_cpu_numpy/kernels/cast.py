"""Cast between data types where NumPy's conversion is ONNX's."""

from collections.abc import Iterable
from functools import partial

import numpy as np

from dovetail.device import DType, Reason, Refusal, TypedNode
from dovetail.op import INTEGERS
from dovetail_cpu_numpy.kernel import BLAS, Call, NumpyKernel
from dovetail_cpu_numpy.launch import Launch

_WHOLE = INTEGERS | {DType.BOOL}


class CastCopy(NumpyKernel):
    """A converting copy. From float to integer it is undefined out of range, so that is left to the reference."""

    name = "copy"
    elementwise = True

    def refuse(self, node: TypedNode) -> Refusal | None:
        (source,), (target,) = node.inputs, node.outputs
        assert source is not None
        if source.dtype in _WHOLE and target.dtype in _WHOLE | BLAS:
            return None
        if source.dtype in BLAS and target.dtype in BLAS | {DType.BOOL}:
            return None
        return Refusal(Reason.DTYPE, f"from {source.dtype} to {target.dtype}")

    def bind(self, call: Call) -> Iterable[Launch]:
        yield partial(np.copyto, call.outputs[0], call.input(0), "unsafe")


KERNELS = (CastCopy(),)
