"""oneDNN's memory descriptors, and the layout tokens of the core that they correspond to."""

from collections.abc import Sequence
from ctypes import POINTER, c_int, c_int64
from functools import cache, lru_cache
from itertools import accumulate
from operator import mul

from dovetail.device import BYXF, PLAIN, DType, Layout, TensorType
from dovetail_cpu_onednn.binding import BF16, DESCRIPTORS, F32, S8, S32, TAG_ANY, U8, MemoryDesc
from dovetail_cpu_onednn.library import library

__all__ = [
    "BLOCKED",
    "DATA_TYPES",
    "blocked",
    "describe",
    "in_blocks",
    "in_rank",
    "number_of",
    "padded_type",
    "plain",
    "plain_strides",
    "token_of",
    "tokens",
    "undecided",
]

# oneDNN's numbers of nCw16c and so on.
_TAGS = {(3, 16): 56, (4, 16): 78, (5, 16): 121, (3, 8): 69, (4, 8): 102, (5, 8): 142, (3, 4): 60, (4, 4): 84, (5, 4): 128}
_BLOCKS = {f"nC{'dhw'[5 - rank :]}{block}c": (rank, block) for rank, block in _TAGS}

_STRIDES, _PADDED_DIMS, _FORMAT_KIND, _BLOCK_COUNT, _BLOCK_SIZES, _BLOCK_AXES = 14, 260, 262, 263, 264, 265
_BLOCKED_KIND = 2

BLOCKED = (16, 8, 4)
"""The block sizes for which there are tokens: nChw16c and so on."""


def plain_strides(dims: Sequence[int]) -> tuple[int, ...]:
    """Strides in elements of a row-major tensor."""
    return tuple(accumulate(reversed(dims[1:]), mul, initial=1))[::-1] if dims else ()


_DATA_TYPES = {DType.BFLOAT16: BF16, DType.FLOAT32: F32, DType.INT32: S32, DType.INT8: S8, DType.UINT8: U8}

DATA_TYPES = frozenset(_DATA_TYPES)
"""The data types that oneDNN has too."""


def number_of(dtype: DType) -> int:
    """oneDNN's number of a data type in `DATA_TYPES`."""
    return _DATA_TYPES[dtype]


def plain(dims: Sequence[int], dtype: int = F32) -> MemoryDesc:
    """A row-major descriptor; a scalar becomes one element."""
    return _plain(tuple(dims), dtype)


@lru_cache(DESCRIPTORS)
def _plain(dims: tuple[int, ...], dtype: int) -> MemoryDesc:
    shape = dims or (1,)
    return library().strided(shape, plain_strides(shape), dtype)


def describe(tensor: TensorType) -> MemoryDesc:
    """The descriptor of a value in its layout."""
    if tensor.layout == PLAIN:
        return plain(tensor.dims, number_of(tensor.dtype))
    return _in_layout(tensor.dims, tensor.layout, number_of(tensor.dtype))


def undecided(tensor: TensorType) -> MemoryDesc:
    """The descriptor of a value whose layout is for the primitive to choose."""
    return library().tagged(tensor.dims, TAG_ANY, number_of(tensor.dtype))


@lru_cache(DESCRIPTORS)
def _in_layout(dims: tuple[int, ...], layout: Layout, dtype: int) -> MemoryDesc:
    if layout.name in _BLOCKS:
        return library().tagged(dims, _TAGS[_BLOCKS[layout.name]], dtype)
    order = layout.order(len(dims))
    strides = [0] * len(dims)
    step = 1
    for axis in reversed(order):
        strides[axis] = step
        step *= dims[axis]
    return library().strided(dims, strides, dtype)


@cache
def tokens(rank: int) -> tuple[Layout, ...]:
    """The layouts that tensors of a rank may have, plain first."""
    return (PLAIN, BYXF, *(blocked(rank, block) for block in BLOCKED)) if 3 <= rank <= 5 else (PLAIN,)


@cache
def blocked(rank: int, block: int) -> Layout:
    """Channels in blocks of one of `BLOCKED`, for a rank from 3 to 5."""
    return Layout(f"nC{'dhw'[5 - rank :]}{block}c")


def in_rank(layout: Layout, rank: int) -> Layout:
    """The layout for values of another rank, of which blocks have a token for each."""
    return blocked(rank, layout.block) if layout.block else layout


def token_of(desc: MemoryDesc) -> Layout | None:
    """The token of a descriptor; None for layouts that have none."""
    for layout in tokens(len(desc.dims)):
        same = plain(desc.dims, desc.dtype) if layout == PLAIN else _in_layout(desc.dims, layout, desc.dtype)
        if library().equal(desc, same):
            return layout
    return None


def in_blocks(desc: MemoryDesc) -> tuple[tuple[int, ...], tuple[int, ...], tuple[tuple[int, int], ...]] | None:
    """Whole blocks as a layout has them: the dimensions filled up, the strides of each (of its blocks) in elements, and axes and
    sizes of blocks from the outermost to the innermost. None for a layout that oneDNN describes in another way.
    """
    query = library().query
    if query(desc, _FORMAT_KIND, c_int()).value != _BLOCKED_KIND:
        return None

    def numbers(what: int, count: int) -> tuple[int, ...]:
        return tuple(query(desc, what, POINTER(c_int64)())[:count]) if count else ()

    rank, count = len(desc.dims), query(desc, _BLOCK_COUNT, c_int()).value
    blocks = zip(numbers(_BLOCK_AXES, count), numbers(_BLOCK_SIZES, count), strict=True)
    return numbers(_PADDED_DIMS, rank), numbers(_STRIDES, rank), tuple(blocks)


def padded_type(tensor: TensorType) -> TensorType:
    """The type with the dimensions that it takes up in memory: channels filled up to whole blocks."""
    if tensor.layout.name not in _BLOCKS:
        return tensor
    batch, blocks, *rest, block = tensor.memory_dims
    return TensorType(tensor.dtype, (batch, blocks * block, *rest), None, tensor.layout)
