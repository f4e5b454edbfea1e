"""Convolutions, forward and transposed, with and without groups."""

from typing import Any

from dovetail.frontend import DType, FormatError
from dovetail_frontend_openvino.call import Call, Table

__all__ = ["AUTO_PAD", "TABLE"]

AUTO_PAD = {"explicit": "NOTSET", "notset": "NOTSET", "same_upper": "SAME_UPPER", "same_lower": "SAME_LOWER", "valid": "VALID"}


def _window(call: Call, spatial: int) -> dict[str, Any]:
    """Attributes of ONNX that both kinds share."""
    found: dict[str, Any] = {
        "strides": call.ints_attr("strides", (1,) * spatial),
        "dilations": call.ints_attr("dilations", (1,) * spatial),
    }
    auto_pad = call.choice_attr("auto_pad", AUTO_PAD, "explicit")
    if auto_pad == "NOTSET":
        found["pads"] = (*call.ints_attr("pads_begin", (0,) * spatial), *call.ints_attr("pads_end", (0,) * spatial))
    else:
        found["auto_pad"] = auto_pad
    return found


def _convolution(call: Call) -> str:
    return _convolved(call, call.name(1), **_window(call, call.rank(1) - 2))


def _group_convolution(call: Call) -> str:
    group, weights = _merged(call, 1)
    return _convolved(call, weights, group=group, **_window(call, call.rank(1) - 3))


def _convolved(call: Call, weights: str, **attributes: Any) -> str:
    """ONNX's Conv has no integers, which dynamically quantized models convolve: their sums are exact in float64."""
    dtype = call.value(0).dtype
    if dtype is None or not dtype.is_integer:
        return call.op("Conv", call.name(0), weights, **attributes)
    factors = (call.cast(name, DType.FLOAT64) for name in (call.name(0), weights))
    return call.cast(call.op("Conv", *factors, **attributes), dtype)


def _merged(call: Call, keep: int) -> tuple[int, str]:
    """The number of groups, and weights [G, A, B, ...] as ONNX has them: [G * A, B, ...]."""
    if call.rank(1) < 3:
        raise FormatError(f"the weights have rank {call.rank(1)}", hint="accepted: groups, channels, channels, and the window")
    sizes = [call.size(1, axis) for axis in range(1 + keep, call.rank(1))]
    return call.size(1, 0), call.op("Reshape", call.name(1), call.const([-1, *sizes]))


def _backprop(call: Call) -> str:
    return _transposed(call, call.name(1), call.rank(1) - 2, {})


def _group_backprop(call: Call) -> str:
    group, weights = _merged(call, 1)
    return _transposed(call, weights, call.rank(1) - 3, {"group": group})


def _transposed(call: Call, weights: str, spatial: int, attributes: dict[str, Any]) -> str:
    window = _window(call, spatial) | attributes
    padding = call.ints_attr("output_padding", (0,) * spatial)
    if call.has(2):
        upper = window.pop("auto_pad", "NOTSET")
        if call.known(2) is None or not all(isinstance(size, int) for size in (call.value(0).shape or ("?",) * 3)[2:]):
            return _cropped(call, weights, window, padding, upper)
        window["pads"], padding = _left_over(call, window, spatial, padding, upper)
    elif "auto_pad" in window:
        raise FormatError("auto_pad without an output shape (input 2)", hint="accepted: explicit pads, or an output shape")
    if any(padding):
        window["output_padding"] = padding
    return call.op("ConvTranspose", call.name(0), weights, **window)


