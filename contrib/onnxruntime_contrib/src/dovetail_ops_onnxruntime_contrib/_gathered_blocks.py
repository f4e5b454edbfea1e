"""The kernel for the host of GatherBlockQuantized, where its composition would run a node for each step."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dovetail.op import DType, HostConfig, HostKernel, TensorType

if TYPE_CHECKING:
    from dovetail_ops_onnxruntime_contrib.gather_block_quantized import GatherBlockQuantized

__all__ = ["GatheredBlocks"]

Array = NDArray[Any]
Types = Sequence[TensorType | None]


class GatheredBlocks(HostKernel):
    """Takes rows of what is packed, and unpacks, centres and scales these in the result."""

    def configurations(self, op: "GatherBlockQuantized", inputs: Types, outputs: Types) -> Sequence[HostConfig]:
        is_known = outputs[0] is not None and outputs[0].dtype in (DType.FLOAT32, DType.FLOAT16)
        return (HostConfig.uniform(inputs, outputs),) if is_known else ()

    def execute(self, op: "GatherBlockQuantized", config: HostConfig, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        (data, indices, scales, zeros), dst = (*inputs, None)[:4], outputs[0]
        if not dst.size:
            return
        (gather, quantize), size, places = op.axes(data.ndim), data.shape[op.gather_axis], indices.reshape(-1)
        shape = (*dst.shape[:gather], len(places), *dst.shape[gather + indices.ndim :])
        outside = (places < -size) | (places >= size)
        is_outside = bool(outside.any())
        if is_outside:
            places = np.where(outside, 0, places)
        result = dst.reshape(shape)
        if not size:
            result.fill(0)
            return
        # NumPy converts halves in each step.
        y = result if dst.dtype == np.float32 else np.empty(shape, np.float32)
        bits = op.bits if data.dtype == np.uint8 else 0
        _unpack(_taken(data, places, gather), bits, y)
        factor = scales.take(places, gather).astype(np.float32, copy=False)
        if zeros is not None:
            zero = np.empty(factor.shape, np.float32)
            _unpack(_taken(zeros, places, gather), bits, zero)
            _by_block(np.subtract, y, zero, quantize, op.block_size)
        elif bits:
            np.subtract(y, np.float32(2 ** (bits - 1)), y)
        with np.errstate(all="ignore"):
            _by_block(np.multiply, y, factor, quantize, op.block_size)
            if y is not result:
                np.copyto(result, y, "same_kind")
        if is_outside:
            result[(slice(None),) * gather + (outside,)] = 0


def _taken(data: Array, places: Array, axis: int) -> Array:
    """The slices at these places; NumPy's `take` does not know the types of 4 bits, which have a byte for each number."""
    return data.view(np.uint8).take(places, axis).view(data.dtype)


def _unpack(packed: Array, bits: int, dst: Array) -> None:
    """Numbers of `bits` bits along the last axis, the first in the lowest bits, as floats; with 0 each is an element."""
    if bits in (0, 8):
        dst[...] = packed
        return
    parts, last = 8 // bits, dst.shape[-1]
    for part in range(parts):
        to = dst[..., part::parts]
        rows = packed[..., : -(-(last - part) // parts)]
        if part < parts - 1:
            shifted = np.right_shift(rows, np.uint8(part * bits)) if part else rows
            np.bitwise_and(shifted, np.uint8(2**bits - 1), to)
        else:
            np.right_shift(rows, np.uint8(part * bits), to)


def _by_block(function: np.ufunc, y: Array, other: Array, axis: int, size: int) -> None:
    """`y = function(y, other)`, where `other` has an element for each block of `size` elements of y along the axis."""
    if y.shape[axis] % size:
        function(y, np.repeat(other, size, axis)[(slice(None),) * axis + (slice(y.shape[axis]),)], y)
    else:
        blocks = y.reshape(*other.shape[: axis + 1], size, *other.shape[axis + 1 :])
        function(blocks, np.expand_dims(other, axis + 1), blocks)
