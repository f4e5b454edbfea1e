"""DetectionOutput: decoded boxes, suppressed class by class, the best of each picture."""

import numpy as np

from dovetail.frontend import DType, FormatError
from dovetail_frontend_openvino.call import Call, Table

__all__ = ["TABLE"]

_CODES = {"center_size": "center", "corner": "corner"}


def _detection_output(call: Call) -> str:
    """Rows of picture, class, score and corners, [1, 1, pictures * keep_top_k, 7]; after the last one with picture -1, and zeros.

    By class, then by score. Inputs are the offsets of the boxes, the scores, and the priors with their variances.
    """
    _check(call)
    priors = call.size(2, 2) // 4
    if priors < 1 or call.size(1, 1) % priors or call.size(0, 1) != 4 * priors:
        raise FormatError(f"{priors} priors do not fit inputs of {call.size(0, 1)} offsets and {call.size(1, 1)} scores")
    classes = call.size(1, 1) // priors
    keep = call.ints_attr("keep_top_k")[0]
    if not 0 < keep <= classes * priors:
        raise FormatError(f"keep_top_k is {keep}", hint=f"accepted: 1 to {classes * priors}, the scores of a picture")
    boxes = _boxes(call, priors)
    scores = _scores(call, priors, classes)
    threshold = call.const(call.float_attr("confidence_threshold", 0.0), DType.FLOAT32)
    suppression = call.const(call.float_attr("nms_threshold"), DType.FLOAT32)
    found = call.op("NonMaxSuppression", boxes, scores, call.const([priors]), suppression, threshold)
    kept = _best(call, found, scores, keep)
    rows = _rows(call, kept, boxes, scores)
    pictures = call.op("Shape", scores, start=0, end=1)
    count = call.op("Mul", pictures, call.const([keep]))
    marker = call.const(np.array([[-1, 0, 0, 0, 0, 0, 0]], np.float32))
    rest = call.op("Expand", call.const(np.zeros((1, 7), np.float32)), call.op("Concat", count, call.const([7]), axis=0))
    full = call.op("Concat", rows, marker, rest, axis=0)
    full = call.op("Slice", full, call.const([0]), count, call.const([0]))
    return call.op("Unsqueeze", full, call.const([0, 1]))


def _check(call: Call) -> None:
    if len(call.inputs) != 3:
        raise FormatError(f"the layer has {len(call.inputs)} inputs", hint="accepted: 3, without those of a second network")
    for name, default, accepted in (
        ("share_location", True, True),
        ("normalized", False, True),
        ("decrease_label_id", False, False),
    ):
        if call.bool_attr(name, default) is not accepted:
            raise FormatError(f"{name} is {str(not accepted).lower()}", hint=f"accepted: {str(accepted).lower()}")


def _boxes(call: Call, priors: int) -> str:
    """[N, priors, 4]: each prior moved and stretched by its offsets."""
    code = call.choice_attr("code_type", {f"caffe.priorboxparameter.{k}": v for k, v in _CODES.items()} | _CODES, "corner")
    given = call.op("Reshape", call.name(2), call.const([0, -1, priors, 4]))
    offsets = call.op("Reshape", call.name(0), call.const([0, priors, 4]))
    prior = call.op("Gather", given, call.const(0), axis=1)
    if not call.bool_attr("variance_encoded_in_target", False):
        offsets = call.op("Mul", offsets, call.op("Gather", given, call.const(1), axis=1))
    boxes = call.op("Add", prior, offsets) if code == "corner" else _from_centers(call, prior, offsets)
    return _clipped(call, boxes) if call.bool_attr("clip_before_nms", False) else boxes


def _from_centers(call: Call, prior: str, offsets: str) -> str:
    low, high = call.ops("Split", 2, prior, axis=2, num_outputs=2)
    moved, stretched = call.ops("Split", 2, offsets, axis=2, num_outputs=2)
    half = call.const(0.5, DType.FLOAT32)
    size = call.op("Sub", high, low)
    center = call.op("Add", call.op("Mul", moved, size), call.op("Mul", call.op("Add", low, high), half))
    reach = call.op("Mul", call.op("Mul", call.op("Exp", stretched), size), half)
    return call.op("Concat", call.op("Sub", center, reach), call.op("Add", center, reach), axis=2)


def _clipped(call: Call, boxes: str) -> str:
    return call.op("Clip", boxes, call.const(0, DType.FLOAT32), call.const(1, DType.FLOAT32))


def _scores(call: Call, priors: int, classes: int) -> str:
    """[N, classes, priors], those of the background and beyond the best top_k of a class so low that they are never chosen."""
    scores = call.transpose(call.op("Reshape", call.name(1), call.const([0, priors, classes])), (0, 2, 1))
    low = call.const(-np.inf, DType.FLOAT32)
    top = call.int_attr("top_k", -1)
    if 0 < top < priors:
        values, places = call.ops("TopK", 2, scores, call.const([top]), axis=2, largest=1, sorted=1)
        scores = call.op("ScatterElements", call.op("Expand", low, call.op("Shape", scores)), places, values, axis=2)
    background = call.int_attr("background_label_id", 0)
    if not 0 <= background < classes:
        return scores
    chosen = (np.arange(classes) == background).reshape(1, classes, 1)
    return call.op("Where", call.const(chosen), low, scores)


def _best(call: Call, found: str, scores: str, keep: int) -> str:
    """Of the chosen [n, 3] those with the `keep` greatest scores of their picture, in the order that they have."""
    values = call.op("GatherND", scores, found)
    low = call.op("Expand", call.const(-np.inf, DType.FLOAT32), call.op("Shape", scores))
    dense = call.op("Reshape", call.op("ScatterND", low, found, values), call.const([0, -1]))
    _, places = call.ops("TopK", 2, dense, call.const([keep]), axis=1, largest=1, sorted=1)
    none = call.op("ConstantOfShape", call.op("Shape", dense), value=np.zeros(1, np.int64))
    ones = call.op("ConstantOfShape", call.op("Shape", places), value=np.ones(1, np.int64))
    marked = call.op("Reshape", call.op("ScatterElements", none, places, ones, axis=1), call.op("Shape", scores))
    return call.op("Compress", found, call.cast(call.op("GatherND", marked, found), DType.BOOL), axis=0)


def _rows(call: Call, kept: str, boxes: str, scores: str) -> str:
    whose = call.op("Gather", kept, call.const([0, 2]), axis=1)
    corners = call.op("GatherND", boxes, whose)
    corners = _clipped(call, corners) if call.bool_attr("clip_after_nms", False) else corners
    first = call.cast(call.op("Gather", kept, call.const([0, 1]), axis=1), DType.FLOAT32)
    return call.op("Concat", first, call.op("Unsqueeze", call.op("GatherND", scores, kept), call.const([1])), corners, axis=1)


TABLE: Table = {"DetectionOutput": _detection_output}
