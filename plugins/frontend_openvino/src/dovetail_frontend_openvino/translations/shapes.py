"""Operations on shapes: reshaping, order of dimensions, repetition, blocks, ranges."""

from typing import Any

import numpy as np

from dovetail.frontend import DType, FormatError
from dovetail_frontend_openvino.call import Call, Outputs, Table

__all__ = ["TABLE"]


def _reshape(call: Call) -> str:
    return call.op("Reshape", call.name(0), call.index_list(1), allowzero=int(not call.bool_attr("special_zero", False)))


def _squeeze(call: Call) -> str:
    return call.op("Squeeze", call.name(0), call.index_list(1)) if call.has(1) else call.op("Squeeze", call.name(0))


def _transpose(call: Call) -> str:
    order = call.integers(1, "order")
    return call.op("Transpose", call.name(0), **({"perm": order} if order else {}))


def _concat(call: Call) -> str:
    return call.op("Concat", *call.names, axis=call.int_attr("axis"))


def _split(call: Call) -> Outputs:
    count = call.int_attr("num_splits")
    _check_outputs(call, count)
    return call.ops("Split", count, call.name(0), axis=call.integer(1, "axis"), num_outputs=count)


def _check_outputs(call: Call, count: int) -> None:
    if count != len(call.layer.outputs):
        raise FormatError(f"the layer has {len(call.layer.outputs)} output ports; it splits into {count}")


def _variadic_split(call: Call) -> Outputs:
    axis, known = call.integer(1, "axis"), call.known(2)
    lengths = call.index_list(2)
    if known is None or (known < 0).any():  # -1 stands for what the others leave
        axis = call.axis(axis, call.rank(0))
        whole = call.op("Shape", call.name(0), start=axis, end=axis + 1)
        rest = call.op("Sub", whole, call.op("Add", call.op("ReduceSum", lengths, keepdims=1), call.const([1])))
        lengths = call.op("Where", call.op("Less", lengths, call.const([0])), rest, lengths)
    count = len(call.layer.outputs)
    if known is not None:
        _check_outputs(call, known.size)
    return call.ops("Split", count, call.name(0), lengths, axis=axis)


def _tile(call: Call) -> str:
    rank, repeats, x = call.rank(0), call.index_list(1), call.name(0)
    count = call.size(1, 0) if call.rank(1) else 1
    if count > rank:
        x = call.op("Unsqueeze", x, call.const(list(range(count - rank))))
    elif count < rank:
        repeats = call.op("Concat", call.const([1] * (rank - count)), repeats, axis=0)
    return call.op("Tile", x, repeats)


def _broadcast(call: Call) -> str:
    mode = call.choice_attr("mode", {"numpy": "numpy", "bidirectional": "numpy", "explicit": "explicit"}, "numpy")
    if mode == "numpy":
        return call.op("Expand", call.name(0), call.index_list(1))
    rank = call.size(1, 0)
    axes = call.axes(2, rank)
    if len(axes) != call.rank(0) or list(axes) != sorted(axes):
        raise FormatError(
            f"the axes mapping is {axes} for an input of rank {call.rank(0)}", hint="accepted: rising, one a dimension"
        )
    others = [axis for axis in range(rank) if axis not in axes]
    x = call.op("Unsqueeze", call.name(0), call.const(others)) if others else call.name(0)
    return call.op("Expand", x, call.index_list(1))


def _shape_of(call: Call) -> str:
    shape = call.op("Shape", call.name(0))
    dtype = call.type_attr("output_type", DType.INT64)
    return shape if dtype is DType.INT64 else call.cast(shape, dtype)


def _range(call: Call) -> str:
    dtype = call.type_attr("output_type", call.value(0).dtype or DType.INT64)
    bounds = (call.name(i) if call.value(i).dtype is dtype else call.cast(call.name(i), dtype) for i in range(3))
    return call.op("Range", *bounds)


def _depth_to_space(call: Call) -> str:
    _check_image(call)
    mode = call.choice_attr("mode", {"blocks_first": "DCR", "depth_first": "CRD"})
    return call.op("DepthToSpace", call.name(0), blocksize=call.int_attr("block_size", 1), mode=mode)


