"""Slices: Slice, StridedSlice with its masks, Reverse, Roll."""

from dataclasses import dataclass, field

import numpy as np

from dovetail.frontend import FormatError
from dovetail_frontend_openvino.call import Call, Table

__all__ = ["TABLE"]

_END = 2**63 - 1


def _slice(call: Call) -> str:
    lists = [call.index_list(i) for i in (1, 2)]
    axes = call.index_list(4) if call.has(4) else call.const(list(range(call.size(1, 0) if call.rank(1) else 1)))
    return call.op("Slice", call.name(0), *lists, axes, call.index_list(3))


@dataclass
class _Masks:
    """The action of StridedSlice for each item of its lists. `sliced` are pairs (item, axis of the input)."""

    sliced: list[tuple[int, int]] = field(default_factory=list)
    new: list[int] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)


def _mask(call: Call, name: str, count: int) -> list[bool]:
    given = call.ints_attr(name, ())
    return [bool(given[i]) if i < len(given) else False for i in range(count)]


def _masks(call: Call, count: int) -> _Masks:
    """Items to axes. `new` and `dropped` are axes of the result with all new ones, before those that shrink are dropped."""
    new, shrink, ellipsis = (_mask(call, f"{n}_mask", count) for n in ("new_axis", "shrink_axis", "ellipsis"))
    if sum(ellipsis) > 1:
        raise FormatError("ellipsis_mask has more than one item set", hint="accepted: at most one")
    rest = call.rank(0) - sum(not (n or e) for n, e in zip(new, ellipsis, strict=True)) if any(ellipsis) else 0
    found, axis, position = _Masks(), 0, 0
    for item in range(count):
        if ellipsis[item]:
            axis, position = axis + rest, position + rest
        elif new[item]:
            found.new.append(position)
            position += 1
        else:
            found.sliced.append((item, axis))
            if shrink[item]:
                found.dropped.append(position)
            axis, position = axis + 1, position + 1
    if rest < 0 or axis > call.rank(0):
        raise FormatError(f"begin has {count} items, which with the masks is too much for rank {call.rank(0)}")
    return found


def _strided_slice(call: Call) -> str:
    count = call.size(1, 0)
    masks = _masks(call, count)
    value = _sliced(call, count, masks) if masks.sliced else call.name(0)
    if masks.new:
        value = call.op("Unsqueeze", value, call.const(masks.new))
    if masks.dropped:
        value = call.op("Squeeze", value, call.const(masks.dropped))
    return value


def _sliced(call: Call, count: int, masks: _Masks) -> str:
    """The items begin, end and step that are for axes of the input, as ONNX's Slice takes them."""
    begin_mask, end_mask, shrink = (_mask_of(call, n, count) for n in ("begin", "end", "shrink_axis"))
    steps = call.integers(3, "strides") if call.has(3) else (1,) * count
    if len(steps) != count or 0 in steps:
        raise FormatError(f"the strides are {steps}", hint=f"accepted: {count}, none of them 0")
    items = [item for item, _ in masks.sliced]
    begins, ends, replaced = _bounds(call, count)
    low = [0 if steps[i] > 0 else _END for i in range(count)]
    high = [_END if steps[i] > 0 else -_END for i in range(count)]
    begin = _chosen(call, begins, [begin_mask[i] and not shrink[i] for i in range(count)], low, items)
    if any(shrink):
        after = call.op("Add", begins, call.const([1]))
        after = call.op("Where", call.op("Equal", after, call.const([0])), call.const([_END]), after)
        ends = call.op("Where", call.const(np.array(shrink)), after, replaced)
    end = _chosen(call, ends, [end_mask[i] and not shrink[i] for i in range(count)], high, items)
    step = call.const([1 if shrink[i] else steps[i] for i in items])
    return call.op("Slice", call.name(0), begin, end, call.const([axis for _, axis in masks.sliced]), step)


def _mask_of(call: Call, name: str, count: int) -> list[bool]:
    return _mask(call, f"{name}_mask", count)


def _bounds(call: Call, count: int) -> tuple[str, str, str]:
    if call.shape(2) != (count,):
        raise FormatError(f"begin has {count} items, end the shape {call.shape(2)}", hint="accepted: as many")
    ends = call.index_list(2)
    return call.index_list(1), ends, ends


def _chosen(call: Call, given: str, masked: list[bool], otherwise: list[int], items: list[int]) -> str:
    """The items of a list, some replaced. Done on constants at once, else by nodes."""
    known = call.emitter.known(given)
    if known is not None:
        return call.const([otherwise[i] if masked[i] else int(known[i]) for i in items])
    if any(masked):
        given = call.op("Where", call.const(np.array(masked)), call.const(otherwise), given)
    return given if items == list(range(len(masked))) else call.op("Gather", given, call.const(items), axis=0)


def _reverse(call: Call) -> str:
    axes = call.known(1)
    if axes is None:
        raise FormatError("the axes (input 1) are computed while the model runs", hint="accepted: a constant")
    mask = call.choice_attr("mode", {"index": "", "mask": "mask"})
    chosen = [int(i) for i in (np.flatnonzero(axes) if mask else axes.reshape(-1))]
    if not chosen:
        return call.op("Identity", call.name(0))
    ends = [call.const([value] * len(chosen)) for value in (_END, -_END)]
    return call.op("Slice", call.name(0), *ends, call.const(chosen), call.const([-1] * len(chosen)))


def _roll(call: Call) -> str:
    value, rank = call.name(0), call.rank(0)
    shifts, axes = call.integers(1, "shift"), call.integers(2, "axes")
    if len(shifts) not in (1, len(axes)):
        raise FormatError(f"there are {len(shifts)} shifts and {len(axes)} axes", hint="accepted: one shift, or one an axis")
    for shift, axis in zip(shifts * (len(axes) if len(shifts) == 1 else 1), axes, strict=True):
        at = call.axis(axis, rank)
        size, where = call.shape(0)[at], call.const([at])
        if isinstance(size, int):
            cut = call.const([-shift % size if size else 0])
        else:
            there = call.op("Max", call.op("Shape", call.name(0), start=at, end=at + 1), call.const([1]))
            cut = call.op("Mod", call.const([-shift]), there)
        back = call.op("Slice", value, cut, call.const([_END]), where)
        value = call.op("Concat", back, call.op("Slice", value, call.const([0]), cut, where), axis=at)
    return value


def _slice_scatter(call: Call) -> str:
    """The data with updates where a Slice reads: their places in the flat data are the same slice of its element numbers."""
    x, updates = call.name(0), call.name(1)
    shape, flat = call.op("Shape", x), call.const([-1])
    numbers = call.op("Range", call.const(0), call.op("Size", x), call.const(1))
    axes = call.index_list(5) if call.has(5) else call.const(list(range(call.size(2, 0) if call.rank(2) else 1)))
    bounds = (call.index_list(2), call.index_list(3), axes, call.index_list(4))
    places = call.op("Slice", call.op("Reshape", numbers, shape), *bounds)
    lists = [call.op("Reshape", name, flat) for name in (x, places, updates)]
    return call.op("Reshape", call.op("ScatterElements", *lists, axis=0), shape)


TABLE: Table = {
    "Slice": _slice,
    "SliceScatter": _slice_scatter,
    "StridedSlice": _strided_slice,
    "Reverse": _reverse,
    "Roll": _roll,
}
