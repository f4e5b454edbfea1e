"""NonMaxSuppression."""

from dovetail.frontend import DType, FormatError
from dovetail_frontend_openvino.call import Call, Outputs, Table

__all__ = ["TABLE"]


def _non_max_suppression(call: Call) -> Outputs:
    """Indices [n, 3] of batch, class and box, as in ONNX; scores [n, 3] of batch, class and score; and n.

    The versions differ in nothing that shows: where the number of boxes is only known at run time, the outputs have as many.
    Those before version 5 have the indices alone, and OpenVINO's runtime does not fill them up with -1 either.
    """
    if call.has(5) and call.scalar(5, "soft_nms_sigma") != 0:
        raise FormatError("soft_nms_sigma (input 5) is not the constant 0", hint="accepted: 0, no softening of scores")
    encoding = call.choice_attr("box_encoding", {"corner": "0", "center": "1"}, "corner")
    limit = call.index_list(2) if call.has(2) else call.const([0])
    thresholds = [_threshold(call, i) for i in (3, 4)]
    boxes, scores = _floats(call, 0), _floats(call, 1)
    found = call.op("NonMaxSuppression", boxes, scores, limit, *thresholds, center_point_box=int(encoding))
    values = call.op("GatherND", scores, found)
    if call.bool_attr("sort_result_descending", True):
        _, order = call.ops("TopK", 2, values, call.op("Shape", values), axis=0, largest=1, sorted=1)
        found, values = call.op("Gather", found, order, axis=0), call.op("Gather", values, order, axis=0)
    return _outputs(call, found, values)


def _outputs(call: Call, found: str, values: str) -> Outputs:
    dtype = call.type_attr("output_type", DType.INT64)
    whose = call.op("Slice", found, call.const([0]), call.const([2]), call.const([1]))
    rows = [call.cast(whose, DType.FLOAT32), call.op("Unsqueeze", values, call.const([1]))]
    count = call.op("Shape", found, start=0, end=1)
    indices = (found, count) if dtype is DType.INT64 else (call.cast(found, dtype), call.cast(count, dtype))
    return indices[0], call.op("Concat", *rows, axis=1), indices[1]


def _floats(call: Call, index: int) -> str:
    return call.name(index) if call.value(index).dtype is DType.FLOAT32 else call.cast(call.name(index), DType.FLOAT32)


def _threshold(call: Call, index: int) -> str:
    if not call.has(index):
        return call.const([0], DType.FLOAT32)
    return call.op("Reshape", _floats(call, index), call.const([1]))


TABLE: Table = {"NonMaxSuppression": _non_max_suppression}
