"""Shared by the operators with int32 sums: constant weights, zero points and scales that are computed while a model runs."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.device import DType, Reason, TypedNode
from dovetail_cpu_onednn.binding import F32, S32, Arg
from dovetail_cpu_onednn.descriptors import number_of, plain
from dovetail_cpu_onednn.kernel import Argument, Refused, Stage
from dovetail_cpu_onednn.kernels._quantized import SHIFT
from dovetail_cpu_onednn.library import library

__all__ = ["require_constant_weights", "scales_of", "weights_zero_point", "zero_point"]


def require_constant_weights(node: TypedNode, any_zero: bool = False) -> None:
    """Raise `Refused` unless input 1 is constant, and its zero point, input 3, is that of int8 weights once shifted.

    With `any_zero` it may be any one number that the node gives.
    """
    tensor, zero = node.given(1), node.inputs[3] if len(node.inputs) > 3 else None
    if tensor.value is None or (zero is not None and zero.value is None):
        raise Refused(Reason.DYNAMIC, "weights or their zero point are not constant")
    zeros = np.zeros(1, np.int32) if zero is None or zero.value is None else zero.value
    if any_zero and zero is not None and zeros.size and (zeros == zeros.flat[0]).all():
        return
    if (zeros != (SHIFT if tensor.dtype is DType.UINT8 else 0)).any():
        raise Refused(Reason.ATTRIBUTE, "weights with a zero point")


def zero_point(node: TypedNode) -> tuple[tuple[Stage, ...], tuple[Argument, ...]]:
    """A stage that brings input 2 into int32, in work buffer 0, where it is computed; and the argument that it becomes."""
    tensor, arg = node.inputs[2] if len(node.inputs) > 2 else None, Arg.ZERO_POINTS | Arg.SRC
    if tensor is None:
        return (), ()
    if tensor.size != 1:
        raise Refused(Reason.SHAPE, f"zero points {tensor}; accepted: one")
    if tensor.value is not None:
        return (), (Argument(arg, "input", 2, plain((1,), S32), repack=_widened),)
    one, wide = plain((1,), number_of(tensor.dtype)), plain((1,), S32)
    moves = (Argument(Arg.SRC, "input", 2, one), Argument(Arg.DST, "scratch", 0, wide))
    return (Stage(library().describe_reorder(one, wide), moves, is_number=True),), (Argument(arg, "scratch", 0, wide),)


def weights_zero_point(node: TypedNode) -> tuple[Argument, ...]:
    """The argument of the one zero point of constant weights, input 3, once these are int8."""
    is_shifted = node.given(1).dtype is DType.UINT8
    return (Argument(Arg.ZERO_POINTS | Arg.WEIGHTS, "input", 3, plain((1,), S32), repack=_shifted if is_shifted else _first),)


def scales_of(node: TypedNode, columns: int) -> tuple[list[tuple[str, int, int]], list[Argument]]:
    """The masks and the arguments of the scales of both factors, inputs 4 and 5, if there are any.

    `columns` is the mask of one number for each column or channel of the result.
    """
    masks, arguments = [], []
    for index, arg in ((4, Arg.SRC), (5, Arg.WEIGHTS)) if len(node.inputs) > 4 else ():
        scale = node.given(index)
        masks.append(("scales", int(arg), 0 if scale.size == 1 else columns))
        arguments.append(Argument(Arg.SCALES | arg, "input", index, plain((scale.size,), F32)))
    return masks, arguments


def _first(zeros: NDArray[Any]) -> NDArray[Any]:
    return zeros.reshape(-1)[:1].astype(np.int32)


def _shifted(zeros: NDArray[Any]) -> NDArray[Any]:
    return _first(zeros) - np.int32(SHIFT)


def _widened(zero: NDArray[Any]) -> NDArray[Any]:
    return zero.reshape(1).astype(np.int32)
