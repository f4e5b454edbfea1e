"""Gather, Scatter and what finds indices."""

import numpy as np

from dovetail.frontend import DType, FormatError
from dovetail_frontend_openvino.call import Call, Outputs, Table
from dovetail_frontend_openvino.translations.elementwise import divide

__all__ = ["TABLE"]

_REDUCTIONS = {"none": "none", "sum": "add", "prod": "mul", "min": "min", "max": "max"}


def _gather(call: Call) -> str:
    axis, batch = call.integer(2, "axis"), call.int_attr("batch_dims", 0)
    if not batch:
        return call.op("Gather", call.name(0), _integers(call, 1), axis=axis)
    rank, indices = call.rank(0), call.rank(1)
    axis, batch = call.axis(axis, rank), call.axis(batch, indices + 1)
    if batch > axis:
        raise FormatError(f"batch_dims is {batch}, beyond the axis {axis}")
    # The gathered axis goes behind the batch, and what it became goes back to where the axis was.
    moved = call.transpose(call.name(0), (*range(batch), axis, *range(batch, axis), *range(axis + 1, rank)))
    last = call.op("Unsqueeze", _wide(call, 1), call.const([-1]))
    found = call.op("GatherND", moved, last, batch_dims=batch)
    count, between = indices - batch, axis - batch
    inner = range(batch + count, batch + count + between)
    total = rank - 1 + count
    return call.transpose(found, (*range(batch), *inner, *range(batch, batch + count), *range(batch + count + between, total)))


def _wide(call: Call, index: int) -> str:
    """Indices as int64."""
    return call.name(index) if call.value(index).dtype is DType.INT64 else call.cast(call.name(index), DType.INT64)


def _integers(call: Call, index: int) -> str:
    """Indices as int32 or int64; OpenVINO takes integers of any type, and writes uint64 behind NonMaxSuppression."""
    return call.name(index) if call.value(index).dtype is DType.INT32 else _wide(call, index)


def _gather_nd(call: Call) -> str:
    batch = call.int_attr("batch_dims", 0)
    found = call.op("GatherND", call.name(0), _wide(call, 1), batch_dims=batch)
    if batch < 2 or call.layer.opset != "opset5":
        return found
    port = call.layer.outputs[0]  # version 5 makes one dimension of all of the batch
    sizes = [d for d in (port.shape or ())[1:] if isinstance(d, int)]
    if port.shape is None or len(sizes) != len(port.shape) - 1:
        raise FormatError("the shape of the output is open", hint="it must be declared for batch_dims above 1")
    return call.op("Reshape", found, call.const([-1, *sizes]))


def _gather_elements(call: Call) -> str:
    return call.op("GatherElements", call.name(0), call.name(1), axis=call.int_attr("axis"))


def _scatter_elements(call: Call) -> str:
    asked = call.choice_attr("reduction", _REDUCTIONS | {"mean": "mean"}, "none")
    reduction = "add" if asked == "mean" else asked
    data, indices, axis = call.name(0), _integers(call, 1), call.integer(3, "axis")
    own = reduction == "none" or call.bool_attr("use_init_val", True)
    if not own:  # what is written starts from what changes nothing
        first = call.op("Expand", call.like(_neutral(call.dtype(0), reduction), 0), call.op("Shape", indices))
        data = call.op("ScatterElements", data, indices, first, axis=axis)
    done = call.op("ScatterElements", data, indices, call.name(2), axis=axis, reduction=reduction)
    return _mean(call, done, indices, axis, own) if asked == "mean" else done


def _mean(call: Call, sums: str, indices: str, axis: int, own: bool) -> str:
    """Sums, each divided by how many numbers are in it; those of integers are rounded down."""
    one = call.const(1)
    start = call.op("Expand", call.const(int(own)), call.op("Shape", sums))
    ones = call.op("Expand", one, call.op("Shape", indices))
    counted = call.op("ScatterElements", start, indices, ones, axis=axis, reduction="add")
    counts = call.cast(counted if own else call.op("Max", counted, one), call.dtype(0))
    return divide(call, sums, counts, down=True)


