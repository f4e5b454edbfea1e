"""Pictures of cameras (NV12, I420) to RGB or BGR, and the patches of a picture."""

from collections.abc import Callable

import numpy as np

from dovetail.frontend import DType, FormatError
from dovetail_frontend_openvino.call import Call, Table

__all__ = ["TABLE"]

_END = 2**62


def _converted(planes: Callable[[Call], tuple[str, str, str]], order: str) -> Callable[[Call], str]:
    def translate(call: Call) -> str:
        y, u, v = (call.cast(plane, DType.FLOAT32) for plane in planes(call))
        bright = _scaled(call, call.op("Sub", y, _number(call, 16)), 1.164)
        blue, red = (call.op("Sub", plane, _number(call, 128)) for plane in (_doubled(call, u), _doubled(call, v)))
        green = call.op("Sub", call.op("Sub", bright, _scaled(call, red, 0.813)), _scaled(call, blue, 0.391))
        found = {
            "r": call.op("Add", bright, _scaled(call, red, 1.596)),
            "g": green,
            "b": call.op("Add", bright, _scaled(call, blue, 2.018)),
        }
        joined = call.op("Concat", *(found[color] for color in order), axis=-1)
        inside = call.op("Clip", joined, _number(call, 0), _number(call, 255))
        dtype = call.dtype(0)
        return call.cast(call.op("Round", inside) if dtype.is_integer else inside, dtype)

    return translate


def _number(call: Call, value: float) -> str:
    return call.const(value, DType.FLOAT32)


def _scaled(call: Call, value: str, factor: float) -> str:
    return call.op("Mul", value, _number(call, factor))


def _doubled(call: Call, plane: str) -> str:
    """[N, H, W, 1] with each pixel four times."""
    attributes = {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric", "axes": (1, 2)}
    return call.op("Resize", plane, "", call.const(np.array([2, 2], np.float32)), **attributes)


def _rows(call: Call, name: str, start: str, end: str) -> str:
    return call.op("Slice", name, start, end, call.const([1]))


def _height(call: Call) -> str:
    """Two thirds of the rows of a picture in one plane, whose colours are below its brightness."""
    return call.op("Div", call.op("Mul", call.op("Shape", call.name(0), start=1, end=2), call.const([2])), call.const([3]))


def _nv12(call: Call) -> tuple[str, str, str]:
    y, colors = call.name(0), call.name(1) if call.has(1) else ""
    if not colors:
        below = _rows(call, y, _height(call), call.const([_END]))
        halves = call.op("Div", call.op("Shape", y, start=2, end=3), call.const([2]))
        shape = call.op("Concat", call.const([0, 0]), halves, call.const([2]), axis=0)
        y, colors = _rows(call, y, call.const([0]), _height(call)), call.op("Reshape", below, shape)
    u, v = call.ops("Split", 2, colors, axis=3, num_outputs=2)
    return y, u, v


def _i420(call: Call) -> tuple[str, str, str]:
    if call.has(2):
        return call.name(0), call.name(1), call.name(2)
    y = call.name(0)
    below = _rows(call, y, _height(call), call.const([_END]))
    sizes = call.op("Div", call.op("Mul", call.op("Shape", y, start=1, end=3), call.const([1, 1])), call.const([3, 2]))
    planes = call.op("Reshape", below, call.op("Concat", call.const([0, 2]), sizes, axis=0))
    u, v = (call.op("Unsqueeze", call.op("Gather", planes, call.const(i), axis=1), call.const([-1])) for i in (0, 1))
    return _rows(call, y, call.const([0]), _height(call)), u, v


def _patches(call: Call) -> str:
    """[N, rows * columns * C, ...]: the pixels of each window become channels, those of one pixel beside each other."""
    sizes, strides, rates = (call.ints_attr(name) for name in ("sizes", "strides", "rates"))
    if {len(sizes), len(strides), len(rates)} != {2} or min(*sizes, *strides, *rates) < 1:
        raise FormatError("sizes, strides and rates are not two positive numbers each")
    pad = call.choice_attr("auto_pad", {"valid": "", "same_upper": "upper", "same_lower": "lower"})
    counts, borders = [], []
    for axis in (0, 1):
        there, reach = call.size(0, 2 + axis), (sizes[axis] - 1) * rates[axis] + 1
        count = -(-there // strides[axis]) if pad else (there - reach) // strides[axis] + 1
        missing = max((count - 1) * strides[axis] + reach - there, 0) if pad else 0
        counts.append(count)
        borders.append((missing // 2, missing - missing // 2) if pad == "upper" else (missing - missing // 2, missing // 2))
    if min(counts) < 1 or sizes[0] * sizes[1] > 4096:
        raise FormatError(f"sizes are {list(sizes)} for an input {list(call.dims(0))}", hint="accepted: windows inside the input")
    (top, bottom), (left, right) = borders
    x = call.op("Pad", call.name(0), call.const([0, 0, top, left, 0, 0, bottom, right])) if pad else call.name(0)
    parts = []
    for row in range(0, sizes[0] * rates[0], rates[0]):
        for column in range(0, sizes[1] * rates[1], rates[1]):
            ends = [start + (n - 1) * s + 1 for start, n, s in zip((row, column), counts, strides, strict=True)]
            bounds = (call.const([row, column]), call.const(ends), call.const([2, 3]), call.const(list(strides)))
            parts.append(call.op("Slice", x, *bounds))
    return call.op("Concat", *parts, axis=1)


TABLE: Table = {
    "NV12toRGB": _converted(_nv12, "rgb"),
    "NV12toBGR": _converted(_nv12, "bgr"),
    "I420toRGB": _converted(_i420, "rgb"),
    "I420toBGR": _converted(_i420, "bgr"),
    "ExtractImagePatches": _patches,
}
