"""Convolutions, pools and what resamples images."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from random_graphs.builder import Builder, Draft, makes
from random_graphs.data import FLOATS


def _image(b: Builder, dims: int, *, batch0: bool = True, types: Sequence[np.dtype[Any]] = ()) -> str:
    """[N, C, D1, ...] with sizes of 4 to 8, mostly one that is present."""
    return b.value(
        types or b.types(),
        (dims + 2,),
        fits=lambda a: min(a.shape[2:]) >= b.least and a.size < 600 and a.shape[1] > 0 and (batch0 or a.shape[0] > 0),
        shape=lambda _: (
            b.integer(0, 2) if batch0 and b.chance(0.2) else 2,
            b.integer(1, 4),
            *(b.integer(b.least, 8) for _ in range(dims)),
        ),
    )


def _window(b: Builder, dims: int, *, dilations: bool = True, ceil: bool = False) -> dict[str, Any]:
    kernel = [b.integer(1, 3) for _ in range(dims)]
    attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": [b.integer(1, 3) for _ in range(dims)]}
    kind = b.integer(0, 3)
    if kind == 0:
        attributes["auto_pad"] = b.one(["SAME_UPPER", "SAME_LOWER", "VALID"])
        # A stride beyond the kernel with SAME is in docs/reference/onnx_differences.md.
        attributes["strides"] = [min(s, k) for s, k in zip(attributes["strides"], kernel, strict=True)]
        return attributes
    if dilations and b.chance(0.3):
        attributes["dilations"] = [b.integer(1, 2) if k < 3 else 1 for k in kernel]
    if kind < 3:
        attributes["pads"] = [b.integer(0, k - 1) for k in kernel * 2]
    if ceil:
        attributes["ceil_mode"] = b.integer(0, 1)
    return attributes


@makes("Conv")
def conv(b: Builder) -> Draft:
    dims = b.integer(1, 3)
    name = _image(b, dims)
    channels, attributes = b.array(name).shape[1], _window(b, dims)
    group = b.one([1, 1, channels])
    maps = group * b.integer(1, 3)
    weights = b.fresh(b.array(name).dtype, (maps, channels // group, *attributes["kernel_shape"]))
    bias = b.fresh(b.array(name).dtype, (maps,)) if b.chance(0.5) else ""
    return Draft([name, weights, bias], {**attributes, "group": group})


@makes("ConvTranspose")
def conv_transpose(b: Builder) -> Draft:
    dims = b.integer(1, 2)
    name = _image(b, dims)
    channels, attributes = b.array(name).shape[1], _window(b, dims)
    attributes.pop("auto_pad", None)
    group = b.one([1, 1, channels])
    maps = b.integer(1, 3)
    if b.chance(0.4):
        attributes["output_padding"] = [s - 1 for s in attributes["strides"]]
    weights = b.fresh(b.array(name).dtype, (channels, maps, *attributes["kernel_shape"]))
    bias = b.fresh(b.array(name).dtype, (maps * group,)) if b.chance(0.5) else ""
    return Draft([name, weights, bias], {**attributes, "group": group})


@makes("AveragePool", "LpPool")
def pool(b: Builder) -> Draft:
    dims = b.integer(1, 3) if b.op == "AveragePool" else b.integer(1, 2)
    attributes = _window(b, dims, ceil=b.version >= 10)
    return Draft([_image(b, dims)], {**attributes, "count_include_pad": b.integer(0, 1), "p": b.integer(1, 2)})


@makes("MaxPool")
def max_pool(b: Builder) -> Draft:
    dims = b.integer(1, 3)
    attributes = _window(b, dims, ceil=True)
    outputs = 2 if b.version >= 8 and b.chance(0.3) and "auto_pad" not in attributes else 1
    return Draft(
        [_image(b, dims)], {**attributes, "storage_order": b.integer(0, 1) if outputs == 2 and dims == 2 else None}, outputs
    )


@makes("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(b: Builder) -> Draft:
    name = b.value(b.types(), (3, 4, 5), fits=lambda a: 0 not in a.shape, shape=lambda rank: (2, 3, 4, 3, 2)[:rank])
    return Draft([name], {"p": b.integer(1, 3)})


@makes("LRN")
def lrn(b: Builder) -> Draft:
    name = b.value(b.types(), (4,), fits=lambda a: bool(np.all(np.isfinite(a.astype(np.float64)))))
    return Draft([name], {"size": b.one([1, 3, 5]), "alpha": b.one([None, 0.25]), "beta": b.one([None, 0.5]), "bias": 1.0})


@makes("Upsample", "Resize")
def resize(b: Builder) -> Draft:
    dims = b.integer(1, 2)
    name = _image(b, dims, batch0=False)
    mode = b.one(["nearest", "linear", *(["cubic"] if b.version >= 11 and dims == 2 else [])])
    scales = [1.0, 1.0, *(b.one([1.0, 1.5, 2.0, 0.5, 0.75, 3.0] if b.op == "Resize" else [1.0, 2.0, 3.0]) for _ in range(dims))]
    if b.has("scales"):
        return Draft([name], {"mode": mode, "scales": scales})
    if b.version < 11:
        return Draft([name, b.constant(scales, np.float32)], {"mode": mode})
    attributes: dict[str, Any] = {
        "mode": mode,
        "coordinate_transformation_mode": b.one(["half_pixel", "asymmetric", "pytorch_half_pixel", "align_corners"]),
        "nearest_mode": b.one(["round_prefer_floor", "floor", "ceil", "round_prefer_ceil"]) if mode == "nearest" else None,
        "cubic_coeff_a": b.one([None, -0.5]) if mode == "cubic" else None,
        "exclude_outside": b.integer(0, 1) if mode == "cubic" else None,
    }
    roi = b.constant(np.zeros(0, np.float32)) if b.version < 13 else ""
    if b.chance(0.5):
        return Draft([name, roi, b.constant(scales, np.float32)], attributes)
    sizes = [*b.array(name).shape[:2], *(b.integer(1, 9) for _ in range(dims))]
    empty = b.constant(np.zeros(0, np.float32)) if b.version < 13 else ""
    return Draft([name, roi, empty, b.constant(sizes, np.int64)], attributes)


@makes("GridSample")
def grid_sample(b: Builder) -> Draft:
    # Both peers compute floats only: onnx.reference gives zeros for integers.
    name = _image(b, 2, batch0=False, types=FLOATS)
    shape = (b.array(name).shape[0], b.integer(1, 4), b.integer(1, 4), 2)
    grid = b.rng.uniform(-1.4, 1.4, shape).astype(b.array(name).dtype if b.version < 20 else np.float32)
    modes = ["linear", "nearest", "cubic"] if b.version >= 20 else ["bilinear", "nearest", "bicubic"]
    padding = b.one(["zeros", "border", "reflection"])
    return Draft([name, b.data(grid)], {"mode": b.one(modes), "padding_mode": padding, "align_corners": b.integer(0, 1)})


@makes("AffineGrid")
def affine_grid(b: Builder) -> Draft:
    n = b.integer(1, 2)
    theta = b.fresh(b.one(b.types()), (n, 2, 3))
    return Draft([theta, b.constant([n, 3, b.integer(1, 4), b.integer(1, 5)], np.int64)], {"align_corners": b.integer(0, 1)})


@makes("RoiAlign")
def roi_align(b: Builder) -> Draft:
    name = _image(b, 2, batch0=False)
    dtype, count = b.array(name).dtype, b.integer(1, 3)
    start = b.rng.uniform(0, 2, (count, 2))
    boxes = np.concatenate([start, start + b.rng.uniform(1, 4, (count, 2))], axis=1).astype(dtype)
    batch = b.data(b.rng.integers(0, b.array(name).shape[0], count).astype(np.int64))
    half = b.one([None, "half_pixel", "output_half_pixel"])
    attributes = {
        "output_height": b.integer(1, 3),
        "output_width": 2,
        "sampling_ratio": 2,
        "coordinate_transformation_mode": half,
    }
    return Draft([name, b.data(boxes), batch], attributes)


@makes("MaxRoiPool")
def max_roi_pool(b: Builder) -> Draft:
    name = _image(b, 2, batch0=False)
    rois = np.array([[0, 0, 0, 3, 2], [0, 1, 1, 3, 3]], b.array(name).dtype)
    return Draft([name, b.data(rois)], {"pooled_shape": [2, 2]})


@makes("MaxUnpool")
def max_unpool(b: Builder) -> Draft:
    places = np.array([[[[0, 3], [9, 15]]]], np.int64)
    return Draft([b.fresh(b.one(b.types()), (1, 1, 2, 2)), b.data(places)], {"kernel_shape": [2, 2], "strides": [2, 2]})
