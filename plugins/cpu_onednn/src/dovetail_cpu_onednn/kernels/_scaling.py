"""Reorders that quantize or dequantize."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.device import PLAIN, LayerConfig, Reason, TypedNode
from dovetail_cpu_onednn.binding import Arg
from dovetail_cpu_onednn.descriptors import describe, tokens
from dovetail_cpu_onednn.kernel import Argument, NodePlan, Refused, Stage, value_argument
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.post_ops import BINARY, ELTWISE

__all__ = ["between_layouts", "quotient", "scaled_reorder"]


def scaled_reorder(node: TypedNode, axis: int, side: int, stored: np.dtype[Any]) -> NodePlan:
    """Input 0 to output 0, the one at `side` quantized by inputs 1 and 2, along `axis` where there are several scales.

    Raises `Refused` for parameters that are not constant, and zero points that differ along the axis.
    """
    lib, src = library(), node.given(0)
    scale, zeros = _parameters(node, stored)
    masks = [("scales", int(side), 1 << (axis % src.rank) if scale.size > 1 else 0)]
    extra = [value_argument(Arg.SCALES | side, scale)]
    if zeros[0]:
        masks.append(("zero_points", int(side), 0))
        extra.append(value_argument(Arg.ZERO_POINTS | side, zeros[:1].astype(np.int32)))
    descs = describe(src), describe(node.outputs[0])
    pd = lib.describe_reorder(*descs, lib.attr((), masks))
    arguments = [
        Argument(arg, place, 0, desc, flexible=True)
        for (arg, place), desc in zip(((Arg.SRC, "input"), (Arg.DST, "output")), descs, strict=True)
    ]
    return NodePlan((Stage(pd, (*arguments, *extra)),))


def quotient(node: TypedNode, axis: int) -> NodePlan:
    """Input 0 divided by its scale, rounded, plus the zero point; data in one layout. Raises as `scaled_reorder` does."""
    lib, src = library(), node.given(0)
    scale, zeros = _parameters(node, np.dtype(np.float32))
    dims = [scale.size if scale.size > 1 and at == axis % src.rank else 1 for at in range(src.rank)]
    divisor = value_argument(Arg.SRC_1, scale.reshape(dims))
    chain = [("eltwise", (ELTWISE["round"], 0.0, 0.0))]
    if zeros[0]:
        chain.append(("eltwise", (ELTWISE["linear"], 1.0, float(zeros[0]))))
    descs = describe(src), describe(node.outputs[0])
    pd = lib.describe("binary", BINARY["div"], descs[0], divisor.desc, descs[1], attr=lib.attr(chain))
    arguments = [Argument(Arg.SRC, "input", 0, descs[0], flexible=True), Argument(Arg.DST, "output", 0, descs[1], flexible=True)]
    return NodePlan((Stage(pd, (*arguments, divisor)),))


def _parameters(node: TypedNode, stored: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Scales and zero points of inputs 1 and 2 as vectors; the latter are equal."""
    scale, zero = node.given(1), node.optional(2)
    if node.post_ops or scale.value is None or (zero is not None and zero.value is None):
        raise Refused(Reason.DYNAMIC, "post-ops, or parameters that are not constant")
    zeros = np.zeros(1, stored) if zero is None or zero.value is None else zero.value.reshape(-1)
    if (zeros != zeros[:1]).any() or not node.given(0).rank or scale.value.dtype != np.float32:
        raise Refused(Reason.ATTRIBUTE, "several zero points, a scalar, or a scale of another type than float32")
    return scale.value.reshape(-1), zeros


def between_layouts(node: TypedNode) -> Sequence[LayerConfig]:
    """Data in any layout, from plain to any and back: changing it costs no more than keeping it.

    With a zero point it stays in its layout: oneDNN 3.2 leaves the zero point out where it transposes in blocks that do not
    divide the axes, as from 7 x 7 pixels of 192 channels.
    """
    rest = (PLAIN,) * (len(node.inputs) - 1)
    layouts = tokens(node.outputs[0].rank)
    found = [LayerConfig((layout, *rest), (layout,)) for layout in layouts]
    if len(node.inputs) > 2 and (zero := node.inputs[2]) is not None and (zero.value is None or zero.value.any()):
        return found
    found += [LayerConfig((PLAIN, *rest), (layout,)) for layout in layouts[1:]]
    return found + [LayerConfig((layout, *rest), (PLAIN,)) for layout in layouts[1:]]
