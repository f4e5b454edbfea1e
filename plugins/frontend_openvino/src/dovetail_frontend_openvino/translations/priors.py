"""PriorBox and PriorBoxClustered: the boxes around each cell of a grid that networks such as SSD move and stretch."""

import math
from dataclasses import dataclass

import numpy as np

from dovetail.frontend import DType, FormatError
from dovetail_frontend_openvino.call import Call, Table

__all__ = ["TABLE"]

_MOST = 4096


@dataclass(frozen=True, slots=True)
class _Prior:
    """A box beside the centre of a cell, in pixels; `clipped` to the picture whatever the attribute `clip` says."""

    width: float
    height: float
    right: float = 0.0
    down: float = 0.0
    clipped: bool = False


def _prior_box(call: Call) -> str:
    if not call.bool_attr("scale_all_sizes", True):
        raise FormatError("scale_all_sizes is false", hint="accepted: true")
    step = call.float_attr("step", 0.0)
    # Without a step the centre is that of the cell, whatever the offset.
    return _boxes(call, _priors(call), (step, step), call.float_attr("offset") if step else 0.5)


def _clustered(call: Call) -> str:
    widths, heights = call.floats_attr("width"), call.floats_attr("height")
    if not widths or len(widths) != len(heights):
        raise FormatError(f"there are {len(widths)} widths and {len(heights)} heights", hint="accepted: one of each for a box")
    step = call.float_attr("step", 0.0)
    steps = call.float_attr("step_w", 0.0), call.float_attr("step_h", 0.0)
    steps = (step, step) if steps == (0, 0) else steps
    return _boxes(call, [_Prior(w, h) for w, h in zip(widths, heights, strict=True)], steps, call.float_attr("offset"))


def _priors(call: Call) -> list[_Prior]:
    smallest, largest = call.floats_attr("min_size", ()), call.floats_attr("max_size", ())
    ratios = _ratios(call)
    found = _dense(call, ratios)
    sizes_first = call.bool_attr("min_max_aspect_ratios_order", True)
    for i, size in enumerate(smallest):
        found.append(_Prior(size, size))
        middle = [_Prior(side, side) for side in (math.sqrt(size * most) for most in largest[i : i + 1])]
        stretched = [_Prior(size * root, size / root) for root in map(math.sqrt, ratios)]
        found += [*middle, *stretched] if sizes_first else [*stretched, *middle]
    if not 0 < len(found) <= _MOST:
        raise FormatError(f"there are {len(found)} boxes a cell", hint=f"accepted: 1 to {_MOST}")
    return found


def _ratios(call: Call) -> list[float]:
    """The ratios but 1, each once, with `flip` also turned round."""
    found = [1.0]
    for ratio in call.floats_attr("aspect_ratio", ()):
        if ratio <= 0:
            raise FormatError(f"aspect_ratio has {ratio}", hint="accepted: numbers above 0")
        if all(abs(ratio - known) >= 1e-6 for known in found):
            found += [ratio, 1 / ratio] if call.bool_attr("flip", False) else [ratio]
    return [ratio for ratio in found if abs(ratio - 1) >= 1e-6]


def _dense(call: Call, ratios: list[float]) -> list[_Prior]:
    """Boxes of fixed sizes, several beside each other in a cell."""
    sizes, counts = call.floats_attr("fixed_size", ()), call.floats_attr("density", ())
    if sizes and len(counts) != len(sizes):
        raise FormatError(f"there are {len(sizes)} fixed sizes and {len(counts)} densities", hint="accepted: as many of both")
    found = []
    for size, count in zip(sizes, map(int, counts), strict=True):
        if not 0 < count <= 64:
            raise FormatError(f"density has {count}", hint="accepted: 1 to 64")
        shift = int(size / count)
        places = [shift / 2 + i * shift - size / 2 for i in range(count)]
        for ratio in call.floats_attr("fixed_ratio", ()) or (1.0, *ratios):
            root = math.sqrt(ratio)
            found += [_Prior(size * root, size / root, right, down, True) for down in places for right in places]
    return found


def _boxes(call: Call, priors: list[_Prior], steps: tuple[float, float], offset: float) -> str:
    """[2, 4 * height * width * priors]: corners, as parts of the picture, and their variances."""
    low, high = zip(*(_edges(call, priors, axis, steps[axis], offset) for axis in (0, 1)), strict=True)
    shape = call.op("Concat", call.index_list(0), call.const([len(priors)]), axis=0)
    corners = [call.op("Unsqueeze", call.op("Expand", edge, shape), call.const([-1])) for edge in (*low, *high)]
    boxes = call.op("Concat", *corners, axis=-1)
    if call.bool_attr("clip", False):
        boxes = call.op("Clip", boxes, _number(call, 0), _number(call, 1))
    variances = call.floats_attr("variance", ()) or (0.1,)
    if len(variances) not in (1, 4):
        raise FormatError(f"there are {len(variances)} variances", hint="accepted: 1 or 4")
    second = call.op("Expand", call.const(np.array(variances, np.float32)), call.op("Shape", boxes))
    rows = [call.op("Reshape", rows, call.const([1, -1])) for rows in (boxes, second)]
    return call.op("Concat", *rows, axis=0)


def _edges(call: Call, priors: list[_Prior], axis: int, step: float, offset: float) -> tuple[str, str]:
    """The lower and upper edges [1, width, priors] along x (axis 0), [height, 1, priors] along y."""
    along = [[p.width, p.right] if axis == 0 else [p.height, p.down] for p in priors]
    half, moved = (
        call.const(np.array(column, np.float32)) for column in zip(*((size / 2, move) for size, move in along), strict=True)
    )
    cells, picture = (call.op("Gather", call.index_list(i), call.const(1 - axis)) for i in (0, 1))
    extent = call.cast(picture, DType.FLOAT32)
    width = _number(call, step) if step else call.op("Div", extent, call.cast(cells, DType.FLOAT32))
    numbers = call.cast(call.op("Range", call.const(0), cells, call.const(1)), DType.FLOAT32)
    centers = call.op("Mul", call.op("Add", numbers, _number(call, offset)), width)
    centers = call.op("Add", call.op("Unsqueeze", centers, call.const([0, 2] if axis == 0 else [1, 2])), moved)
    low, high = (call.op("Div", call.op(sign, centers, half), extent) for sign in ("Sub", "Add"))
    if any(p.clipped for p in priors):
        low = call.op("Max", low, call.const(np.array([0 if p.clipped else -np.inf for p in priors], np.float32)))
        high = call.op("Min", high, call.const(np.array([1 if p.clipped else np.inf for p in priors], np.float32)))
    return low, high


def _number(call: Call, value: float) -> str:
    return call.const(value, DType.FLOAT32)


TABLE: Table = {"PriorBox": _prior_box, "PriorBoxClustered": _clustered}
