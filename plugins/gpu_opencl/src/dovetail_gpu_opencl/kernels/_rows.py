"""Kernels that work on one row at a time: softmax and normalization along an axis."""

from dovetail.device import DType
from dovetail_gpu_opencl.capabilities import Capabilities
from dovetail_gpu_opencl.kernel import group_size
from dovetail_gpu_opencl.kernels._axis import Lines
from dovetail_gpu_opencl.source import accumulator

__all__ = ["row_defines"]


def row_defines(rows: Lines, dtype: DType, caps: Capabilities, *, dense: bool = True) -> dict[str, int]:
    """Sizes and tunables: a work group of one item, and vectors, for each row on CPUs; a larger work group on GPUs.

    `dense` says that neighbours in a row are neighbours in memory, in all sizes.
    """
    group = 1 if caps.kind == "CPU" else group_size(caps, min(256, max(32, 1 << (rows.size - 1).bit_length())))
    # Vectors of halves need an extension, those of bfloat16 there are none of.
    vec = 1 if caps.kind != "CPU" or not dense or dtype.itemsize < 4 else caps.lanes(accumulator(dtype))
    return {"SIZE": rows.size, "INNER": rows.inner, "GROUP": group, "VEC": vec}
