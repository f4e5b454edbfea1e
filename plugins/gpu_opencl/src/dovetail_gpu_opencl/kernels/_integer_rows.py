"""Sums of products of 8-bit integers on CPUs: how integer_rows.cl is launched, for convolutions and products of matrices."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.device import DType
from dovetail_gpu_opencl.capabilities import Capabilities
from dovetail_gpu_opencl.kernel import ceil_div, round_up
from dovetail_gpu_opencl.kernels._bytes import parts_between, parts_of
from dovetail_gpu_opencl.kernels._integer import Result, Weights
from dovetail_gpu_opencl.kernels._spatial import named
from dovetail_gpu_opencl.launch import Argument, Constant, Launch, Null, Scratch, ints
from dovetail_gpu_opencl.memory import aligned_empty
from dovetail_gpu_opencl.source import C_TYPES, assemble

__all__ = ["COLUMNS", "VECTOR", "Sums", "channels_last", "is_sparse", "pack_on_device", "pack_weights", "packed", "source_of"]

ROWS, TILED_ROWS = 6, 32
"""Pixels, also with tiles."""
SPAN, MOST = 4, 16
"""Blocks of channels for which pixels are brought into private memory once. 4 save 8 % to 2, and 16 save another 9 % of a network
of convolutions, where there are `MANY` work items for each unit, so that all units end together. Tiles take 4."""
MANY = 32
VECTOR = 8
COLUMNS = 16
"""6 rows of 2 vectors: with both vectors of weights, a pair and a product they fill the 16 registers that every CPU has."""
BEHIND = 1024
"""Bytes behind weights in fours, which tiles read and multiply by zeros."""
_FILE = "integer_rows.cl"
_WEIGHTS = ("M", "C", "KH", "KW")


@dataclass(frozen=True, slots=True)
class Sums:
    """The sizes of the sums: those of a convolution by the names that kernels use, and the number of images.

    `plain`: channels of the result are outer, as in NCHW; else they are innermost.
    """

    numbers: Mapping[str, int]
    images: int
    plain: bool = False

    @staticmethod
    def of_product(m: int, n: int, k: int, batch: int) -> "Sums":
        """[m, k] by [k, n]: an image of one row with m pixels of k channels."""
        ones = dict.fromkeys(["GROUPS", "IH", "OH", "KH", "KW", "STRIDE_Y", "STRIDE_X", "DILATION_Y", "DILATION_X"], 1)
        return Sums({**ones, "C": k, "M": n, "IW": m, "OW": m, "PAD_Y": 0, "PAD_X": 0}, batch)

    @property
    def pixels(self) -> int:
        """Pixels of one image of the result."""
        return self.numbers["OH"] * self.numbers["OW"]

    def spans(self, span: int) -> int:
        """How many times `span` blocks of output channels there are, in all groups."""
        groups = self.numbers["GROUPS"]
        return groups * ceil_div(ceil_div(self.numbers["M"] // groups, COLUMNS), span)

    @property
    def taps(self) -> int:
        """Elements of the kernel whose inputs are adjacent in memory: a row of it, or one."""
        joined = self.numbers["GROUPS"] == 1 and self.numbers["DILATION_X"] == 1
        return self.numbers["KW"] if joined else 1

    @property
    def is_depthwise(self) -> bool:
        """Whether each channel is a separate group."""
        return self.numbers["C"] == 1 and 1 < self.numbers["GROUPS"] == self.numbers["M"]

    def pack(self, weights: Weights, caps: Capabilities) -> tuple[Argument, dict[str, object]]:
        """Weights [M, C, *K] as the kernel reads them, and the defines that say how."""
        if self.is_depthwise:
            return _argument(weights.packed("integer_depthwise", lambda whole: _smallest(whole.reshape(len(whole), -1).T)))
        return packed(weights, tuple(map(self.numbers.__getitem__, _WEIGHTS)), caps, self.numbers["GROUPS"], self.taps)

    def launch(
        self,
        units: int,
        defines: Mapping[str, object],
        result: Result,
        src: Argument,
        wei: Argument,
        zero: Argument,
        bias: Argument,
        dst: Argument,
    ) -> Launch:
        """The launch on so many compute units; `defines` are the type X, those of the weights, and what the file says."""
        steps = (1, self.pixels) if self.plain else (self.numbers["M"], 1)
        names = "GROUPS C M IH IW OH OW KH KW STRIDE_Y STRIDE_X DILATION_Y DILATION_X PAD_Y PAD_X"
        rows = _rows(defines)
        tiles = ceil_div(self.pixels, rows) * self.images
        span = SPAN if tiles * self.spans(SPAN) >= 2 * units else 2 if defines.get("TILES") else 1
        if not defines.get("TILES") and tiles * self.spans(MOST) >= MANY * units:
            span = MOST
        arguments = (src, wei, zero, bias, dst, *named(self.numbers, names), *ints(self.taps, *steps, span), *result.arguments)
        source = source_of(defines, result)
        work = (ceil_div(self.pixels, rows), self.spans(span), self.images)
        if self.is_depthwise:
            return Launch(_FILE, source, "integer_depthwise", arguments, (self.pixels, self.images), (1, 1), result.options)
        return Launch(_FILE, source, "integer_rows", arguments, work, (1, 1, 1), result.options)


def source_of(defines: Mapping[str, object], result: Result) -> str:
    """The program: that of all sizes."""
    most = SPAN if defines.get("TILES") else MOST
    return assemble(_FILE, {**result.defines, **defines, "ROWS": _rows(defines), "MOST": most}, result.source)


def _rows(defines: Mapping[str, object]) -> int:
    return TILED_ROWS if defines.get("TILES") else ROWS


def packed(
    weights: Weights, dims: tuple[int, ...], caps: Capabilities, groups: int = 1, taps: int = 1
) -> tuple[Argument, dict[str, object]]:
    """Weights that are [M, C, KH, KW] in the order of integer_rows.cl, and the defines that say in which."""
    parts = max(parts_of(weights), 1)
    fours = caps.multiplies_fours if parts <= (2 if caps.multiplies_tiles else 1) else 0
    order = ("integer_rows", groups, taps, fours > 0)
    made = weights.packed(order, lambda whole: pack_weights(whole.reshape(dims), groups, taps, parts if fours else 0))
    wei, defines = _argument(made)
    tiled: dict[str, object] = {"FOURS": fours, "TILES": caps.multiplies_tiles, "PARTS": parts}
    return wei, {**defines, **tiled} if fours else defines


def _argument(weights: NDArray[np.integer]) -> tuple[Argument, dict[str, object]]:
    return Constant(weights) if weights.size else Null(), {"W": C_TYPES[DType.of(weights.dtype)]}


def pack_weights(weights: NDArray[np.integer], groups: int, taps: int, fours: int = 0) -> NDArray[np.integer]:
    """Whole numbers [M, C, KH, KW] in the order of integer_rows.cl: of 8 bits where these hold them, else of 16.

    With `fours` they are of 8 bits, of which one or two make a number, and their sums follow each block.
    """
    maps, channels, height, width = weights.shape
    step = 4 if fours else 2
    own, length = maps // groups, taps * channels
    blocks, lines = ceil_div(own, COLUMNS), height * (width // taps)
    padded = np.zeros((groups, blocks * COLUMNS, lines, round_up(length, step)), np.int8 if fours == 1 else np.int16)
    padded[:, :own, :, :length] = weights.transpose(0, 2, 3, 1).reshape(groups, own, lines, length)
    ordered = padded.reshape(groups, blocks, COLUMNS, lines, ceil_div(length, step), step).transpose(0, 1, 3, 4, 2, 5)
    if not fours:
        return _smallest(ordered)
    matrices = (ordered,) if fours == 1 else (ordered >> 1, ordered - (ordered >> 1))
    sums = padded.sum(axis=(2, 3), dtype=np.int32).reshape(groups * blocks, COLUMNS)
    size = ordered[0, 0].size
    found = aligned_empty((groups * blocks * (fours * size + sums[0].nbytes) + BEHIND,), np.int8)
    found[-BEHIND:] = 0
    matrix = found[:-BEHIND].reshape(groups * blocks, -1)
    for part, values in enumerate(matrices):
        matrix[:, part * size : (part + 1) * size] = values.reshape(groups * blocks, size)
    matrix[:, -sums[0].nbytes :] = sums.view(np.int8)
    return found


def _smallest(weights: NDArray[np.integer]) -> NDArray[np.integer]:
    parts = parts_between(int(weights.min(initial=0)), int(weights.max(initial=0)))
    found = aligned_empty(weights.shape, np.int8 if parts == 1 else np.int16)
    found[...] = weights
    return found


def is_sparse(groups: int, channels: int, maps: int) -> bool:
    """Whether groups are so small that vectors would be mostly empty; those of one channel have a separate kernel."""
    return groups > 1 and channels < COLUMNS and maps // groups < VECTOR and not channels == maps // groups == 1


def channels_last(source: str, src: Argument, scratch: Scratch, images: int, channels: int, pixels: int) -> Launch:
    """The launch that brings images into the order in which the program reads them."""
    arguments = (src, scratch, *ints(channels, pixels))
    return Launch(_FILE, source, "channels_last", arguments, (ceil_div(pixels, 16), images), (1, 1))


def pack_on_device(source: str, b: Argument, zero: Argument, scratch: Scratch, batch: int, k: int, n: int) -> Launch:
    """The launch that packs matrices [batch, k, n] less their zero points as the weights, of short, that the program reads."""
    return Launch(_FILE, source, "pack", (b, zero, scratch, *ints(n, k)), (ceil_div(n, COLUMNS), batch), (1, 1))