def _left_over(
    call: Call, window: dict[str, Any], spatial: int, padding: tuple[int, ...], auto_pad: str
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Pads that give the output shape, and what must be added behind. An odd one is at the start for SAME_UPPER."""
    wanted = call.integers(2, "output_shape")
    given = window.pop("pads", (0,) * 2 * spatial)
    lists = (window["strides"], window["dilations"], wanted, padding, given[:spatial])
    if {len(values) for values in lists} != {spatial}:
        raise FormatError(f"strides, dilations, pads, output_padding and the output shape do not all have {spatial} items")
    begins, ends, added = [], [], []
    for i in range(spatial):
        kernel = (call.size(1, i - spatial) - 1) * window["dilations"][i] + 1
        total = (call.size(0, 2 + i) - 1) * window["strides"][i] + kernel + padding[i] - wanted[i]
        half = total // 2 if auto_pad == "SAME_LOWER" else total - total // 2
        begin = given[i] if auto_pad == "NOTSET" else max(0, half)
        begins.append(begin)
        ends.append(max(0, total - begin))
        added.append(padding[i] + max(0, begin - total))
    return (*begins, *ends), tuple(added)


def _cropped(call: Call, weights: str, window: dict[str, Any], padding: tuple[int, ...], auto_pad: str) -> str:
    """The sizes are computed while the model runs: the whole result, of which a Slice takes the output shape."""
    spatial = len(window["strides"])
    given = window.pop("pads", (0,) * 2 * spatial)
    kernels = [(call.size(1, axis - spatial) - 1) * window["dilations"][axis] + 1 for axis in range(spatial)]
    # Where windows leave gaps, elements without any window may follow the last one.
    further = tuple(max(p, s - k) for p, s, k in zip(padding, window["strides"], kernels, strict=True))
    whole = call.op("ConvTranspose", call.name(0), weights, **window, **({"output_padding": further} if any(further) else {}))
    wanted = call.index_list(2)
    if auto_pad == "NOTSET":
        begin = call.const(given[:spatial])
    else:
        extra = call.const([f - p for f, p in zip(further, padding, strict=True)])
        size = call.op("Sub", call.op("Shape", whole, start=2), extra)
        total = call.op("Max", call.op("Sub", size, wanted), call.const([0]))
        half = call.op("Div", total, call.const([2]))
        begin = half if auto_pad == "SAME_LOWER" else call.op("Sub", total, half)
    end, axes = call.op("Add", begin, wanted), call.const(list(range(2, 2 + spatial)))
    missing = call.op("Max", call.op("Sub", end, call.op("Shape", whole, start=2)), call.const([0]))
    none = call.const([0] * spatial)
    filled = call.op("Pad", whole, call.op("Concat", none, missing, axis=0), "", axes)
    return call.op("Slice", filled, begin, end, axes)


def _deformable(call: Call) -> str:
    """Version 1, and version 8 with a mask. ONNX's takes the border as zeros that are interpolated with."""
    window = _window(call, call.rank(2) - 2)
    if "auto_pad" in window:
        raise FormatError("auto_pad is not explicit", hint="accepted: explicit pads")
    if not call.bool_attr("bilinear_interpolation_pad", False):
        raise FormatError("the attribute 'bilinear_interpolation_pad' is false", hint="accepted: true")
    groups = {"group": call.int_attr("group", 1), "offset_group": call.int_attr("deformable_group", 1)}
    mask = ("", call.name(3)) if call.has(3) else ()
    return call.op("DeformConv", call.name(0), call.name(2), call.name(1), *mask, **window, **groups)


def _col2im(call: Call) -> str:
    window = _window(call, 2)
    alone = call.rank(0) == 2  # without a batch
    x = call.op("Unsqueeze", call.name(0), call.const([0])) if alone else call.name(0)
    image = call.op("Col2Im", x, call.index_list(1), call.index_list(2), **window)
    return call.op("Squeeze", image, call.const([0])) if alone else image


TABLE: Table = {
    "Convolution": _convolution,
    "DeformableConvolution": _deformable,
    "Col2Im": _col2im,
    "GroupConvolution": _group_convolution,
    "ConvolutionBackpropData": _backprop,
    "GroupConvolutionBackpropData": _group_backprop,
}
