"""Shared by convolution and pooling: the geometry as defines."""

import functools
from collections.abc import Mapping

from dovetail_gpu_opencl.kernel import ceil_div
from dovetail_gpu_opencl.launch import Scalar, ints
from dovetail_ops_onnx.spatial import ConvGeometry

__all__ = ["IMAGES", "MAX_SPATIAL", "WINDOW", "interior", "named", "spatial_arguments", "spatial_defines"]

MAX_SPATIAL = 3
WINDOW = ("KH", "KW", "STRIDE_Y", "STRIDE_X", "DILATION_Y", "DILATION_X")
"""The defines of kernels of rows (image_rows.cl); other sizes are arguments."""
IMAGES = tuple(f"{what}{axis}" for what, axes in (("I", "DHW"), ("O", "DHW"), ("PAD_", "ZYX")) for axis in axes)
"""The defines that change with the sizes of images; pads, where they are chosen for these."""
_AXES = (("D", "Z"), ("H", "Y"), ("W", "X"))


def spatial_defines(g: ConvGeometry) -> dict[str, int]:
    """Sizes as IW, OW, KW, STRIDE_X, DILATION_X, PAD_X, and so on for H (Y) and D (Z); missing axes have size 1."""
    missing = MAX_SPATIAL - g.rank
    defines: dict[str, int] = {}
    for axis, (size, place) in enumerate(_AXES, -missing):
        if axis < 0:
            values = (1, 1, 1, 1, 1, 0)
        else:
            values = (g.input[axis], g.output[axis], g.kernel[axis], g.strides[axis], g.dilations[axis], g.pads_begin[axis])
        names = (f"I{size}", f"O{size}", f"K{size}", f"STRIDE_{place}", f"DILATION_{place}", f"PAD_{place}")
        defines.update(zip(names, values, strict=True))
    return defines


def spatial_arguments(g: ConvGeometry) -> tuple[Scalar, ...]:
    """Sizes of input, output and kernel, strides, dilations and begin pads as ints, each for z, y and x."""
    missing = (1,) * (MAX_SPATIAL - g.rank)
    sizes = [number for sizes in (g.input, g.output, g.kernel, g.strides, g.dilations) for number in (*missing, *sizes)]
    return ints(*sizes, *(0 for _ in missing), *g.pads_begin)


def named(numbers: Mapping[str, int], names: str) -> tuple[Scalar, ...]:
    """The numbers of these names as arguments."""
    return ints(*map(numbers.__getitem__, _split(names)))


@functools.cache
def _split(names: str) -> list[str]:
    return names.split()


def interior(g: ConvGeometry) -> dict[str, int]:
    """The output columns, from FIRST and up to LAST, whose windows do not leave the input to the left or right."""
    pad, stride, reach = g.pads_begin[-1], g.strides[-1], g.extent[-1]
    first = min(g.output[-1], ceil_div(pad, stride))
    last = min(g.output[-1], (g.input[-1] - reach + pad) // stride + 1)
    return {"FIRST": first, "LAST": max(first, last)}
