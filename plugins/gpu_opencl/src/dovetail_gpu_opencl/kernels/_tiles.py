"""The tiled matrix product of GPUs, tiles.cl: tilings as data, which one a product gets, and its launches."""

import dataclasses
import functools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.device import DType, Reason, Refusal, TypedNode
from dovetail_gpu_opencl.capabilities import Capabilities
from dovetail_gpu_opencl.kernel import ceil_div, round_up
from dovetail_gpu_opencl.kernels._tuned import Problem, Tuned
from dovetail_gpu_opencl.launch import Argument, Counters, Launch, Scratch
from dovetail_gpu_opencl.post_ops import Epilogue
from dovetail_gpu_opencl.precision import holds
from dovetail_gpu_opencl.sizes import by_value
from dovetail_gpu_opencl.source import assemble

__all__ = [
    "MATRIX_FORMATS",
    "Problem",
    "Tiled",
    "Tiling",
    "Tuned",
    "as_words",
    "matrix_of",
    "suffix",
    "tiled_launches",
    "tilings",
]


MATRIX_FORMATS = ("f32", "tf32", "bf16", "f16")
"""The formats of factors on matrix units, in the order of their numbers in tiles.cl; the first is without matrix units."""


def matrix_of(dtype: DType, caps: Capabilities, *constants: NDArray[Any] | None) -> int:
    """The format for products of a data type, by these constants, on a device: halves stay halves.

    bfloat16 stays bfloat16, or becomes TF32, which holds it; float16 does not. Nor do constants become infinite.
    """
    if not caps.matrix or dtype is DType.FLOAT64 or (dtype is DType.BFLOAT16 and caps.matrix == "f16"):
        return 0
    narrow = {"f16": DType.FLOAT16, "bf16": DType.BFLOAT16}.get(caps.matrix)
    if narrow is not None and not all(holds(narrow, array) for array in constants if array is not None):
        return 0
    return MATRIX_FORMATS.index("f16" if dtype is DType.FLOAT16 else caps.matrix)


def suffix(matrix: int) -> str:
    """The suffix of the keys of problems that matrix units compute."""
    return f" {MATRIX_FORMATS[matrix]}" if matrix else ""


