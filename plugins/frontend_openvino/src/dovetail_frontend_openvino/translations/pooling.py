"""Pooling, with fixed windows and adaptive."""

from typing import Any

import numpy as np

from dovetail.frontend import DType, FormatError
from dovetail_frontend_openvino.call import Call, Outputs, Table
from dovetail_frontend_openvino.translations.convolution import AUTO_PAD

__all__ = ["TABLE"]

_MOST_PARTS = 64
_ROUNDING = {"floor": "floor", "ceil": "ceil", "ceil_torch": "ceil_torch"}


def _window(call: Call) -> dict[str, Any]:
    kernel = call.ints_attr("kernel")
    ones, zeros = (1,) * len(kernel), (0,) * len(kernel)
    found: dict[str, Any] = {"kernel_shape": kernel, "strides": call.ints_attr("strides", ones)}
    found["dilations"] = call.ints_attr("dilations", ones)
    auto_pad = call.choice_attr("auto_pad", AUTO_PAD, "explicit")
    if auto_pad != "NOTSET":
        return found | {"auto_pad": auto_pad}
    begins, ends = call.ints_attr("pads_begin", zeros), call.ints_attr("pads_end", zeros)
    lengths = {len(found["strides"]), len(found["dilations"]), len(begins), len(ends), len(kernel)}
    if len(lengths) > 1 or min(found["strides"], default=1) < 1:
        raise FormatError("kernel, strides, dilations, pads_begin and pads_end do not fit each other")
    rounding = call.choice_attr("rounding_type", _ROUNDING, "floor")
    if rounding == "ceil_torch":
        found["ceil_mode"] = 1
    elif rounding == "ceil":
        ends = tuple(e + _missing(call, found, i, begins[i] + e) for i, e in enumerate(ends))
    return found | {"pads": (*begins, *ends)}


def _missing(call: Call, window: dict[str, Any], i: int, pads: int) -> int:
    """Elements missing at the end of axis `i` for its last window, which counts even if all of it is padding (unlike in ONNX)."""
    covered = call.size(0, 2 + i) + pads - ((window["kernel_shape"][i] - 1) * window["dilations"][i] + 1)
    return int(-covered % window["strides"][i])


def _average(call: Call) -> str:
    window = _window(call)
    counted = not call.bool_attr("exclude-pad", True)
    declared = call.ints_attr("pads_end", (0,) * len(window["kernel_shape"]))
    if counted and "pads" in window and window["pads"][len(declared) :] != declared:
        raise FormatError("rounding_type is ceil with exclude-pad false, and the last window reaches beyond the padding")
    return call.op("AveragePool", call.name(0), count_include_pad=int(counted), **window)


def _max(call: Call) -> Outputs:
    window = _window(call)
    if 1 not in call.used:
        return call.op("MaxPool", call.name(0), **window)
    values, indices = call.ops("MaxPool", 2, call.name(0), **window)
    axis = call.axis(call.int_attr("axis", 0), call.rank(0))
    if axis:  # ONNX counts through the whole tensor
        size = call.op("ReduceProd", call.op("Shape", call.name(0), start=axis), keepdims=0)
        indices = call.op("Mod", indices, size)
    dtype = call.type_attr("index_element_type", DType.INT64)
    return values, indices if dtype is DType.INT64 else call.cast(indices, dtype)


def _adaptive_average(call: Call) -> str:
    """Averages are sums weighted the same along each axis: one matrix product an axis, where its size is declared."""
    rank, value = call.rank(0), call.name(0)
    for i, wanted in enumerate(_spatial(call, rank)):
        if wanted == 1:
            value = call.op("ReduceMean", value, call.const([2 + i]), keepdims=1)
            continue
        if not isinstance(call.shape(0)[2 + i], int):
            value = _by_parts(call, value, 2 + i, wanted, "ReduceMean")
            continue
        perm = [axis for axis in range(rank) if axis != 2 + i] + [2 + i]
        back = [perm.index(axis) for axis in range(rank)]
        weights = call.const(_averages(call.size(0, 2 + i), wanted), call.dtype(0))
        value = call.transpose(call.op("MatMul", call.transpose(value, perm), weights), back)
    return value


def _spatial(call: Call, rank: int) -> tuple[int, ...]:
    sizes = call.integers(1, "output_shape")
    if len(sizes) != rank - 2 or not all(0 < size <= 4096 for size in sizes):
        raise FormatError(f"the output shape is {sizes}", hint=f"accepted: {rank - 2} sizes from 1 to 4096")
    return sizes


def _by_parts(call: Call, value: str, axis: int, wanted: int, reduction: str) -> str:
    """The reduction of each of the `wanted` parts, which may overlap, along an axis."""
    if wanted > _MOST_PARTS and not isinstance(call.shape(0)[axis], int):
        raise FormatError(f"the output has size {wanted} at an open dimension", hint=f"accepted: at most {_MOST_PARTS}")
    where, parts = call.const([axis]), []
    for start, end in _part_bounds(call, axis, wanted):
        parts.append(call.op(reduction, call.op("Slice", value, start, end, where), where, keepdims=1))
    return call.op("Concat", *parts, axis=axis)


def _part_bounds(call: Call, axis: int, wanted: int) -> list[tuple[str, str]]:
    size = call.shape(0)[axis]
    if isinstance(size, int):
        return [(call.const([start]), call.const([end])) for start, end in _bounds(size, wanted)]
    there, count = call.op("Shape", call.name(0), start=axis, end=axis + 1), call.const([wanted])

    def place(number: int, further: int) -> str:
        scaled = call.op("Add", call.op("Mul", there, call.const([number])), call.const([further]))
        return call.op("Div", scaled, count)

    return [(place(i, 0), place(i + 1, wanted - 1)) for i in range(wanted)]


def _bounds(size: int, wanted: int) -> list[tuple[int, int]]:
    return [(i * size // wanted, -(-(i + 1) * size // wanted)) for i in range(wanted)]


def _averages(size: int, wanted: int) -> Any:
    if size > 4096:
        raise FormatError(f"a dimension is {size}", hint="accepted: at most 4096")
    weights = np.zeros((size, wanted))
    for i, (start, end) in enumerate(_bounds(size, wanted)):
        weights[start:end, i] = 1 / (end - start) if end > start else 0
    return weights


def _adaptive_max(call: Call) -> Outputs:
    if 1 in call.used:
        raise FormatError("the indices of AdaptiveMaxPool are used", hint="accepted: its values only")
    rank, value = call.rank(0), call.name(0)
    for i, wanted in enumerate(_spatial(call, rank)):
        if wanted == 1:
            value = call.op("ReduceMax", value, call.const([2 + i]), keepdims=1)
        else:
            value = _by_parts(call, value, 2 + i, wanted, "ReduceMax")
    return value


TABLE: Table = {
    "AvgPool": _average,
    "MaxPool": _max,
    "AdaptiveAvgPool": _adaptive_average,
    "AdaptiveMaxPool": _adaptive_max,
}
