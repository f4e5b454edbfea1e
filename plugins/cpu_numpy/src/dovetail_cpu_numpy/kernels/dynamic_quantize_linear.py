"""DynamicQuantizeLinear, in the buffers of a request."""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from dovetail.device import Reason, Refusal, TypedNode
from dovetail_cpu_numpy.kernel import Call, NumpyKernel
from dovetail_cpu_numpy.launch import Launch, Spec, constant
from dovetail_cpu_numpy.reference import ReferenceKernel


class DynamicQuantize(NumpyKernel):
    """The steps of the definition, each rounded to float32, one after the other in the same memory."""

    name = "in place"

    def refuse(self, node: TypedNode) -> Refusal | None:
        if len(node.outputs) != 3 or not node.given(0).size:
            return Refusal(Reason.SHAPE, "no elements, or outputs left out")
        return None

    def scratch(self, node: TypedNode) -> Sequence[Spec]:
        return ((node.given(0).dims, np.dtype(np.float32)),)

    def bind(self, call: Call) -> Iterable[Launch]:
        x, (y, scale, zero), (levels,) = call.input(0), call.outputs, call.scratch
        (reference,) = ReferenceKernel().bind(call)
        none, all_levels, last = np.float32(0), np.float32(255), constant(255, levels)

        def run() -> None:
            high, low = max(x.max(), none), min(x.min(), none)
            step = (high - low) / all_levels
            if not 0 < step < math.inf:  # zeros, infinities and NaN
                reference()
                return
            shift = np.rint(min(-low / step, all_levels))
            np.divide(x, step, levels)
            np.rint(levels, levels)
            np.add(levels, shift, levels)
            # No level is below 0, but two halves may be rounded up. `np.minimum` with one number is not vectorised.
            levels.clip(none, last, levels)
            np.copyto(y, levels, casting="unsafe")
            scale[()], zero[()] = step, shift

        return (run,)


KERNELS = (DynamicQuantize(),)
