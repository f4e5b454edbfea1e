"""CTC decoders: the best class of each step, without repetitions and blanks."""

import numpy as np

from dovetail.frontend import DType
from dovetail_frontend_openvino.call import Call, Outputs, Table

__all__ = ["TABLE"]


def _greedy(call: Call) -> str:
    """Logits [steps, batch, classes], of which the last is blank, up to the first 0 of the mask [steps, batch]."""
    classes = call.op("ArgMax", call.transpose(call.name(0), (1, 0, 2)), axis=2, keepdims=0)
    ended = call.op("Equal", call.transpose(call.name(1), (1, 0)), call.like(0, 1))
    alive = call.op("Equal", call.op("CumSum", call.cast(ended, DType.INT32), call.const(1)), call.const(0, DType.INT32))
    found, _ = _compact(call, classes, alive, _last_class(call))
    return call.op("Unsqueeze", call.cast(found, call.dtype(0)), call.const([2, 3]))


def _greedy_by_lengths(call: Call) -> Outputs:
    """Logits [batch, steps, classes] and the length of each sequence; also the lengths of what was found."""
    classes = call.op("ArgMax", call.name(0), axis=2, keepdims=0)
    steps = call.op("Squeeze", call.op("Shape", classes, start=1), call.const([0]))
    numbers = call.op("Range", call.const(0), steps, call.const(1))
    alive = call.op("Less", numbers, call.op("Unsqueeze", call.index_list(1), call.const([1])))
    blank = call.index_list(2) if call.has(2) else _last_class(call)
    results = _compact(call, classes, alive, blank)
    dtypes = (call.type_attr(name, DType.INT32) for name in ("classes_index_type", "sequence_length_type"))
    return tuple(call.cast(result, dtype) for result, dtype in zip(results, dtypes, strict=True))


def _last_class(call: Call) -> str:
    return call.op("Sub", call.op("Shape", call.name(0), start=2), call.const(1))


def _compact(call: Call, classes: str, alive: str, blank: str) -> tuple[str, str]:
    """The classes that are kept of each row, filled up with -1, and their number."""
    keep = call.op("And", alive, call.op("Not", call.op("Equal", classes, blank)))
    merge = call.bool_attr("merge_repeated", call.bool_attr("ctc_merge_repeated", True))
    if merge:
        padded = call.op("Pad", classes, call.const([0, 1, 0, 0]), call.const(-1))
        before = call.op("Slice", padded, call.const([0]), call.const([-1]), call.const([1]))
        keep = call.op("And", keep, call.op("Not", call.op("Equal", classes, before)))
    kept = call.cast(keep, DType.INT64)
    end = call.op("Shape", classes, start=1)
    places = call.op("Where", keep, call.op("Sub", call.op("CumSum", kept, call.const(1)), call.const(1)), end)
    sizes = call.op("Add", call.op("Shape", classes), call.const([0, 1]))  # those left out go into one more column
    empty = call.op("ConstantOfShape", sizes, value=np.array([-1], np.int64))
    found = call.op("ScatterElements", empty, places, classes, axis=1)
    whole = call.op("Slice", found, call.const([0]), end, call.const([1]))
    return whole, call.op("ReduceSum", kept, call.const([1]), keepdims=0)


TABLE: Table = {"CTCGreedyDecoder": _greedy, "CTCGreedyDecoderSeqLen": _greedy_by_lengths}
