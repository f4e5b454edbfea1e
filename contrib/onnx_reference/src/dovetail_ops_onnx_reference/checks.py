"""Checks of the assumptions of `onnx.reference` and ONNX's shape inference, before they compute."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dovetail.op import Operator, ShapeError

__all__ = ["check_shapes"]

Shapes = Sequence[tuple[int, ...] | None]


def check_shapes(op: Operator, shapes: Shapes) -> None:
    """Raise `ShapeError` for inputs of shapes that the operator does not take. None is an input left out."""
    if (check := _CHECKS.get(op.op_type)) is not None:
        check(op, shapes)


def _deform_conv(op: Any, shapes: Shapes) -> None:
    """https://onnx.ai/onnx/operators/onnx__DeformConv.html, for images."""
    x, w, offset, bias, mask = (*shapes, None, None)[:5]
    group, offset_group = (1 if n is None else n for n in (op.group, op.offset_group))
    if x is None or w is None or offset is None or {len(x), len(w), len(offset)} != {4}:
        raise ShapeError(f"X, W, offset have the shapes {x}, {w}, {offset}; accepted: four dimensions each")
    if group < 1 or offset_group < 1 or x[1] != w[1] * group or w[0] % group or x[1] % offset_group:
        raise ShapeError(
            f"X is {x}, W is {w}, group is {group}, offset_group is {offset_group}",
            hint="accepted: W [M, C / group, ...] for X [N, C, ...], C a multiple of both groups, M of the first",
        )
    kernel = tuple(op.kernel_shape or w[2:])
    if kernel != w[2:]:
        raise ShapeError(f"kernel_shape is {kernel}, the kernel of W is {w[2:]}; they must be the same")
    taps = offset_group * kernel[0] * kernel[1]
    for name, given, channels in (("offset", offset, 2 * taps), ("mask", mask, taps)):
        if given is not None and (len(given) != 4 or given[:2] != (x[0], channels) or given[2:] != offset[2:]):
            raise ShapeError(f"{name} is {given}; accepted: {(x[0], channels, *offset[2:])}")
    if bias is not None and bias != (w[0],):
        raise ShapeError(f"B is {bias}; accepted: {(w[0],)}")


_CHECKS: Mapping[str, Callable[[Any, Shapes], None]] = {"DeformConv": _deform_conv}