def _neutral(dtype: DType, reduction: str) -> float:
    if reduction in ("add", "mul"):
        return 0 if reduction == "add" else 1
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        return int(info.min if reduction == "max" else info.max)
    return -np.inf if reduction == "max" else np.inf


def _scatter_nd(call: Call) -> str:
    reduction = call.choice_attr("reduction", _REDUCTIONS, "none")
    return call.op("ScatterND", call.name(0), _wide(call, 1), call.name(2), reduction=reduction)


def _scatter(call: Call) -> str:
    """Whole slices: with the axis in front that is ScatterND with one index each."""
    rank, indices = call.rank(0), call.rank(1)
    axis = call.axis(call.integer(3, "axis"), rank)
    front = (axis, *range(axis), *range(axis + 1, rank))
    data = call.transpose(call.name(0), front)
    place = range(axis, axis + indices)
    updates = call.transpose(call.name(2), (*place, *range(axis), *range(axis + indices, rank - 1 + indices)))
    done = call.op("ScatterND", data, call.op("Unsqueeze", _wide(call, 1), call.const([-1])), updates)
    return call.transpose(done, [front.index(i) for i in range(rank)])


def _non_zero(call: Call) -> str:
    found = call.op("NonZero", call.name(0))
    dtype = call.type_attr("output_type", DType.INT64)
    return found if dtype is DType.INT64 else call.cast(found, dtype)


def _unique(call: Call) -> Outputs:
    axis = {"axis": call.integer(1, "axis")} if call.has(1) else {}
    ordered = int(call.bool_attr("sorted", True))
    values, *rest = call.ops("Unique", 4, call.name(0), sorted=ordered, **axis)
    dtypes = [call.type_attr(name, DType.INT64) for name in ("index_element_type", "index_element_type", "count_element_type")]
    return values, *(n if d is DType.INT64 else call.cast(n, d) for n, d in zip(rest, dtypes, strict=True))


def _top_k(call: Call) -> Outputs:
    largest = int(call.choice_attr("mode", {"max": "1", "min": "0"}))
    order = call.choice_attr("sort", {"value": "value", "index": "index", "none": "none"})
    axis = call.int_attr("axis")
    values, indices = call.ops(
        "TopK", 2, call.name(0), call.index_list(1), axis=axis, largest=largest, sorted=int(order != "none")
    )
    if order == "index":
        count = call.op("Shape", indices, start=axis, end=axis + 1 if axis != -1 else 2**31)
        indices, places = call.ops("TopK", 2, indices, count, axis=axis, largest=0, sorted=1)
        values = call.op("GatherElements", values, places, axis=axis)
    dtype = call.type_attr("index_element_type", DType.INT32)
    return values, indices if dtype is DType.INT64 else call.cast(indices, dtype)


def _reverse_sequence(call: Call) -> str:
    """Of any two axes; ONNX's are the first two."""
    batch, time = call.int_attr("batch_axis", 0), call.int_attr("seq_axis", 1)
    if sorted((batch, time)) == [0, 1]:
        return call.op("ReverseSequence", call.name(0), _wide(call, 1), batch_axis=batch, time_axis=time)
    rank = call.rank(0)
    first = [call.axis(batch, rank), call.axis(time, rank)]
    if first[0] == first[1]:
        raise FormatError(f"the attributes 'batch_axis' and 'seq_axis' are {batch} and {time}", hint="accepted: two axes")
    order = (*first, *(axis for axis in range(rank) if axis not in first))
    y = call.op("ReverseSequence", call.transpose(call.name(0), order), _wide(call, 1), batch_axis=0, time_axis=1)
    return call.transpose(y, [order.index(axis) for axis in range(rank)])


TABLE: Table = {
    "Gather": _gather,
    "GatherND": _gather_nd,
    "GatherElements": _gather_elements,
    "ScatterElementsUpdate": _scatter_elements,
    "ScatterNDUpdate": _scatter_nd,
    "ScatterUpdate": _scatter,
    "NonZero": _non_zero,
    "Unique": _unique,
    "TopK": _top_k,
    "ReverseSequence": _reverse_sequence,
}