@dataclass(frozen=True, slots=True)
class Tiling:
    """The tunables of tiles.cl, by the names that it uses. `matrix` is the format of matrix units, 0 without them."""

    tile_m: int
    tile_n: int
    tile_k: int
    work_m: int
    work_n: int
    slices: int = 1
    splits: int = 1
    buffers: int = 2
    matrix: int = 0

    @property
    def items(self) -> int:
        """Work items of a group."""
        return self.tile_m // self.work_m * (self.tile_n // self.work_n) * self.slices * (32 if self.matrix else 1)

    @property
    def pack(self) -> int:
        """Neighbours along k in a word of local memory."""
        return 2 if MATRIX_FORMATS[self.matrix] in ("bf16", "f16") else 1

    def local_elements(self) -> int:
        """Elements of local memory (words for matrix units), at most."""
        if self.matrix:
            words = self.buffers * self.tile_k // self.pack * (self.tile_m + self.tile_n + 16)
            return max(words, self.slices * self.tile_m * (self.tile_n + 8)) + 1
        pads = 16 if self.tile_k == 16 else min(4, self.work_m) + min(4, self.work_n)
        buffers = self.buffers * self.tile_k * (self.tile_m + self.tile_n + pads)
        return max(buffers, self.slices // 2 * self.tile_m * self.tile_n)

    def defines(self) -> dict[str, int]:
        """The tunables as macros."""
        return {name.upper(): value for name, value in dataclasses.asdict(self).items() if value}

    def numbers(self) -> list[int]:
        """As tables of tuned parameters keep it."""
        return list(dataclasses.astuple(self))

    def __str__(self) -> str:
        text = f"{self.tile_m}x{self.tile_n}x{self.tile_k}/{self.work_m}x{self.work_n}"
        text += f" {MATRIX_FORMATS[self.matrix]}" if self.matrix else ""
        text += f" slices {self.slices}" if self.slices > 1 else ""
        return text + (f" splits {self.splits}" if self.splits > 1 else "")


def groups(problem: Problem, tiling: Tiling) -> int:
    """Work groups in the NDRange."""
    return ceil_div(problem.m, tiling.tile_m) * ceil_div(problem.n, tiling.tile_n) * problem.z * tiling.splits


_SHAPES = (
    (128, 128, 16, 8, 8, 1),
    (128, 64, 16, 8, 8, 1),
    (64, 128, 16, 8, 8, 1),
    (64, 64, 16, 8, 4, 1),
    (64, 64, 16, 4, 4, 1),
    (64, 64, 32, 8, 8, 2),
    (64, 64, 32, 8, 4, 2),
    (64, 32, 16, 4, 4, 1),
    (32, 64, 16, 4, 4, 1),
    (64, 32, 32, 4, 4, 2),
    (32, 64, 32, 4, 4, 2),
    (64, 32, 32, 8, 4, 4),
    (32, 64, 32, 4, 8, 4),
    (32, 32, 16, 4, 4, 1),
    (32, 32, 32, 4, 4, 2),
    (32, 32, 64, 4, 4, 4),
    (64, 16, 32, 4, 4, 2),
    (16, 64, 32, 4, 4, 2),
    (32, 16, 64, 4, 4, 4),
    (16, 32, 64, 4, 4, 4),
    (16, 16, 64, 4, 4, 8),
    (16, 16, 32, 2, 2, 2),
    (8, 32, 64, 4, 4, 8),
    (4, 64, 64, 4, 4, 8),
    (4, 64, 64, 1, 4, 4),
    (64, 64, 32, 8, 8, 4),
    (64, 32, 32, 8, 8, 4),
    (64, 32, 64, 8, 8, 8),
    (32, 64, 64, 8, 8, 8),
    (32, 32, 64, 8, 8, 8),
    (32, 32, 64, 8, 8, 16),
    (32, 32, 32, 8, 4, 4),
    (32, 32, 64, 8, 4, 8),
    (16, 32, 64, 8, 8, 16),
    (16, 32, 64, 4, 8, 8),
    (32, 16, 64, 8, 4, 8),
    (16, 16, 128, 8, 4, 16),
    (16, 16, 128, 4, 4, 16),
    (8, 16, 128, 4, 4, 16),
    (8, 32, 64, 4, 4, 16),
    (1, 64, 64, 1, 4, 8),
    (1, 16, 128, 1, 4, 32),
    (1, 32, 256, 1, 4, 32),
    (1, 32, 128, 1, 4, 16),
)
_MATRIX_SHAPES = (
    (128, 64, 32, 32, 32, 1),
    (64, 128, 32, 32, 32, 1),
    (64, 64, 32, 32, 32, 1),
    (64, 64, 64, 32, 16, 1),
    (64, 64, 64, 32, 32, 2),
    (64, 32, 64, 32, 16, 1),
    (64, 32, 128, 32, 16, 2),
    (64, 32, 128, 32, 32, 4),
    (32, 64, 64, 16, 32, 1),
    (32, 64, 128, 16, 32, 2),
    (32, 64, 128, 32, 32, 4),
    (32, 32, 32, 16, 16, 1),
    (32, 32, 64, 16, 16, 2),
    (32, 32, 128, 16, 16, 2),
    (32, 32, 128, 16, 32, 4),
    (32, 32, 128, 32, 32, 8),
    (32, 32, 256, 16, 32, 8),
    (64, 16, 64, 32, 16, 2),
    (64, 16, 128, 32, 16, 4),
    (16, 64, 32, 16, 32, 1),
    (16, 64, 64, 16, 32, 2),
    (16, 64, 128, 16, 32, 4),
    (32, 16, 128, 16, 16, 4),
    (32, 16, 256, 16, 16, 8),
    (16, 32, 64, 16, 16, 2),
    (16, 32, 128, 16, 16, 4),
    (16, 32, 256, 16, 32, 8),
    (16, 32, 256, 16, 16, 8),
    (16, 16, 64, 16, 16, 4),
    (16, 16, 128, 16, 16, 8),
    (16, 16, 256, 16, 16, 8),
    (16, 16, 256, 16, 16, 16),
)
_SIZES = ("Z", "M", "A_MATRIX", "B_MATRIX")
_CONV_SIZES, _DEEP_SIZES = ("N", "IH", "IW", "IMAGE", "PAD_Y", "PAD_X"), ("ID", "PAD_Z")
_CONV_DIVISORS = ("OW", "P", "PLANE")
_SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
_STEPS = 2
"""A part of a split works on at least so many slices: one alone waits for its loads."""


@functools.lru_cache(64)
def tilings(problem: Problem, caps: Capabilities) -> tuple[Tiling, ...]:
    """All tilings that can run the problem on a device; kept, because a plan asks for few problems many times."""
    return tuple(_tilings(problem, caps))


def _tilings(problem: Problem, caps: Capabilities) -> Iterator[Tiling]:
    """Mostly some: the last shape but one asks for 64 work items and 33 kB."""
    for shape in _MATRIX_SHAPES if problem.matrix else _SHAPES:
        for buffers in (2, 1):
            tiling = Tiling(*shape, buffers=buffers, matrix=problem.matrix)
            if _fits(tiling, problem, caps):
                steps = max(1, ceil_div(problem.k, tiling.tile_k))
                yield from (
                    dataclasses.replace(tiling, splits=ceil_div(steps, ceil_div(steps, splits)))
                    for splits in _SPLITS
                    if splits == 1 or steps >= _STEPS * splits
                )
                break


def _fits(tiling: Tiling, problem: Problem, caps: Capabilities) -> bool:
    if problem.columns and tiling.items % tiling.tile_n:
        return False
    if tiling.matrix and tiling.tile_k // tiling.slices % (8 * tiling.pack):
        return False
    if not tiling.matrix and (tiling.tile_m >= 32 * problem.m or tiling.tile_n >= 32 * problem.n):
        return False
    fits_group = tiling.items <= min(caps.max_work_group_size, caps.max_work_item_sizes[0])
    return fits_group and tiling.local_elements() * problem.itemsize <= caps.local_memory


@functools.cache
def default_tiling(problem: Problem, caps: Capabilities) -> Tiling:
    """The tiling that the cost model finds fastest."""
    return min(tilings(problem, caps), key=lambda t: estimate(problem, t, caps))


# The cost model, in cycles of a GPU whose compute units multiply and add 128 pairs a cycle. Fitted to 5,700 runs on
# an NVIDIA H200; there the choice is on average 5 % slower than the best candidate, at worst 27 %.
_LATENCY = 705.0  # of a slice that is waited for
_RESIDENT_ITEMS = 407  # work items that a compute unit runs at once without slowing each other down
_ARITHMETIC = 1.49  # cycles for what takes one at the peak
_LOCAL = 0.84  # cycles for 32 elements out of local memory
_GLOBAL = 0.0665  # cycles for an element out of global memory
_TURN = 22.0  # for each slice besides
_EPILOGUE = 1230.0
_LAUNCH = 6620.0  # the second launch of a split
_SUM = 0.121  # cycles for an element that it adds
_FOLD = 1500.0  # what splits cost where the last group adds them up,
_FOLD_SUM = 1.2  # and cycles for an element that it adds


# The same for matrix units, fitted to 5,000 runs of tiles_matrix.cl there at batch 1: on average 20 % slower than the best.
_MATRIX_LATENCY = 609.0
_MATRIX_RESIDENT_ITEMS = 825
_MATRIX_ARITHMETIC = 1.2
_MATRIX_LOCAL = 0.585  # cycles for 32 words out of local memory
_MATRIX_GLOBAL = 0.0726
_MATRIX_TURN = 40.0
_MATRIX_EPILOGUE = 80.0
_MATRIX_FOLD = 2376.0
_MATRIX_SUM = 0.99


def estimate(problem: Problem, tiling: Tiling, caps: Capabilities) -> float:
    """Cycles that the problem takes beyond its first launch."""
    return (_estimate_matrix if tiling.matrix else _estimate_plain)(problem, tiling, caps)


def _estimate_matrix(problem: Problem, tiling: Tiling, caps: Capabilities) -> float:
    t, share = tiling, ceil_div(groups(problem, tiling), caps.compute_units)
    resident = max(1, min(share, _MATRIX_RESIDENT_ITEMS // t.items))
    steps = ceil_div(ceil_div(problem.k, t.tile_k), t.splits)
    arithmetic = t.tile_m * t.tile_n * t.tile_k / 128 / min(1.0, resident * t.items / 128)
    sub_groups = t.tile_m // t.work_m * (t.tile_n // t.work_n)
    local = t.tile_k / t.pack * sub_groups * (t.work_m + t.work_n) / 32
    loads = (t.tile_m / t.pack + t.tile_n) * t.tile_k
    busy = resident * (max(_MATRIX_ARITHMETIC * arithmetic, _MATRIX_LOCAL * local) + _MATRIX_GLOBAL * loads)
    step = max(_MATRIX_LATENCY, busy) + _MATRIX_TURN
    work = ceil_div(share, resident) * (steps * step + _MATRIX_EPILOGUE * (1 + 0.547 * math.log2(t.slices)))
    sums = problem.z * problem.m * problem.n * t.splits / caps.compute_units
    return work + (_MATRIX_FOLD + _MATRIX_SUM * sums if t.splits > 1 else 0)


def _estimate_plain(problem: Problem, tiling: Tiling, caps: Capabilities) -> float:
    t, share = tiling, ceil_div(groups(problem, tiling), caps.compute_units)
    resident = max(1, min(share, _RESIDENT_ITEMS // t.items))
    steps = ceil_div(ceil_div(problem.k, t.tile_k), t.splits)
    arithmetic = t.tile_m * t.tile_n * t.tile_k / 128 / min(1.0, resident * t.items / 128)
    local = t.items / t.slices * t.tile_k / 32 * (t.work_m + t.work_n)
    loads = (t.tile_m + t.tile_n) * t.tile_k
    step = max(_LATENCY, resident * (max(_ARITHMETIC * arithmetic, _LOCAL * local) + _GLOBAL * loads)) + _TURN
    work = ceil_div(share, resident) * (steps * step + _EPILOGUE * (1 + 0.5 * math.log2(t.slices)))
    sums = problem.z * problem.m * problem.n * t.splits / caps.compute_units
    if t.splits == 1:
        return work
    return work + (_FOLD + _FOLD_SUM * sums if caps.ptx else _LAUNCH + _SUM * sums)


class Tiled(Tuned[Tiling]):
    """The base of tiled kernels: chooses a tiling."""

    def refusal(self, problem: Problem) -> Refusal | None:
        """Why the device runs no tiling of the problem."""
        if not tilings(problem, self.caps):
            return Refusal(Reason.CAPABILITY, "too few work items in a group, or too little local memory")
        return None

    def possible(self, problem: Problem) -> Iterable[Tiling]:
        """Those whose groups and local memory fit the device."""
        return tilings(problem, self.caps)

    def is_possible(self, problem: Problem, parameters: Tiling) -> bool:
        """Also with more rows or columns than the product has: most of such a tile is for nothing, but the result is right."""
        enough = dataclasses.replace(problem, m=max(problem.m, parameters.tile_m), n=max(problem.n, parameters.tile_n))
        return super().is_possible(enough, parameters)

    def cost(self, problem: Problem, parameters: Tiling) -> float:
        """Cycles."""
        return estimate(problem, parameters, self.caps)

    def default(self, problem: Problem) -> Tiling:
        """The one that the cost model finds fastest."""
        return default_tiling(problem, self.caps)

    def read(self, numbers: Sequence[int]) -> Tiling | None:
        """The fields of a tiling, in order."""
        return Tiling(*numbers) if len(numbers) == len(dataclasses.fields(Tiling)) else None


def as_words(lines: NDArray[np.generic], matrix: int) -> NDArray[np.uint32]:
    """Factors [..., k, x] as tiles_matrix.cl takes them: [..., k / pack rounded up, x], rounded as the device would."""
    wide = lines.astype(np.float32)
    bits = wide.view(np.uint32)
    if MATRIX_FORMATS[matrix] == "tf32":
        return np.where(np.isnan(wide), bits, bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
    if MATRIX_FORMATS[matrix] == "f16":
        with np.errstate(over="ignore"):
            narrow = wide.astype(np.float16).view(np.uint16).astype(np.uint32)
    else:
        even = bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))
        narrow = np.where(np.isnan(wide), bits | np.uint32(0x400000), even) >> np.uint32(16)
    pairs = np.pad(narrow, [(0, 0)] * (lines.ndim - 2) + [(0, lines.shape[-2] % 2), (0, 0)])
    return pairs[..., ::2, :] | pairs[..., 1::2, :] << np.uint32(16)


def _sizes_of(defines: Mapping[str, object]) -> tuple[str, ...]:
    if "P" not in defines:
        return _SIZES
    return _CONV_SIZES + (_DEEP_SIZES if "PLANE" in defines else ())


def tiled_launches(
    node: TypedNode,
    problem: Problem,
    tiling: Tiling,
    defines: Mapping[str, object],
    factors: Sequence[Argument],
    bias: tuple[Argument, ...],
    dst: Argument,
    chain: Epilogue,
    kernel: Tiled,
) -> tuple[Launch, ...]:
    """The launch of a product; with splits, where groups see no sums of others (`FOLD`), also the one that adds up the parts."""
    entry = "tiles_matrix" if tiling.matrix else "tiles"
    file = f"{entry}.cl"
    run, fold = problem.n if "P" not in defines else int(str(defines["P"])), kernel.caps.ptx
    together = kernel.packed.settled(file, node, math.gcd(4, run), lambda built: run % built == 0)
    sized, sizes = by_value(defines, _sizes_of(defines), _CONV_DIVISORS)
    source = assemble(file, {**sized, **tiling.defines(), "RUN_V": together, "FOLD": fold}, chain.source)
    after = (*sizes, *chain.arguments)
    tiles = (ceil_div(problem.n, tiling.tile_n), ceil_div(problem.m, tiling.tile_m), problem.z * tiling.splits)
    work, local = (tiles[0] * tiling.items, tiles[1], tiles[2]), (tiling.items, 1, 1)
    scratch = f"scratch:{node.name}:0"
    if tiling.splits == 1:
        return (Launch(file, source, entry, (*factors, *bias, dst, *after), work, local),)
    if fold:
        part = Scratch(scratch, math.prod(tiles) * tiling.tile_m * tiling.tile_n * problem.itemsize)
        counters = Counters(math.prod(tiles) // tiling.splits)
        return (Launch(file, source, entry, (*factors, *bias, dst, part, counters, *after), work, local),)
    size = math.prod((problem.z, problem.m, problem.n))
    part = Scratch(scratch, tiling.splits * size * problem.itemsize)
    product = Launch(file, source, entry, (*factors, part, *sizes), work, local)
    group = 128
    added = Launch(file, source, "tiles_sum", (part, *bias, dst, *after), (round_up(size, group),), (group,))
    return product, added
