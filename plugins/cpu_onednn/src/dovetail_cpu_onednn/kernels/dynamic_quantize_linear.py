"""DynamicQuantizeLinear: the range by NumPy, the quantization by oneDNN's binary primitive."""

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from dovetail.device import PLAIN, Accepted, LayerConfig, Reason, Refusal, TypedNode
from dovetail_cpu_onednn.binding import DESCRIPTORS, U8, Arg, Memory, MemoryDesc, PrimitiveDesc
from dovetail_cpu_onednn.descriptors import plain, tokens
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.post_ops import BINARY, ELTWISE
from dovetail_cpu_onednn.python_kernel import Array, Call, PythonKernel, Values
from dovetail_cpu_onednn.reference import ReferenceKernel


class DynamicQuantize(PythonKernel):
    """x / scale, rounded, plus the zero point, in one pass after the one that finds the range."""

    name = "dynamic int8"
    stops_nan = True

    def supports(self, node: TypedNode) -> Accepted | Refusal:
        if node.post_ops or len(node.outputs) != 3 or not node.given(0).size:
            return Refusal(Reason.SHAPE, "no elements, outputs left out, or post-ops")
        return Accepted(self.name)

    def is_guarded(self, node: TypedNode) -> bool:
        return True  # the range shows NaN, so that no other pass has to look for it

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        # Not in blocks, in which neither the primitive's result nor the range should have channels that fill them up.
        layouts = (layout for layout in tokens(node.given(0).rank) if not layout.block)
        return [LayerConfig((layout,), (layout, PLAIN, PLAIN)) for layout in layouts]

    def primitives(self, node: TypedNode) -> Sequence[PrimitiveDesc]:
        return _quantization(_matrix(node.given(0).memory_dims), library().planned_threads)[:1]

    def bind(self, node: TypedNode, array: Values) -> Iterable[Call]:
        lib, source, (result, scale, zero) = library(), node.node.inputs[0], node.node.outputs
        x = array(source)
        numbers, step, offset, highest, lowest = array.shared(_numbers)
        desc, src, dst = _quantization(_matrix(x.shape), lib.planned_threads)
        bound = [
            (Arg.SRC, array.memory(source, src)),
            (Arg.SRC_1, step),
            (Arg.DST, array.memory(result, dst)),
            (Arg.post_op(1, Arg.SRC_1), offset),
        ]
        launch = lib.launch(lib.primitive(desc), array.stream, bound)
        call, kept, flat, maximum, minimum = launch.call, (launch, numbers), x.reshape(-1), np.maximum.reduce, np.minimum.reduce
        seen: Any = numbers.data
        step_out, zero_out = array.number(scale), array.number(zero)

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
                return array.refused(node, reference)()
            seen[1] = -low / found
            seen[1] = level = min(round(seen[1]), 255)
            step_out[0], zero_out[0] = found, level
            return call()

        return (run,)


def _numbers() -> tuple[Array, Memory, Memory, Array, Array]:
    """Four numbers that primitives read during a run, with memory objects of the first two and arrays of the others: the scale,
    the zero point, and the greatest and the least element, from which these are computed.
    """
    numbers, one = np.empty(4, np.float32), plain((1, 1))
    start = int(numbers.ctypes.data)
    memories = library().memory(one, start), library().memory(one, start + numbers.itemsize)
    return numbers, *memories, numbers[2, ...], numbers[3, ...]


@lru_cache(DESCRIPTORS)
def _quantization(dims: tuple[int, int], threads: int) -> tuple[PrimitiveDesc, MemoryDesc, MemoryDesc]:
    """The primitive for numbers of these dimensions, and so many threads, with the descriptors of both: models repeat sizes."""
    lib, one, src, dst = library(), plain((1, 1)), plain(dims), plain(dims, U8)
    chain = [("eltwise", (ELTWISE["round"], 0.0, 0.0)), ("binary", (BINARY["add"], one))]
    return lib.describe("binary", BINARY["div"], src, one, dst, attr=lib.attr(chain)), src, dst


def _matrix(dims: Sequence[int]) -> tuple[int, int]:
    return (math.prod(dims[:-1]), dims[-1]) if dims else (1, 1)


KERNELS = (DynamicQuantize(),)
