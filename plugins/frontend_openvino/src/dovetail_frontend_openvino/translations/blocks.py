"""Blocks of pixels that change places with the batch or the channels, and YOLO's outputs that are arranged so."""

from dovetail.frontend import FormatError
from dovetail_frontend_openvino.call import Call, Table

__all__ = ["TABLE"]


def _blocks(call: Call) -> tuple[int, ...]:
    """The block's size along each dimension behind the batch."""
    first, *sizes = call.integers(1, "block_shape") or (0,)
    if first != 1 or len(sizes) != call.rank(0) - 1 or min(sizes, default=1) < 1:
        raise FormatError(
            f"block_shape is {[first, *sizes]} for an input of rank {call.rank(0)}",
            hint="accepted: 1 for the batch, and a size for each other dimension",
        )
    return tuple(sizes)


def _borders(call: Call, port: int, name: str) -> tuple[int, ...]:
    """How much is added or cut off along each dimension."""
    first, *sizes = call.integers(port, name) or (1,)
    if first or len(sizes) != call.rank(0) - 1 or min(sizes, default=0) < 0:
        raise FormatError(
            f"{name} is {[first, *sizes]} for an input of rank {call.rank(0)}",
            hint="accepted: 0 for the batch, and 0 or more for each other dimension",
        )
    return (0, *sizes)


