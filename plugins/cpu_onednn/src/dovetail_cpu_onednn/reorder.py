"""Moves values between memory layouts: constants and arrays of the host."""

import math
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.device import PLAIN, DType, TensorType, read_only
from dovetail.device import aligned as at_aligned_address
from dovetail_cpu_onednn.binding import F32, Arg, MemoryDesc
from dovetail_cpu_onednn.descriptors import describe, in_blocks, number_of, padded_type, plain
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.memory import aligned

__all__ = ["in_layout", "in_whole_blocks", "logical", "moved", "pack", "unpacked"]

Array = NDArray[Any]

SMALL = 1 << 17
"""Bytes of a constant up to which NumPy moves it, in 40 us. A primitive takes 110 to choose and compile, and keeps threads."""

ALONE = 1 << 21
"""Bytes of a constant up to which a primitive moves it on one thread: another one would spin until the next constant comes."""


def in_layout(array: Array, tensor: TensorType) -> Array:
    """A constant in the layout of its type."""
    found = np.ascontiguousarray(at_aligned_address(array)).reshape(array.shape)
    if tensor.layout == PLAIN:
        return found
    if tensor.dtype is not DType.FLOAT32 and tensor.layout.is_permutation:
        return np.ascontiguousarray(found.transpose(tensor.order))
    wanted = describe(tensor)
    return moved(found, plain(found.shape, number_of(tensor.dtype)), wanted, aligned(library().nbytes(wanted)))


def moved(array: Array, src: MemoryDesc, dst: MemoryDesc, memory: Array) -> Array:
    """The memory, with a constant written to it in a layout, mostly another one."""
    if src is dst:
        np.copyto(memory, array.reshape(-1).view(np.uint8))
        return memory
    if array.nbytes <= SMALL and src.dtype == dst.dtype == F32 and _copied(array, src, dst, memory):
        return memory
    lib = library()
    threads, args = lib.planned_threads, ((Arg.SRC, src, array.ctypes.data), (Arg.DST, dst, memory.ctypes.data))
    is_alone = threads > 1 and array.nbytes <= ALONE
    try:
        if is_alone:
            lib.plan_threads(1)
        lib.execute(lib.describe_reorder(src, dst), args)
    finally:
        if is_alone:
            lib.plan_threads(threads)
    return memory


def _copied(array: Array, src: MemoryDesc, dst: MemoryDesc, memory: Array) -> bool:
    """The same in NumPy, for float32 and from a layout without blocks; False for others."""
    given, wanted = in_blocks(src), in_blocks(dst)
    if given is None or wanted is None or given[2]:
        return False
    value: Array = np.ndarray(src.dims, np.float32, array, strides=[4 * stride for stride in given[1]])
    dims, strides, blocks = wanted
    if dims != src.dims:
        whole = np.zeros(dims, np.float32)
        whole[tuple(map(slice, src.dims))] = value
        value = whole
    # Each axis becomes that of its blocks and those inside of them; in memory those of blocks come first, then those inside.
    inner = [[size for at, size in blocks if at == axis] for axis in range(len(dims))]
    outer = [size // math.prod(sizes) for size, sizes in zip(dims, inner, strict=True)]
    split = [size for count, sizes in zip(outer, inner, strict=True) for size in (count, *sizes)]
    order = list(accumulate((1 + len(sizes) for sizes in inner[:-1]), initial=0))
    following = [place + 1 for place in order]
    for axis, _ in blocks:
        order.append(following[axis])
        following[axis] += 1
    sizes = [size for _, size in blocks]
    steps = [4 * step for step in (*strides, *(math.prod(sizes[i + 1 :]) for i in range(len(sizes))))]
    np.copyto(np.ndarray([*outer, *sizes], np.float32, memory, strides=steps), value.reshape(split).transpose(order))
    return True


def in_whole_blocks(src: TensorType, dst: TensorType) -> tuple[TensorType, TensorType]:
    """The types as which a reorder moves data: whole blocks of channels, if the excess is written past a plain result.

    Ten channels of 52 x 52 out of blocks of 16 take 4.4 us so, and 19 us exactly (one thread).
    """
    filled = padded_type(src)
    if dst.layout != PLAIN or src.dims[0] != 1 or not src.dims[1] < filled.dims[1] < 2 * src.dims[1]:
        return src, dst
    return filled, TensorType(dst.dtype, filled.dims)


def logical(array: NDArray[Any], tensor: TensorType) -> NDArray[Any]:
    """A view of an array in a permuted layout, with the dimensions of `tensor`."""
    return array if tensor.layout == PLAIN else array.transpose(np.argsort(tensor.order))


def unpacked(array: Array, tensor: TensorType) -> Array:
    """The value in its own dimensions, of memory in any layout."""
    if not tensor.layout.block:
        return read_only(logical(array, tensor))
    batch, blocks, *rest, block = array.shape
    return np.moveaxis(array, -1, 2).reshape(batch, blocks * block, *rest)[:, : tensor.dims[1]]


def pack(value: Array, dst: Array, tensor: TensorType) -> None:
    """Write a value, in its own dimensions, to memory in the layout of `tensor`; channels beyond its own become zero."""
    if not tensor.layout.block:
        np.copyto(logical(dst, tensor), value)
        return
    batch, blocks, *rest, block = dst.shape
    whole = np.zeros((batch, blocks * block, *rest), dst.dtype)
    whole[:, : tensor.dims[1]] = value
    np.copyto(dst, np.moveaxis(whole.reshape(batch, blocks, block, *rest), 2, -1))
