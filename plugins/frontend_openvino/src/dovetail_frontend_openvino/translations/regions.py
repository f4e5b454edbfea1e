"""Detection operations that are operators of this package, and those of Detectron2."""

import numpy as np

from dovetail.frontend import DType, FormatError
from dovetail_frontend_openvino.call import Call, Outputs, Table

__all__ = ["TABLE"]

_CLASS_NMS = ("nms_top_k", "keep_top_k", "background_class")


def _floats(call: Call, index: int) -> str:
    return call.name(index) if call.value(index).dtype is DType.FLOAT32 else call.cast(call.name(index), DType.FLOAT32)


def _wide(call: Call, index: int) -> str:
    return call.name(index) if call.value(index).dtype is DType.INT64 else call.cast(call.name(index), DType.INT64)


def _back(call: Call, name: str) -> str:
    """A float32 result in the type of the first input."""
    dtype = call.value(0).dtype
    return name if dtype in (None, DType.FLOAT32) else call.cast(name, dtype)


def _integers(call: Call, name: str, attribute: str = "output_type") -> str:
    """int64 in the type that an attribute has."""
    dtype = call.type_attr(attribute, DType.INT64)
    return name if dtype is DType.INT64 else call.cast(name, dtype)


def _class_nms(call: Call, kind: str, inputs: tuple[str, ...], **attributes: float | str) -> Outputs:
    rows, places, counts = call.own(
        kind,
        3,
        *inputs,
        sort_result_type=call.text_attr("sort_result_type", "none").strip().lower(),
        sort_result_across_batch=int(call.bool_attr("sort_result_across_batch", False)),
        score_threshold=call.float_attr("score_threshold", 0.0),
        normalized=int(call.bool_attr("normalized", True)),
        **{name: call.int_attr(name, -1) for name in _CLASS_NMS},
        **attributes,
    )
    return _back(call, rows), _integers(call, places), _integers(call, counts)


def _matrix_nms(call: Call) -> Outputs:
    return _class_nms(
        call,
        "MatrixNms",
        (_floats(call, 0), _floats(call, 1)),
        decay_function=call.text_attr("decay_function", "linear").strip().lower(),
        gaussian_sigma=call.float_attr("gaussian_sigma", 2.0),
        post_threshold=call.float_attr("post_threshold", 0.0),
    )


def _multiclass_nms(call: Call) -> Outputs:
    counts = (_wide(call, 2),) if call.has(2) else ()
    return _class_nms(
        call,
        "MulticlassNms",
        (_floats(call, 0), _floats(call, 1), *counts),
        iou_threshold=call.float_attr("iou_threshold", 0.0),
        nms_eta=call.float_attr("nms_eta", 1.0),
    )


def _nms_rotated(call: Call) -> Outputs:
    found, scores, count = call.own(
        "NMSRotated",
        3,
        _floats(call, 0),
        _floats(call, 1),
        _wide(call, 2),
        _floats(call, 3),
        _floats(call, 4),
        sort_result_descending=int(call.bool_attr("sort_result_descending", True)),
        clockwise=int(call.bool_attr("clockwise", True)),
    )
    return _integers(call, found), scores, _integers(call, count)


def _roi_align_rotated(call: Call) -> str:
    found = call.own(
        "ROIAlignRotated",
        1,
        _floats(call, 0),
        _floats(call, 1),
        _wide(call, 2),
        **{name: call.int_attr(name) for name in ("pooled_h", "pooled_w", "sampling_ratio")},
        spatial_scale=call.float_attr("spatial_scale"),
        clockwise_mode=int(call.bool_attr("clockwise_mode")),
    )[0]
    return _back(call, found)


def _proposals(call: Call, info: str, deltas: str, scores: str, anchors: str, **attributes: int) -> tuple[str, ...]:
    return call.own(
        "GenerateProposals",
        3,
        info,
        anchors,
        deltas,
        scores,
        min_size=call.float_attr("min_size"),
        nms_threshold=call.float_attr("nms_threshold"),
        pre_nms_count=call.int_attr("pre_nms_count"),
        post_nms_count=call.int_attr("post_nms_count"),
        **attributes,
    )


def _generate_proposals(call: Call) -> Outputs:
    if call.float_attr("nms_eta", 1.0) != 1:
        raise FormatError(f"the attribute 'nms_eta' is {call.float_attr('nms_eta')}", hint="accepted: 1, as in OpenVINO")
    info, anchors, deltas, scores = (_floats(call, i) for i in range(4))
    rois, kept, counts = _proposals(call, info, deltas, scores, anchors, normalized=int(call.bool_attr("normalized", True)))
    return _back(call, rois), _back(call, kept), _integers(call, counts, "roi_num_type")


def _single_image(call: Call) -> Outputs:
    """The proposals of one picture, all of whose inputs lack the axis of pictures, in a fixed number of rows."""
    info = call.op("Reshape", _floats(call, 0), call.const([1, -1]))
    deltas, scores = (call.op("Unsqueeze", _floats(call, i), call.const([0])) for i in (2, 3))
    place = call.op("Shape", scores)
    sizes = call.op("Gather", place, call.const([2, 3, 1]), axis=0)
    anchors = call.op("Reshape", _floats(call, 1), call.op("Concat", sizes, call.const([4]), axis=0))
    rois, kept, _ = _proposals(call, info, deltas, scores, anchors, normalized=0, padded=1)
    return _back(call, rois), _back(call, kept)