def _space_to_batch(call: Call) -> str:
    if _is_computed(call):
        return _space_to_batch_computed(call)
    blocks, before, after = _blocks(call), _borders(call, 2, "pads_begin"), _borders(call, 3, "pads_end")
    padded = call.op("Pad", call.name(0), call.const([*before, *after]))
    sizes = [call.size(0, i + 1) + before[i + 1] + after[i + 1] for i in range(len(blocks))]
    if any(size % block for size, block in zip(sizes, blocks, strict=True)):
        raise FormatError(f"the padded sizes {sizes} are not multiples of the block {list(blocks)}")
    inner = [size // block for size, block in zip(sizes, blocks, strict=True)]
    cut = call.op("Reshape", padded, call.const([-1, *(n for pair in zip(inner, blocks, strict=True) for n in pair)]))
    count = len(blocks)
    order = (*(2 * i + 2 for i in range(count)), 0, *(2 * i + 1 for i in range(count)))
    return call.op("Reshape", call.transpose(cut, order), call.const([-1, *inner]))


def _is_computed(call: Call) -> bool:
    """Whether borders or sizes are known only while the model runs."""
    shape = call.value(0).shape
    known = shape is not None and all(isinstance(size, int) for size in shape[1:])
    return not known or call.known(2) is None or call.known(3) is None


def _space_to_batch_computed(call: Call) -> str:
    blocks = _blocks(call)
    count = len(blocks)
    padded = call.op("Pad", call.name(0), call.op("Concat", call.index_list(2), call.index_list(3), axis=0))
    inner = call.op("Div", call.op("Shape", padded, start=1), call.const(blocks))
    column = call.const([count, 1])
    pairs = call.op("Concat", call.op("Reshape", inner, column), call.op("Reshape", call.const(blocks), column), axis=1)
    # With the batch, so that sizes that are not multiples of the block are an error of Reshape.
    shape = call.op("Concat", call.op("Shape", padded, end=1), call.op("Reshape", pairs, call.const([-1])), axis=0)
    order = (*(2 * i + 2 for i in range(count)), 0, *(2 * i + 1 for i in range(count)))
    moved = call.transpose(call.op("Reshape", padded, shape), order)
    return call.op("Reshape", moved, call.op("Concat", call.const([-1]), inner, axis=0))


def _batch_to_space_computed(call: Call) -> str:
    blocks = _blocks(call)
    count = len(blocks)
    sizes = call.op("Shape", call.name(0), start=1)
    cut = call.op("Reshape", call.name(0), call.op("Concat", call.const([*blocks, -1]), sizes, axis=0))
    order = (count, *(axis for i in range(count) for axis in (count + 1 + i, i)))
    whole = call.op("Mul", sizes, call.const(blocks))
    joined = call.op("Reshape", call.transpose(cut, order), call.op("Concat", call.const([-1]), whole, axis=0))
    last = (call.const([1]), call.const([count + 1]), call.const([0]))
    before, after = (call.op("Slice", call.index_list(index), *last) for index in (2, 3))
    return call.op("Slice", joined, before, call.op("Sub", whole, after), call.const(list(range(1, count + 1))))


def _batch_to_space(call: Call) -> str:
    if _is_computed(call):
        return _batch_to_space_computed(call)
    blocks, before, after = _blocks(call), _borders(call, 2, "crops_begin"), _borders(call, 3, "crops_end")
    count, sizes = len(blocks), [call.size(0, i + 1) for i in range(len(blocks))]
    cut = call.op("Reshape", call.name(0), call.const([*blocks, -1, *sizes]))
    order = (count, *(axis for i in range(count) for axis in (count + 1 + i, i)))
    whole = [size * block for size, block in zip(sizes, blocks, strict=True)]
    joined = call.op("Reshape", call.transpose(cut, order), call.const([-1, *whole]))
    if not any((*before[1:], *after[1:])):
        return joined
    ends = [size - crop for size, crop in zip(whole, after[1:], strict=True)]
    return call.op("Slice", joined, call.const(list(before[1:])), call.const(ends), call.const(list(range(1, count + 1))))


def _reorg_yolo(call: Call) -> str:
    """Of a picture of H * stride by W * stride that has a stride^2-th of the channels, each stride-th pixel becomes a channel."""
    _, channels, height, width = call.dims(0) if call.rank(0) == 4 else (0, 0, 0, 0)
    stride = call.ints_attr("stride")[0]
    if stride < 1 or channels < 1 or channels % stride**2 or height % stride or width % stride:
        raise FormatError(f"stride is {stride} for an input {list(call.dims(0))}", hint="accepted: a divisor of all sizes")
    parts = call.op("Reshape", call.name(0), call.const([-1, channels // stride**2, height, stride, width, stride]))
    moved = call.transpose(parts, (0, 3, 5, 1, 2, 4))
    return call.op("Reshape", moved, call.const([-1, channels * stride**2, height // stride, width // stride]))


def _region_yolo(call: Call) -> str:
    """Sigmoid of places and objectness, and of classes unless do_softmax; sizes stay. Each region has these behind each other."""
    coords, classes, softmax = call.int_attr("coords"), call.int_attr("classes"), call.bool_attr("do_softmax", True)
    regions = call.int_attr("num") if softmax else len(call.ints_attr("mask", ()))
    each, channels = coords + 1 + classes, call.size(0, 1)
    if call.rank(0) != 4 or coords < 2 or classes < 1 or regions * each != channels:
        raise FormatError(f"{regions} regions of {coords} coordinates and {classes} classes do not make {channels} channels")
    x = call.op("Reshape", call.name(0), call.const([0, regions, each, -1]))
    sizes = [2, coords - 2, 1, classes]
    kept = [size for size in sizes if size]
    place, *raw, objectness, chances = call.ops("Split", len(kept), x, call.const(kept), axis=2)
    chances = call.op("Softmax", chances, axis=2) if softmax else call.op("Sigmoid", chances)
    parts = [call.op("Sigmoid", place), *raw, call.op("Sigmoid", objectness), chances]
    whole = call.op("Reshape", call.op("Concat", *parts, axis=2), call.op("Shape", call.name(0)))
    if not softmax:
        return whole
    first, last = (call.axis(call.int_attr(name), 4) for name in ("axis", "end_axis"))
    if last != 3:
        raise FormatError(f"end_axis is {last}", hint="accepted: 3, the last")
    return call.op("Reshape", whole, call.const([*[0] * first, -1]))


TABLE: Table = {
    "SpaceToBatch": _space_to_batch,
    "BatchToSpace": _batch_to_space,
    "ReorgYolo": _reorg_yolo,
    "RegionYolo": _region_yolo,
}
