"""Pad."""

import math
import re
from collections.abc import Sequence

import numpy as np

from dovetail.dataclass import dataclass
from dovetail.device import Reason, Refusal, TypedNode
from dovetail_gpu_opencl.broadcast import strides_of
from dovetail_gpu_opencl.kernel import CLKernel, spread
from dovetail_gpu_opencl.kernels._copy import WORDS
from dovetail_gpu_opencl.launch import Argument, Constant, Launch, Read, Write
from dovetail_gpu_opencl.sizes import RuntimeSizes
from dovetail_gpu_opencl.source import MOVABLE, assemble
from dovetail_ops_onnx.pad import Pad, Pad_2

__all__ = ["KERNELS"]

_ROWS = 16
"""Rows of a work group on CPUs."""

# The source coordinate for a coordinate `c` that may be outside 0 to {n} - 1; {p} is 2 * ({n} - 1), and 1 where that is 0.
_FOLDED = {
    "constant": "c",
    "edge": "clamp(c, 0, {n} - 1)",
    "reflect": "({n} - 1 - abs({n} - 1 - (c % {p} + {p}) % {p}))",
    "wrap": "((c % {n} + {n}) % {n})",
}
# The same where no coordinate is further outside than the source is long, without quotients.
_FOLDED_ONCE = _FOLDED | {
    "reflect": "({n} - 1 - (int)abs({n} - 1 - (int)abs(c)))",
    "wrap": "(c < 0 ? c + {n} : c < {n} ? c : c - {n})",
}


@dataclass(frozen=True, slots=True)
class _Axis:
    """An axis, or neighbouring ones that are padded as one."""

    size: int
    result: int
    begin: int

    @property
    def is_kept(self) -> bool:
        return self.begin == 0 and self.size == self.result

    def folded(self, mode: str, c: str, sizes: RuntimeSizes, key: object) -> str:
        """The source coordinate for the coordinate `c`, as a C expression."""
        if self.is_kept or mode == "constant":
            return c
        once = max(self.begin, self.result - self.size - self.begin) < self.size
        text = (_FOLDED_ONCE if once else _FOLDED)[mode]
        period = sizes.number(max(1, 2 * (self.size - 1)), ("period", key)) if "{p}" in text else ""
        return re.sub(r"\bc\b", c, text.format(n=sizes.number(self.size, ("size", key)), p=period))


class PadKernel(CLKernel):
    """One element a work item: pad.cl; on CPUs one row: pad_rows.cl."""

    name = "pad"
    dtypes = MOVABLE
    has_epilogue = False
    computes = False

    def check(self, node: TypedNode) -> Refusal | None:
        if any(t is not None and t.value is None for i, t in enumerate(node.inputs) if i in (1, 3)):
            return Refusal(Reason.DYNAMIC, "pads or axes are not constant")
        assert isinstance(node.op, Pad)
        if node.op.mode != "constant" and min(_pads(node), default=0) < 0:
            return Refusal(Reason.ATTRIBUTE, f"negative pads in mode {node.op.mode}")
        return None

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        assert isinstance(node.op, Pad)
        dst, mode, fill = node.outputs[0], node.op.mode, _fill(node)
        sizes, axes = RuntimeSizes(), _axes(node)
        given = (Read(node.node.inputs[0]), *(() if fill is None else (fill,)))
        defines = {"T": WORDS[dst.dtype.itemsize], "HAS_FILL": fill is not None}
        if self.caps.kind == "CPU":
            *outer, last = axes
            rows = math.prod(axis.result for axis in outer)
            numbers = {"ROWS": rows, "WIDTH": last.result, "FROM": last.size, "BEGIN": last.begin}
            defines |= {name: sizes.number(number, name) for name, number in numbers.items()}
            if mode != "constant":
                defines["FOLD(c)"] = last.folded(mode, "(c)", sizes, "last")
            entry, parameter, (work, local) = "pad_rows", "r", spread(rows if dst.size else 0, self.caps, _ROWS)
        else:
            outer, entry, parameter, (work, local) = axes, "pad", "o", spread(dst.size, self.caps)
            defines["SIZE"] = sizes.number(dst.size, "size")
        place, inside = _expressions(mode, outer, parameter, sizes)
        defines |= {f"PLACE({parameter})": place, f"INSIDE({parameter})": inside, "SIZES": sizes.parameters}
        arguments = (*given, Write(node.node.outputs[0]), *sizes.arguments)
        return (Launch(f"{entry}.cl", assemble(f"{entry}.cl", defines), entry, arguments, work, local),)


def _pads(node: TypedNode) -> list[int]:
    """All begins, then all ends, of the axes that are named."""
    pads = node.given(1).value
    assert pads is not None
    return [int(pad) for pad in pads.reshape(-1)]


def _begins(node: TypedNode) -> list[int]:
    """The pads before each axis."""
    rank = node.given(0).rank
    named = node.inputs[3] if len(node.inputs) > 3 else None
    axes = range(rank) if named is None or named.value is None else named.value.reshape(-1).tolist()
    begins = [0] * rank
    for axis, begin in zip(axes, _pads(node)[: len(axes)], strict=True):
        begins[axis % rank] = begin
    return begins


def _fill(node: TypedNode) -> Argument | None:
    """The value between the pads; None for zero."""
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        return Read(node.node.inputs[2])
    value = node.op.value if isinstance(node.op, Pad_2) else 0.0
    return Constant(np.array([value], node.outputs[0].dtype.numpy)) if value else None


def _axes(node: TypedNode) -> list[_Axis]:
    """The axes, where neighbours that are not padded count as one; behind an axis that gets one value, such neighbours, too."""
    assert isinstance(node.op, Pad)
    found: list[_Axis] = []
    for axis in map(_Axis, node.given(0).dims, node.outputs[0].dims, _begins(node)):
        if found and axis.is_kept and (found[-1].is_kept or node.op.mode == "constant"):
            before = found.pop()
            axis = _Axis(*(number * axis.size for number in (before.size, before.result, before.begin)))
        found.append(axis)
    return found or [_Axis(1, 1, 0)]


def _expressions(mode: str, axes: Sequence[_Axis], parameter: str, sizes: RuntimeSizes) -> tuple[str, str]:
    """The source element of the output element with this flat index, and whether there is one, as C expressions."""
    terms, tests, last = ["0"], ["1"], len(axes) - 1
    steps, inner = (strides_of([getattr(axis, name) for axis in axes]) for name in ("size", "result"))
    for index, axis in enumerate(axes):
        place = f"({parameter})" if index == last else f"QUOTIENT(({parameter}), {sizes.divisor(inner[index], ('inner', index))})"
        place = f"REMAINDER({place}, {sizes.divisor(axis.result, ('whole', index))})" if index else place
        at = place if axis.is_kept else f"({place} - ({sizes.number(axis.begin, ('begin', index))}))"
        terms.append(f"{axis.folded(mode, at, sizes, index)} * {sizes.number(steps[index], ('step', index))}")
        if mode == "constant" and not axis.is_kept:
            tests.append(f"{at} >= 0 && {at} < {sizes.number(axis.size, ('size', index))}")
    return " + ".join(terms), " && ".join(tests)


KERNELS = (PadKernel(),)
