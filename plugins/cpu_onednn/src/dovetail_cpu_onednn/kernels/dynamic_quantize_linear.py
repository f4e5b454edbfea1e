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
        numbers = np.ones(4, np.float32)
        highest, lowest, start = numbers[2:3].reshape(()), numbers[3:].reshape(()), int(numbers.ctypes.data)
        one, src, dst = plain((1, 1)), plain(_matrix(x)), plain(_matrix(x), U8)
        chain = [("eltwise", (ELTWISE["round"], 0.0, 0.0)), ("binary", (BINARY["add"], one))]
        pd = lib.describe("binary", BINARY["div"], src, one, dst, attr=lib.attr(chain))
        places = (
            (Arg.SRC, src, int(x.ctypes.data)),
            (Arg.SRC_1, one, start),
            (Arg.DST, dst, int(y.ctypes.data)),
            (Arg.post_op(1, Arg.SRC_1), one, start + numbers.itemsize),
        )
        launch = lib.launch(lib.primitive(pd), stream, [(arg, lib.memory(desc, address)) for arg, desc, address in places])
        call, kept, flat, maximum, minimum = launch.call, (launch, x, y), x.reshape(-1), np.maximum.reduce, np.minimum.reduce
        seen: Any = numbers.data
        step_out, zero_out = number(scale), number(zero)

        def run() -> int | None:
            # Python's numbers and comparisons: NumPy's functions of single numbers take 5 us together. What goes through
            # memory is rounded to float32 there, once: a difference or quotient of two is the same as in float32.
            assert kept
            maximum(flat, out=highest)
            minimum(flat, out=lowest)
            high, low = seen[2], seen[3]
            low = 0.0 if low > 0 else low
            seen[0] = (0.0 if high < 0 else high) - low
            seen[0] /= 255
            found = seen[0]
            if not 0 < found < math.inf:
                (reference,) = ReferenceKernel().bind(node, array)  # here, because few runs have such data
                return reference()
            seen[1] = -low / found
            seen[1] = level = min(round(seen[1]), 255)
            step_out[0], zero_out[0] = found, level
            return call()

        return (run,)


def _matrix(x: Array) -> tuple[int, int]:
    return (x.size // x.shape[-1], x.shape[-1]) if x.ndim else (1, 1)


KERNELS = (DynamicQuantize(),)
