"""Interpolate, and what samples at positions."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dovetail.frontend import Dim, DType, FormatError
from dovetail_frontend_openvino.call import Call, Table

__all__ = ["TABLE"]

_MODES = {"nearest": "nearest", "linear": "linear", "linear_onnx": "linear", "cubic": "cubic"}
_MODES |= {"bilinear_pillow": "linear pillow", "bicubic_pillow": "cubic pillow"}
_NEAREST = {name: name for name in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "simple")}
_COORDINATES = {
    name: name for name in ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners", "tf_half_pixel_for_nn")
}


def _interpolate(call: Call) -> str:
    if call.layer.opset == "opset1":
        return _first_version(call)
    by_sizes = call.choice_attr("shape_calculation_mode", {"sizes": "sizes", "scales": ""}) != ""
    later = call.layer.opset not in ("opset4", "opset5", "opset6", "opset7", "opset8", "opset9", "opset10")
    at = 2 if later else 3  # version 4 has sizes and scales, version 11 one input for whichever counts
    axes = call.axes(at, call.rank(0)) if call.has(at) else tuple(range(call.rank(0)))
    mode = call.choice_attr("mode", _MODES)
    attributes: dict[str, Any] = {"axes": axes, "mode": mode.split()[0]}
    antialias = call.bool_attr("antialias", False)
    if mode.endswith("pillow"):
        antialias, attributes["coordinate_transformation_mode"] = True, "half_pixel"
    else:
        attributes["coordinate_transformation_mode"] = call.choice_attr(
            "coordinate_transformation_mode", _COORDINATES, "half_pixel"
        )
    if antialias and attributes["mode"] != "nearest":
        attributes |= {"antialias": 1, "exclude_outside": 1}
    if attributes["mode"] == "cubic":
        # Pillow's kernel has its own coefficient, whatever the file says.
        attributes["cubic_coeff_a"] = -0.5 if mode.endswith("pillow") else call.float_attr("cube_coeff", -0.75)
    if attributes["mode"] == "nearest":
        attributes["nearest_mode"] = _nearest_mode(call, axes)
    index = 1 if by_sizes or later else 2
    return _resized(call, attributes, index, by_sizes)


def _resized(call: Call, attributes: dict[str, Any], index: int, by_sizes: bool) -> str:
    x = _padded(call)
    if by_sizes:
        return call.op("Resize", x, "", "", call.index_list(index), **attributes)
    scales = call.name(index)
    if call.value(index).dtype is not DType.FLOAT32:
        scales = call.cast(scales, DType.FLOAT32)
    return call.op("Resize", x, "", scales, **attributes)


def _padded(call: Call) -> str:
    rank = call.rank(0)
    pads = [[*call.ints_attr(name, ()), *[0] * rank][:rank] for name in ("pads_begin", "pads_end")]
    if not any(map(any, pads)):
        return call.name(0)
    return call.op("Pad", call.name(0), call.const([*pads[0], *pads[1]]))


def _nearest_mode(call: Call, axes: Sequence[int]) -> str:
    mode = call.choice_attr("nearest_mode", _NEAREST, "round_prefer_floor")
    if mode != "simple":
        return mode
    pairs: list[tuple[Dim, Dim]] = [(call.shape(0)[a], (call.layer.outputs[0].shape or [None] * 64)[a]) for a in axes]
    sizes = [(a, b) for a, b in pairs if isinstance(a, int) and isinstance(b, int)]
    if len(sizes) == len(pairs) and all(b >= a for a, b in sizes):
        return "floor"
    if len(sizes) == len(pairs) and all(b <= a for a, b in sizes):
        return "ceil"
    raise FormatError("nearest_mode is simple", hint="accepted: where all axes grow, or all shrink; or another nearest_mode")


def _first_version(call: Call) -> str:
    mode = call.choice_attr("mode", {"nearest": "nearest", "linear": "linear", "cubic": "cubic"})
    corners = call.bool_attr("align_corners", True)
    attributes: dict[str, Any] = {"axes": call.ints_attr("axes"), "mode": mode}
    attributes["coordinate_transformation_mode"] = "align_corners" if corners else "asymmetric"
    if mode == "nearest":
        attributes["nearest_mode"] = "floor"
    if call.bool_attr("antialias", True) and mode != "nearest":
        attributes |= {"antialias": 1, "exclude_outside": 1}
    return _resized(call, attributes, 1, True)


def _grid_sample(call: Call) -> str:
    modes = {"bilinear": "linear", "nearest": "nearest", "bicubic": "cubic"}
    padding = {"zeros": "zeros", "border": "border", "reflection": "reflection"}
    return call.op(
        "GridSample",
        *call.names,
        mode=call.choice_attr("mode", modes, "bilinear"),
        padding_mode=call.choice_attr("padding_mode", padding, "zeros"),
        align_corners=int(call.bool_attr("align_corners", False)),
    )


def _roi_align(call: Call) -> str:
    """Version 3 is ONNX's output_half_pixel; version 9 names the mode of alignment: half_pixel_for_nn is ONNX's half_pixel."""
    modes = {"asymmetric": "output_half_pixel", "half_pixel_for_nn": "half_pixel", "half_pixel": "half_pixel"}
    aligned = call.choice_attr("aligned_mode", {mode: mode for mode in modes}, "asymmetric")
    x, rois, batch = (call.name(index) for index in range(3))
    if aligned == "half_pixel":  # corners are centres of pixels of the image too, which the features are a scaled copy of
        rois = call.op("Add", rois, call.like(0.5, 1))
    if call.value(2).dtype is not DType.INT64:
        batch = call.cast(batch, DType.INT64)
    samples = call.int_attr("sampling_ratio")
    largest = call.choice_attr("mode", {"avg": "", "max": "max"}) != ""
    if largest and samples < 1:
        raise FormatError("mode is max, and sampling_ratio 0 lets the regions choose", hint="accepted: sampling_ratio from 1 on")
    # ONNX's mode max takes the largest weighted corner, ours the largest sample: here each sample is a bin, and bins are pooled.
    bins = samples if largest else 1
    y = call.op(
        "RoiAlign",
        x,
        rois,
        batch,
        mode="avg",
        output_height=bins * call.int_attr("pooled_h"),
        output_width=bins * call.int_attr("pooled_w"),
        sampling_ratio=1 if largest else samples,
        spatial_scale=float(np.float32(call.float_attr("spatial_scale"))),
        coordinate_transformation_mode=modes[aligned],
    )
    return call.op("MaxPool", y, kernel_shape=(bins, bins), strides=(bins, bins)) if bins > 1 else y


def _roi_pooling(call: Call) -> str:
    if call.choice_attr("method", {"max": "max", "bilinear": "bilinear"}, "max") == "bilinear":
        raise FormatError("the attribute 'method' is 'bilinear'", hint="accepted: max; ROIAlign interpolates")
    names = ("output_roi",) if "output_roi" in call.layer.attributes else ("pooled_h", "pooled_w")
    shape = call.ints_attr(names[0]) if len(names) == 1 else tuple(call.int_attr(name) for name in names)
    return call.op("MaxRoiPool", *call.names, pooled_shape=shape, spatial_scale=call.float_attr("spatial_scale"))


TABLE: Table = {"Interpolate": _interpolate, "ROIPooling": _roi_pooling, "GridSample": _grid_sample, "ROIAlign": _roi_align}
