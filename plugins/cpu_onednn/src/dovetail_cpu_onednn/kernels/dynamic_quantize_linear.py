"""DynamicQuantizeLinear: the range by NumPy, the quantization by oneDNN's binary primitive."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from dovetail.device import Accepted, Reason, Refusal, TypedNode
from dovetail_cpu_onednn.binding import U8, Arg
from dovetail_cpu_onednn.descriptors import plain
from dovetail_cpu_onednn.kernel import given
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.post_ops import BINARY, ELTWISE
from dovetail_cpu_onednn.python_kernel import Array, Call, PythonKernel, number
from dovetail_cpu_onednn.reference import ReferenceKernel


class DynamicQuantize(PythonKernel):
    """x / scale, rounded, plus the zero point, in one pass after the one that finds the range."""

    name = "dynamic int8"

    def supports(self, node: TypedNode) -> Accepted | Refusal:
        if node.post_ops or len(node.outputs) != 3 or not given(node, 0).size:
            return Refusal(Reason.SHAPE, "no elements, outputs left out, or post-ops")
        return Accepted(self.name)

    def bind(self, node: TypedNode, array: Callable[[str], Array]) -> Iterable[Call]:
        lib, stream = library(), library().stream()
        x, (y, scale, zero) = array(node.node.inputs[0]), map(array, node.node.outputs)
        (reference,) = ReferenceKernel().bind(node, array)
        divisor, shift = np.ones(1, np.float32), np.zeros(1, np.float32)
        one, src, dst = plain((1, 1)), plain(_matrix(x)), plain(_matrix(x), U8)
        chain = [("eltwise", (ELTWISE["round"], 0.0, 0.0)), ("binary", (BINARY["add"], one))]
        pd = lib.describe("binary", BINARY["div"], src, one, dst, attr=lib.attr(chain))
        places = ((Arg.SRC, src, x), (Arg.SRC_1, one, divisor), (Arg.DST, dst, y), (Arg.post_op(1, Arg.SRC_1), one, shift))
        memories = [(arg, lib.memory(desc, int(memory.ctypes.data))) for arg, desc, memory in places]
        launch = lib.launch(lib.primitive(pd), stream, memories)
        call, kept, flat = launch.call, (launch, x, y), x.reshape(-1)
        highest, lowest, ends = np.maximum.reduce, np.minimum.reduce, np.empty(2, np.float32)
        high_end, low_end = ends[:1].reshape(()), ends[1:].reshape(())
        seen: Any = ends.data
        steps, zeros, step_out, zero_out = map(number, (divisor, shift, scale, zero))

        def run() -> int | None:
            # Python's numbers and comparisons: NumPy's functions of single numbers take 5 us together. What goes through
            # memory is rounded to float32 there, once: a difference or quotient of two is the same as in float32.
            assert kept
            highest(flat, out=high_end)
            lowest(flat, out=low_end)
            high, low = seen
            low = 0.0 if low > 0 else low
            steps[0] = (0.0 if high < 0 else high) - low
            steps[0] /= 255
            found = steps[0]
            if not 0 < found < math.inf:
                return reference()
            zeros[0] = -low / found
            zeros[0] = level = min(round(zeros[0]), 255)
            step_out[0], zero_out[0] = found, level
            return call()

        return (run,)


def _matrix(x: Array) -> tuple[int, int]:
    return (x.size // x.shape[-1], x.shape[-1]) if x.ndim else (1, 1)


KERNELS = (DynamicQuantize(),)
