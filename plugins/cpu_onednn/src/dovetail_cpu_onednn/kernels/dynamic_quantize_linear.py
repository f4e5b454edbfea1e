"""DynamicQuantizeLinear: the range by NumPy, the quantization by oneDNN's binary primitive."""

import math
from collections.abc import Callable, Iterable

import numpy as np

from dovetail.device import Accepted, Reason, Refusal, TypedNode
from dovetail_cpu_onednn.binding import U8, Arg
from dovetail_cpu_onednn.bound import Array, BoundKernel, Call, ReferenceKernel
from dovetail_cpu_onednn.chain import BINARY, ELTWISE
from dovetail_cpu_onednn.kernel import given
from dovetail_cpu_onednn.layouts import plain
from dovetail_cpu_onednn.library import library


class DynamicQuantize(BoundKernel):
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
        call, kept = launch.call, (launch, divisor, shift, x, y)
        highest, lowest, none, steps = x.max, x.min, np.float32(0), np.float32(255)

        def run() -> int | None:
            # Python's numbers and comparisons: NumPy's functions of single numbers take 5 us together.
            high, low = highest(), lowest()
            high, low = none if high < 0 else high, none if low > 0 else low
            width = high - low
            if not 0 < width < math.inf:
                return reference()
            assert kept
            found = width / steps
            divisor[0], shift[0] = found, min(round(float(-low / found)), 255)
            scale[...], zero[...] = found, shift[0]
            return call()

        return (run,)


def _matrix(x: Array) -> tuple[int, int]:
    return (x.size // x.shape[-1], x.shape[-1]) if x.ndim else (1, 1)


KERNELS = (DynamicQuantize(),)
