"""Pad."""

import re

import numpy as np

from dovetail.device import Reason, Refusal, TypedNode
from dovetail_gpu_opencl.broadcast import strides_of
from dovetail_gpu_opencl.kernel import CLKernel, spread
from dovetail_gpu_opencl.kernels._copy import WORDS
from dovetail_gpu_opencl.launch import Argument, Constant, Launch, Read, Write
from dovetail_gpu_opencl.sizes import RuntimeSizes
from dovetail_gpu_opencl.source import MOVABLE, assemble
from dovetail_ops_onnx.pad import Pad, Pad_2

__all__ = ["KERNELS"]

# The source coordinate for a coordinate `c` that may be outside 0 to {n} - 1; {p} is 2 * ({n} - 1), and 1 where that is 0.
_FOLDED = {
    "constant": "c",
    "edge": "clamp(c, 0, {n} - 1)",
    "reflect": "({n} - 1 - abs({n} - 1 - (c % {p} + {p}) % {p}))",
    "wrap": "((c % {n} + {n}) % {n})",
}


class PadKernel(CLKernel):
    """One element a work item: pad.cl."""

    name = "pad"
    dtypes = MOVABLE
    has_epilogue = False
    computes = False

    def check(self, node: TypedNode) -> Refusal | None:
        if any(t is not None and t.value is None for i, t in enumerate(node.inputs) if i in (1, 3)):
            return Refusal(Reason.DYNAMIC, "pads or axes are not constant")
        assert isinstance(node.op, Pad | Pad_2)
        if node.op.mode != "constant" and min(_pads(node), default=0) < 0:
            return Refusal(Reason.ATTRIBUTE, f"negative pads in mode {node.op.mode}")
        return None

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        assert isinstance(node.op, Pad | Pad_2)
        src, dst = node.given(0), node.outputs[0]
        sizes = RuntimeSizes()
        place, inside = _expressions(node.op.mode, src.dims, dst.dims, _begins(node), sizes)
        fill = _fill(node)
        defines = {
            "T": WORDS[dst.dtype.itemsize],
            "SIZE": sizes.number(dst.size, "size"),
            "PLACE(o)": place,
            "INSIDE(o)": inside,
            "HAS_FILL": fill is not None,
            "SIZES": sizes.parameters,
        }
        given = (Read(node.node.inputs[0]), *(() if fill is None else (fill,)))
        work, local = spread(dst.size, self.caps)
        arguments = (*given, Write(node.node.outputs[0]), *sizes.arguments)
        return (Launch("pad.cl", assemble("pad.cl", defines), "pad", arguments, work, local),)


def _pads(node: TypedNode) -> list[int]:
    """All begins, then all ends, of the axes that are named."""
    if isinstance(node.op, Pad_2):
        return list(node.op.pads)
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


def _expressions(
    mode: str, src: tuple[int, ...], dst: tuple[int, ...], begins: list[int], sizes: RuntimeSizes
) -> tuple[str, str]:
    """The source element of output element `o`, and whether there is one, as C expressions."""
    terms, tests, last = ["0"], ["1"], len(dst) - 1
    for axis, (size, whole, begin, step, inner) in enumerate(
        zip(src, dst, begins, strides_of(src), strides_of(dst), strict=True)
    ):
        place = "(o)" if axis == last else f"QUOTIENT((o), {sizes.divisor(inner, ('inner', axis))})"
        place = f"REMAINDER({place}, {sizes.divisor(whole, ('whole', axis))})" if axis else place
        at, count = f"({place} - ({begin}))", sizes.number(size, ("size", axis))
        period = sizes.number(max(1, 2 * (size - 1)), ("period", axis)) if mode == "reflect" else ""
        folded = re.sub(r"\bc\b", at, _FOLDED[mode].format(n=count, p=period))
        terms.append(f"{folded} * {sizes.number(step, ('step', axis))}")
        if mode == "constant":
            tests.append(f"{at} >= 0 && {at} < {count}")
    return " + ".join(terms), " && ".join(tests)


KERNELS = (PadKernel(),)
