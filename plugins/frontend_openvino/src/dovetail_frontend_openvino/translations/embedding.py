"""Sums of rows of a table, as recommendation networks have them; and unit matrices."""

import numpy as np

from dovetail.frontend import DType, FormatError
from dovetail_frontend_openvino.call import Call, Table

__all__ = ["TABLE"]


def _rows(call: Call, weights: int) -> str:
    """The rows that input 1 names, each times its weight where there are weights."""
    rows = call.op("Gather", call.name(0), call.name(1), axis=0)
    if not call.has(weights):
        return rows
    behind = call.rank(0) - 1
    factors = call.op("Unsqueeze", call.name(weights), call.const([call.rank(1) + i for i in range(behind)])) if behind else ""
    return call.op("Mul", rows, factors or call.name(weights))


def _is_mean(call: Call, weights: int) -> bool:
    mean = bool(call.choice_attr("reduction", {"sum": "", "mean": "mean"}, "sum"))
    if mean and call.has(weights):
        raise FormatError("reduction is 'mean', and there are weights", hint="accepted with weights: sum")
    return mean


def _packed(call: Call) -> str:
    reduction = "ReduceMean" if _is_mean(call, 2) else "ReduceSum"
    return call.op(reduction, _rows(call, 2), call.const([1]), keepdims=0)


def _offsets(call: Call) -> str:
    mean = _is_mean(call, 4)
    offsets = call.index_list(2)
    count = call.op("Squeeze", call.op("Shape", call.name(1)), call.const([0]))
    places = call.op("Unsqueeze", call.op("Range", call.const(0), count, call.const(1)), call.const([1]))
    begun = call.cast(call.op("GreaterOrEqual", places, call.op("Unsqueeze", offsets, call.const([0]))), DType.INT64)
    bags = call.op("Sub", call.op("ReduceSum", begun, call.const([1]), keepdims=0), call.const(1))
    return _summed(call, bags, call.op("Shape", offsets), mean=mean)


def _segments(call: Call) -> str:
    return _summed(call, call.index_list(2), call.index_list(3), further=4)


def _summed(call: Call, bags: str, count: str, further: int = 3, *, mean: bool = False) -> str:
    """The rows added up by the bag that each is in, or their mean; a bag without rows is 0, or the row of the default index."""
    default = call.integers(further, "default_index") if call.has(further) else (-1,)
    where = call.op("Unsqueeze", bags, call.const([-1]))
    inner = call.op("Slice", call.op("Shape", call.name(0)), call.const([1]), call.const([2**31]))
    shape = call.op("Concat", count, inner, axis=0)
    zeros = call.op("ConstantOfShape", shape, value=np.zeros(1, call.dtype(0).numpy))
    total = call.op("ScatterND", zeros, where, _rows(call, further + 1), reduction="add")
    if default[0] < 0 and not mean:
        return total
    ones = call.op("Expand", call.const([1]), call.op("Shape", bags))
    empty = call.op("ConstantOfShape", count, value=np.zeros(1, np.int64))
    members = call.op("ScatterND", empty, where, ones, reduction="add")
    behind = call.const([1 + i for i in range(call.rank(0) - 1)])
    if mean:
        divisor = call.op("Unsqueeze", call.op("Max", members, call.const(1)), behind)
        total = call.op("Div", total, call.op("CastLike", divisor, total))
    if default[0] < 0:
        return total
    none = call.op("Unsqueeze", call.op("Equal", members, call.const(0)), behind)
    return call.op("Where", none, call.op("Gather", call.name(0), call.const(list(default[:1])), axis=0), total)


def _segment_max(call: Call) -> str:
    """The largest rows of each segment; segments without rows are zeros, or the lowest number. Further segments are left out."""
    dtype, where = call.dtype(0), call.index_list(1)
    if call.has(2):
        count = call.index_list(2)
    else:
        last = call.op("ReduceMax", call.op("Concat", where, call.const([-1]), axis=0), call.const([0]), keepdims=1)
        count = call.op("Add", last, call.const([1]))
    # Rows of further segments go to one behind the last.
    where = call.op("Unsqueeze", call.op("Min", where, count), call.const([-1]))
    rows = call.op("Add", count, call.const([1]))
    inner = call.op("Slice", call.op("Shape", call.name(0)), call.const([1]), call.const([2**31]))
    lowest = np.finfo(dtype.numpy).min if dtype.numpy.kind == "f" else np.iinfo(dtype.numpy).min
    start = call.op("ConstantOfShape", call.op("Concat", rows, inner, axis=0), value=np.full(1, lowest, dtype.numpy))
    found = call.op("ScatterND", start, where, call.name(0), reduction="max")
    if call.choice_attr("fill_mode", {"zero": "zero", "lowest": "lowest"}) == "zero":
        ones = call.op("Expand", call.const([1]), call.op("Shape", where, end=1))
        empty = call.op("ConstantOfShape", rows, value=np.zeros(1, np.int64))
        members = call.op("ScatterND", empty, where, ones, reduction="add")
        none = call.op("Equal", members, call.const(0))
        behind = call.const([1 + i for i in range(call.rank(0) - 1)])
        found = call.op("Where", call.op("Unsqueeze", none, behind), call.like(0, 0), found)
    return call.op("Slice", found, call.const([0]), count, call.const([0]))


def _eye(call: Call) -> str:
    sides = call.op("Concat", call.index_list(0), call.index_list(1), axis=0)
    dtype = call.type_attr("output_type")
    zeros = call.op("ConstantOfShape", sides, value=np.zeros(1, dtype.numpy))
    eye = call.op("EyeLike", zeros, dtype=dtype.onnx, k=call.integer(2, "diagonal_index"))
    return call.op("Expand", eye, call.op("Concat", call.index_list(3), sides, axis=0)) if call.has(3) else eye


TABLE: Table = {
    "EmbeddingBagPackedSum": _packed,
    "EmbeddingBagPacked": _packed,
    "EmbeddingBagOffsetsSum": _offsets,
    "EmbeddingBagOffsets": _offsets,
    "EmbeddingSegmentsSum": _segments,
    "SegmentMax": _segment_max,
    "Eye": _eye,
}