def _space_to_depth(call: Call) -> str:
    _check_image(call)
    block = call.int_attr("block_size", 1)
    blocks = call.op("SpaceToDepth", call.name(0), blocksize=block)
    if call.choice_attr("mode", {"blocks_first": "blocks", "depth_first": "depth"}) == "blocks":
        return blocks
    channels = call.size(0, 1)
    if not 0 < channels * block * block < 2**20:
        raise FormatError(f"{channels} channels and block_size {block} are too many, or too few")
    order = np.arange(channels * block * block).reshape(block * block, channels).T
    return call.op("Gather", blocks, call.const(order.reshape(-1)), axis=1)


def _check_image(call: Call) -> None:
    if call.rank(0) != 4:
        raise FormatError(f"the input has rank {call.rank(0)}", hint="accepted: 4, [N, C, H, W]")


def _shuffle_channels(call: Call) -> str:
    axis, group, rank = call.axis(call.int_attr("axis", 1), call.rank(0)), call.int_attr("group", 1), call.rank(0)
    channels = call.size(0, axis)
    if group < 1 or channels % group or channels > 2**20:
        raise FormatError(f"group is {group} for {channels} channels of axis {axis} of {rank}", hint="accepted: a divisor")
    order = np.arange(channels).reshape(group, channels // group).T
    return call.op("Gather", call.name(0), call.const(order.reshape(-1)), axis=axis)


def _pad(call: Call) -> str:
    mode = call.choice_attr("pad_mode", {m: m for m in ("constant", "edge", "reflect", "symmetric")})
    if mode == "symmetric":
        return _symmetric(call)
    pads = call.op("Concat", call.index_list(1), call.index_list(2), axis=0)
    value = [call.op("Reshape", call.name(3), call.const(np.zeros(0, np.int64)))] if call.has(3) and mode == "constant" else []
    return call.op("Pad", call.name(0), pads, *value, mode=mode)


def _symmetric(call: Call) -> str:
    """Reflection that repeats the border, which ONNX lacks: each axis is gathered by index."""
    value = call.name(0)
    begins, ends = call.integers(1, "pads_begin"), call.integers(2, "pads_end")
    if not len(begins) == len(ends) == call.rank(0):
        found = f"pads_begin has {len(begins)} numbers, pads_end {len(ends)}"
        raise FormatError(f"{found}, the input {call.rank(0)} axes", hint="accepted: one number for each axis")
    for axis, pads in enumerate(zip(begins, ends, strict=True)):
        size = call.size(0, axis)
        if not all(0 <= pad <= size for pad in pads) or size > 2**20:
            raise FormatError(f"pads {pads} of axis {axis} with {size} elements", hint="accepted: 0 to the size of the axis")
        if any(pads):
            value = call.op("Gather", value, call.const(np.pad(np.arange(size), pads, "symmetric")), axis=axis)
    return value


def _one_hot(call: Call) -> str:
    indices: Any = call.name(0)
    if call.choice_attr("negative_indices_mode", {"ignore_negative": "ignore", "normalize": ""}, "ignore_negative"):
        # A negative index marks nothing; in ONNX it counts from the end, and one that is too large marks nothing.
        dtype = call.dtype(0)
        depth = call.name(1) if call.value(1).dtype is dtype else call.cast(call.name(1), dtype)
        indices = call.op("Where", call.op("Less", indices, call.like(0, 0)), depth, indices)
    values = [call.op("Reshape", call.name(i), call.const([1])) for i in (3, 2)]
    return call.op("OneHot", indices, call.name(1), call.op("Concat", *values, axis=0), axis=call.int_attr("axis"))


def _cum_sum(call: Call) -> str:
    exclusive, reverse = call.bool_attr("exclusive", False), call.bool_attr("reverse", False)
    return call.op("CumSum", call.name(0), call.name(1), exclusive=int(exclusive), reverse=int(reverse))


TABLE: Table = {
    "Reshape": _reshape,
    "Squeeze": _squeeze,
    "Unsqueeze": lambda call: call.op("Unsqueeze", call.name(0), call.index_list(1)),
    "Transpose": _transpose,
    "Concat": _concat,
    "Split": _split,
    "VariadicSplit": _variadic_split,
    "Tile": _tile,
    "Broadcast": _broadcast,
    "ShapeOf": _shape_of,
    "Range": _range,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
    "ShuffleChannels": _shuffle_channels,
    "Pad": _pad,
    "OneHot": _one_hot,
    "CumSum": _cum_sum,
}