def _detection_output(call: Call) -> Outputs:
    if call.bool_attr("class_agnostic_box_regression", False):
        raise FormatError("class_agnostic_box_regression is true", hint="accepted: false, deltas of each class")
    boxes, classes, scores = call.own(
        "DetectronDetectionOutput",
        3,
        *(_floats(call, i) for i in range(4)),
        score_threshold=call.float_attr("score_threshold"),
        nms_threshold=call.float_attr("nms_threshold"),
        num_classes=call.int_attr("num_classes"),
        post_nms_count=call.int_attr("post_nms_count"),
        max_detections_per_image=call.int_attr("max_detections_per_image"),
        max_delta_log_wh=call.float_attr("max_delta_log_wh"),
        deltas_weights=call.floats_attr("deltas_weights"),
    )
    return _back(call, boxes), classes, _back(call, scores)


def _roi_features(call: Call) -> Outputs:
    found = call.own(
        "DetectronROIFeatureExtractor",
        1,
        *(_floats(call, i) for i in range(len(call.inputs))),
        output_size=call.int_attr("output_size"),
        sampling_ratio=call.int_attr("sampling_ratio"),
        pyramid_scales=call.ints_attr("pyramid_scales"),
        aligned=int(call.bool_attr("aligned", False)),
    )[0]
    return _back(call, found), call.name(0)


def _top_rois(call: Call) -> str:
    """The `max_rois` rows of the greatest probabilities; zeros behind the last."""
    probs, most = _floats(call, 1), call.int_attr("max_rois")
    count = call.op("Min", call.op("Shape", probs), call.const([most]))
    _, order = call.ops("TopK", 2, probs, count, axis=0, largest=1, sorted=1)
    full = call.op(
        "Concat", call.op("Gather", call.name(0), order, axis=0), call.const(np.zeros((most, 4)), call.dtype(0)), axis=0
    )
    return call.op("Slice", full, call.const([0]), call.const([most]), call.const([0]))


def _prior_grid(call: Call) -> str:
    """Priors [n, 4] around the centre of each cell of a grid: [h * w * n, 4], or [h, w, n, 4] with `flatten` false."""
    ends = []
    for axis, size, stride in ((3, "w", "stride_x"), (2, "h", "stride_y")):
        count, cells = _extent(call, 1, axis, call.int_attr(size, 0))
        step = call.float_attr(stride, 0.0)
        whole = call.cast(call.op("Shape", call.name(2), start=axis, end=axis + 1), DType.FLOAT32)
        width = call.const([step], DType.FLOAT32) if step else call.op("Div", whole, cells)
        places = call.op("Range", call.const(0), count, call.const(1))
        ends.append(call.op("Mul", call.op("Add", call.cast(places, DType.FLOAT32), call.const(0.5, DType.FLOAT32)), width))
    x, y = call.op("Unsqueeze", ends[0], call.const([0])), call.op("Unsqueeze", ends[1], call.const([1]))
    shape = call.op("Shape", call.op("Add", x, y))
    x, y = (call.op("Unsqueeze", call.op("Expand", end, shape), call.const([2, 3])) for end in (x, y))
    moved = call.op("Add", call.op("Concat", x, y, x, y, axis=3), _floats(call, 0))
    flat = call.op("Reshape", moved, call.const([-1, 4])) if call.bool_attr("flatten", True) else moved
    return _back(call, flat)


def _extent(call: Call, index: int, axis: int, given: int) -> tuple[str, str]:
    """A number that an attribute gives, or if it is 0 the size of an axis: a scalar, and as [1] in float32."""
    size = call.const([given]) if given else call.op("Shape", call.name(index), start=axis, end=axis + 1)
    return call.op("Squeeze", size, call.const([0])), call.cast(size, DType.FLOAT32)


def _grouped_product(call: Call) -> str:
    """a [groups, m, k] by b [groups, n, k] transposed, or the rows of a [rows, k] up to each offset by their group's matrix."""
    transposed = call.transpose(call.name(1), (0, 2, 1))
    if not call.has(2):
        return call.op("MatMul", call.name(0), transposed)
    count = call.op("Squeeze", call.op("Shape", call.name(0), end=1), call.const([0]))
    rows, ends = call.op("Range", call.const(0), count, call.const(1)), call.op("Unsqueeze", _wide(call, 2), call.const([1]))
    others = call.op("Slice", ends, call.const([0]), call.const([-1]))
    first = call.op("Concat", call.const(np.zeros((1, 1), np.int64)), others, axis=0)
    mine = call.op("And", call.op("GreaterOrEqual", rows, first), call.op("Less", rows, ends))
    own = call.op("Where", call.op("Unsqueeze", mine, call.const([2])), call.name(0), call.like(0, 0))
    return call.op("ReduceSum", call.op("MatMul", own, transposed), call.const([0]), keepdims=0)


TABLE: Table = {
    "ExperimentalDetectronDetectionOutput": _detection_output,
    "ExperimentalDetectronGenerateProposalsSingleImage": _single_image,
    "ExperimentalDetectronPriorGridGenerator": _prior_grid,
    "ExperimentalDetectronROIFeatureExtractor": _roi_features,
    "ExperimentalDetectronTopKROIs": _top_rois,
    "GenerateProposals": _generate_proposals,
    "GroupedMatMul": _grouped_product,
    "MatrixNms": _matrix_nms,
    "MulticlassNms": _multiclass_nms,
    "NMSRotated": _nms_rotated,
    "ROIAlignRotated": _roi_align_rotated,
}
