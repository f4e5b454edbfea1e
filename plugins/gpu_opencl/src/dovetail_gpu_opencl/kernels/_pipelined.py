"""Products of halves or floats on matrix units in a pipeline, tiles_pipelined.cl: tilings as data, the choice, and the launch.

Halves are float16 or bfloat16.
"""

import dataclasses
import functools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.device import DType, Reason, Refusal, TensorType, TypedNode
from dovetail_gpu_opencl import post_ops
from dovetail_gpu_opencl.capabilities import Capabilities
from dovetail_gpu_opencl.kernel import ceil_div, round_up
from dovetail_gpu_opencl.kernels._tiles import matrix_of
from dovetail_gpu_opencl.kernels._tuned import Problem, Tuned
from dovetail_gpu_opencl.launch import Argument, Constant, Counters, Launch, Read, Scalar, Scratch, Write
from dovetail_gpu_opencl.sizes import by_value
from dovetail_gpu_opencl.source import STORED_TYPES, assemble, literal, load, loaded, stored

__all__ = [
    "DEPTH",
    "HALVES",
    "SHAPES",
    "Normalization",
    "Pipeline",
    "Pipelined",
    "bias_defines",
    "estimate",
    "factor_of",
    "load_defines",
    "multiplies",
    "operands_refusal",
    "pack_rows",
    "pipelined_launches",
    "pipelines",
    "runtime_sizes",
    "store_defines",
    "weighed",
]

HALVES = frozenset({DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32})
"""The data types of values beside products in a pipeline, and of those that are normalized there."""
DEPTH = 64
"""Rows of packed factors are filled up to a multiple of this, the largest TILE_K, in pairs of bytes."""
PATIENCE = 1.25
"""How much longer than without matrix units a product of floats may seem to take. With this the choices on an NVIDIA H200 took
half a percent more than the better kernel of each of 134 products."""
_CHUNK = 8


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The tunables of tiles_pipelined.cl, by the names that it uses; `tile_k` counts pairs of bytes.

    `streams` is the number of groups that share the slices of all tiles evenly (stream-k); 0 where each group has a tile, or
    one of `splits` parts of it.
    """

    tile_m: int
    tile_n: int
    tile_k: int
    work_m: int
    work_n: int
    stages: int
    splits: int = 1
    streams: int = 0

    @property
    def sub_groups(self) -> int:
        """Sub-groups of 32 items in a group."""
        return self.tile_m // self.work_m * (self.tile_n // self.work_n)

    @property
    def items(self) -> int:
        """Work items of a group."""
        return 32 * self.sub_groups

    def local_bytes(self) -> int:
        """Bytes of local memory."""
        slices = self.stages * (self.tile_m + self.tile_n) * self.tile_k * 2
        return max(slices, self.sub_groups * 16 * (self.work_n + 8) * 4)

    def tiles(self, problem: Problem) -> int:
        """Tiles of all products."""
        return ceil_div(problem.m, self.tile_m) * ceil_div(problem.n, self.tile_n) * problem.z

    def groups(self, problem: Problem) -> int:
        """Work groups of a launch."""
        return self.streams or self.tiles(problem) * self.splits

    def parts(self, problem: Problem) -> int:
        """Parts of tiles in the work buffer, which have four bytes for each element of a tile; 0 where no tile is shared."""
        if self.streams:
            return 2 * self.streams
        return self.tiles(problem) * self.splits if self.splits > 1 else 0

    def shared_sums(self, problem: Problem, scratch: str) -> tuple[Argument, ...]:
        """The work buffer for parts of tiles, with its name in the memory plan, and a counter for each tile."""
        parts = self.parts(problem)
        if not parts:
            return ()
        return Scratch(scratch, parts * self.tile_m * self.tile_n * 4), Counters(self.tiles(problem))

    def defines(self) -> dict[str, int]:
        """The tunables as macros."""
        return {name.upper(): getattr(self, name) for name in self.__slots__}

    def numbers(self) -> list[int]:
        """As tables of tuned parameters keep it."""
        return list(dataclasses.astuple(self))

    def __str__(self) -> str:
        text = f"{self.tile_m}x{self.tile_n}x{self.tile_k}/{self.work_m}x{self.work_n} stages {self.stages}"
        text += f" splits {self.splits}" if self.splits > 1 else ""
        return text + (f" streams {self.streams}" if self.streams else "")


_FIELDS = len(dataclasses.fields(Pipeline))
SHAPES = (
    (128, 128, 32, 64, 64, 3),
    (128, 128, 32, 64, 32, 3),
    (128, 64, 64, 64, 32, 2),
    (128, 64, 64, 32, 32, 2),
    (128, 64, 32, 64, 32, 4),
    (64, 128, 64, 32, 64, 2),
    (64, 128, 32, 32, 64, 4),
    (128, 32, 64, 32, 32, 2),
    (64, 64, 64, 32, 32, 2),
    (64, 64, 64, 32, 32, 3),
    (64, 64, 32, 32, 32, 4),
    (64, 32, 64, 32, 16, 4),
    (32, 64, 64, 16, 32, 4),
    (32, 64, 64, 32, 16, 4),
    (32, 32, 64, 16, 16, 6),
    (16, 64, 64, 16, 16, 4),
    (16, 32, 64, 16, 16, 6),
)
_SPLITS = (1, 2, 3, 4, 6, 8, 12, 16)
_MOST_FLOATS = 2048
"""Results of floats that the registers of a sub-group hold twice."""
_STEPS = 2
"""A part of a split works on at least so many slices."""
_STREAMS = (1, 2, 4, 8)
"""Groups of a compute unit among which the slices of all tiles are shared."""
_STREAM_STEPS = 4
"""Such a group, and a tile, has at least so many slices: each tile that it begins waits for its first loads."""
_STREAM_TILES = 4
"""Such a group has less than so many tiles: beyond that a last wave that leaves compute units idle is a small share."""
_LOCAL_MEMORIES = 4
"""Compute units of NVIDIA GPUs from sm_80 on hold about so many groups that use all the local memory that OpenCL reports."""


def factor_of(caps: Capabilities, node: TypedNode) -> DType:
    """The data type of factors in a pipeline: floats of floats where the device multiplies them, else the halves of the node."""
    dtypes = {node.given(0).dtype, node.outputs[0].dtype}
    if caps.float_pipeline and dtypes == {DType.FLOAT32}:
        return DType.FLOAT32
    return DType.BFLOAT16 if DType.BFLOAT16 in dtypes else DType.FLOAT16


def multiplies(caps: Capabilities, factor: DType) -> bool:
    """Whether the device multiplies factors of this data type in a pipeline."""
    units = {DType.FLOAT32: caps.float_pipeline, DType.FLOAT16: caps.pipeline, DType.BFLOAT16: caps.bfloat_pipeline}
    return units.get(factor, False)


def depth_of(problem: Problem) -> int:
    """Pairs of bytes along k."""
    return problem.k * problem.itemsize // 2


@functools.lru_cache(64)
def pipelines(problem: Problem, caps: Capabilities, shapes: tuple[tuple[int, ...], ...] = SHAPES) -> tuple[Pipeline, ...]:
    """All tilings of these shapes that can run the problem on a device; kept, because a plan asks for few problems many times."""
    return tuple(_pipelines(problem, caps, shapes))


def _pipelines(problem: Problem, caps: Capabilities, shapes: Iterable[tuple[int, ...]]) -> Iterator[Pipeline]:
    for shape in shapes:
        tiling = Pipeline(*shape)
        if problem.itemsize == 4 and not problem.matrix and tiling.work_m * tiling.work_n > _MOST_FLOATS:
            continue
        if tiling.items > min(caps.max_work_group_size, caps.max_work_item_sizes[0]):
            continue
        if tiling.local_bytes() > caps.local_memory:
            continue
        steps = max(1, ceil_div(depth_of(problem), tiling.tile_k))
        splits = {ceil_div(steps, ceil_div(steps, s)) for s in _SPLITS if s == 1 or steps >= _STEPS * s}
        yield from (Pipeline(*[*shape, s]) for s in sorted(splits))
        yield from _streamed(problem, tiling, caps)


def _streamed(problem: Problem, tiling: Pipeline, caps: Capabilities) -> Iterator[Pipeline]:
    """The tiling with the slices of all tiles shared among as many groups as a device runs at once, where that may gain time."""
    steps, tiles = ceil_div(depth_of(problem), tiling.tile_k), tiling.tiles(problem)
    if steps < _STREAM_STEPS or tiles * steps < _STREAM_STEPS * caps.compute_units:
        return
    held = _LOCAL_MEMORIES * caps.local_memory // tiling.local_bytes()
    most = min(held, _cycles(problem).resident_items // tiling.items)
    for share in _STREAMS:
        streams = share * caps.compute_units
        if share <= most and tiles * steps >= _STREAM_STEPS * streams and tiles % streams and tiles < _STREAM_TILES * streams:
            yield dataclasses.replace(tiling, streams=streams)


@functools.cache
def default_pipeline(problem: Problem, caps: Capabilities) -> Pipeline:
    """The tiling that the cost model finds fastest."""
    return min(pipelines(problem, caps), key=lambda t: weighed(problem, t, caps))


@dataclass(frozen=True, slots=True)
class _Cycles:
    """The cost model: what a device takes, in cycles."""

    latency: float  # of a slice that is waited for
    resident_items: float  # work items that a compute unit runs at once without slowing each other down
    arithmetic: float  # cycles for 1024 products of two bytes by two
    copy: float  # cycles for a byte that is copied to local memory,
    fragment: float  # and for one that is read there
    turn: float  # for each slice besides
    epilogue: float
    store: float  # cycles for an element of the result
    fold: float  # what splits cost,
    sum: float  # and cycles for an element that is added
    stream_sum: float  # and, where groups share slices evenly, for an element that one stores and another adds, part by part


# Fitted on an NVIDIA H200: to 1,500 runs of 45 products of halves, where the choice is on average 7 % slower than the best, at
# worst 44 %; to 1,100 runs of 134 products of floats: 5 and 50 %; to 3,000 runs of 127 of rounded floats: 6 and 40 %. The last
# figure is not fitted but an upper bound: that of splits of halves, which are stored and added as often.
_CYCLES = {
    2: _Cycles(707, 598, 1.09, 0.0147, 0.0065, 188, 223, 0.0925, 3730, 0.34, 0.34),
    4: _Cycles(2817, 667, 3.58, 0.00335, 0.0191, 287, 367, 0.365, 3142, 0, 0.34),
}
_ROUNDED = _Cycles(2660, 948, 2.0, 0.00226, 0.0162, 269, 700, 0.436, 2720, 0.202, 0.34)
_STREAM_GAIN = 0.9
"""Slices are shared among all groups where that seems to take at most so much of the time of the best other tiling."""


def _cycles(problem: Problem) -> _Cycles:
    return _ROUNDED if problem.matrix else _CYCLES[problem.itemsize]


def weighed(problem: Problem, tiling: Pipeline, caps: Capabilities) -> float:
    """The cycles of `estimate` by which tilings are compared, more for streams because the model knows them less."""
    return estimate(problem, tiling, caps) / (_STREAM_GAIN if tiling.streams else 1)


def estimate(problem: Problem, tiling: Pipeline, caps: Capabilities) -> float:
    """Cycles that the problem takes beyond its launch."""
    t, cycles = tiling, _cycles(problem)
    share = ceil_div(t.groups(problem), caps.compute_units)
    resident = max(1, min(share, int(cycles.resident_items // t.items)))
    arithmetic = t.tile_m * t.tile_n * t.tile_k / 1024 / min(1.0, resident * t.sub_groups / 4)
    copied = (t.tile_m + t.tile_n) * t.tile_k * 2
    fragments = t.tile_k * 2 * t.sub_groups * (t.work_m + t.work_n)
    busy = resident * max(cycles.arithmetic * arithmetic, cycles.copy * copied, cycles.fragment * fragments)
    step = max(cycles.latency / (t.stages - 1), busy) + cycles.turn
    slices, end = ceil_div(depth_of(problem), t.tile_k), cycles.epilogue + resident * t.tile_m * t.tile_n * cycles.store
    waves = max(1.0, share / resident)
    if t.streams:
        tiles = t.tiles(problem)
        begun = tiles / t.streams + 1  # the group fills its pipeline for each of these
        work = waves * ((ceil_div(tiles * slices, t.streams) + begun) * step + ceil_div(tiles, t.streams) * end)
        added = cycles.stream_sum * 2 * share * t.tile_m * t.tile_n + cycles.latency * (ceil_div(t.streams, tiles) + 1)
        return work + cycles.fold + added
    work = waves * ((ceil_div(slices, t.splits) + 1) * step + end)
    sums = problem.z * problem.m * problem.n * t.splits / caps.compute_units
    return work + (cycles.fold + cycles.sum * sums if t.splits > 1 else 0)


class Pipelined(Tuned[Pipeline]):
    """The base of kernels in a pipeline: what devices and types they take, and the choice of a tiling."""

    def refusal(self, node: TypedNode) -> Refusal | None:
        """Why the device, or the data types, are not for this kernel."""
        factor = self.factor(node)
        if not multiplies(self.caps, factor):
            if self.caps.float_pipeline:
                return Refusal(Reason.DTYPE, f"factors of {factor}; the hint {self.caps.matrix or 'f32'} accepts float32")
            tried = f"made for devices whose matrix units and asynchronous copies were tried with {factor}"
            return Refusal(Reason.CAPABILITY, tried)
        if node.outputs[0].dtype not in (factor, DType.FLOAT32):
            return Refusal(Reason.DTYPE, f"{node.outputs[0].dtype}")
        return None

    def factor(self, node: TypedNode) -> DType:
        """The data type of the factors."""
        return factor_of(self.caps, node)

    def format(self, factor: DType) -> int:
        """`Problem.matrix` for these factors: of floats the format that the hint lets them be rounded to."""
        return matrix_of(factor, self.caps) if factor is DType.FLOAT32 else 0

    def slower(self, problem: Problem, other: Tuned[Any], node: TypedNode, spared: float = 0.0) -> Refusal | None:
        """Refuses a product of floats that a kernel without matrix units is likely to compute in less time.

        `spared` are cycles that this kernel is likely to spare elsewhere.
        """
        if self.packed.keeps(self.name, node):
            return None
        tiled = other.problem(node) if self.factor(node) is DType.FLOAT32 and other.supports(node) else None
        if tiled is None:
            return None
        if self.least(problem) <= PATIENCE * other.least(tiled) + spared:
            return None
        return Refusal(Reason.SHAPE, f"{problem.m} x {problem.n} x {problem.k}; {other.name} is faster")

    def possible(self, problem: Problem) -> Iterable[Pipeline]:
        """Those whose groups and local memory fit the device."""
        return pipelines(problem, self.caps)

    def cost(self, problem: Problem, parameters: Pipeline) -> float:
        """Cycles."""
        return weighed(problem, parameters, self.caps)

    def default(self, problem: Problem) -> Pipeline:
        """The one that the cost model finds fastest."""
        return default_pipeline(problem, self.caps)

    def read(self, numbers: Sequence[int]) -> Pipeline | None:
        """The fields of a tiling, in order; `streams` is missing from tables that were written before it was there."""
        return Pipeline(*numbers) if len(numbers) in (_FIELDS - 1, _FIELDS) else None


def pack_rows(rows: NDArray[np.generic], dtype: DType) -> NDArray[np.floating]:
    """[..., n, k] in float16 or float32, each row filled up with zeros to a multiple of `DEPTH`."""
    depth = rows.shape[-1]
    packed = np.zeros((*rows.shape[:-1], round_up(depth, DEPTH * 2 // dtype.numpy.itemsize)), dtype.numpy)
    with np.errstate(over="ignore"):
        packed[..., :depth] = rows
    return packed


@dataclass(frozen=True, slots=True)
class Normalization:
    """Normalization of the rows of a product, once they are complete: standardized, times `scale`, plus `shift`."""

    scale: str
    scale_type: TensorType
    shift: str
    """Empty for none."""
    epsilon: float
    dst: str
    dst_type: TensorType

    def defines(self, columns: int, between: DType) -> dict[str, object]:
        """For rows of so many columns, which are of the type `between` before."""
        result = self.dst_type.dtype
        return {
            "NORMALIZE": True,
            "SIZE": columns,
            "EPSILON": literal(self.epsilon, "float"),
            "HAS_SHIFT": bool(self.shift),
            **load_defines("P_T", self.scale_type.dtype),
            "LOAD_V_T(p)": load_defines("T", between)["LOAD_V_T(p)"],
            "NORM_T": STORED_TYPES[result],
            "STORE_V_NORM(v, p)": store_defines(result)["STORE_V(v, p)"],
        }

    def arguments(self, blocks: int) -> tuple[Argument, ...]:
        """With a counter for each of so many blocks of rows."""
        parameters = [Read(name) for name in (self.scale, self.shift) if name]
        return (*parameters, Write(self.dst), Counters(blocks))


def pipelined_launches(
    node: TypedNode,
    problem: Problem,
    tiling: Pipeline,
    defines: Mapping[str, object],
    factor: DType,
    factors: tuple[Read | Scratch, Constant],
    bias: tuple[Argument, TensorType] | None,
    dst: Argument,
    before: tuple[Launch, ...] = (),
    after: Normalization | None = None,
) -> tuple[Launch, ...]:
    """The launches of a product whose result, and so what post-ops read, is dense along n, after those before it.

    `defines` has the sizes and steps of the first factor in pairs of bytes. With `after`,
    `dst` is the node's first work buffer, for rows before they are normalized.
    """
    result = node.outputs[0].dtype
    chain = post_ops.epilogue(post_ops.in_memory_order(node), _CHUNK, aligned=True)
    pairs = problem.itemsize // 2
    sizes = {"Z": problem.z, "M": problem.m, "N": problem.n, "K": problem.k * pairs, "B_N": factors[1].array.shape[-1] * pairs}
    own = {**sizes, **tiling.defines(), "RESULT_T": STORED_TYPES[result], **store_defines(result)}
    passed: list[Argument] = [*factors]
    if bias is not None:
        passed.append(bias[0])
        own |= bias_defines(bias[1].dtype)
    passed.append(dst)
    passed += tiling.shared_sums(problem, f"scratch:{node.name}:{len(before) + (after is not None)}")
    if after is not None:
        own |= after.defines(problem.n, result)
        passed += after.arguments(ceil_div(problem.m, tiling.tile_m))
    own |= {"ROUNDED": bool(problem.matrix)}
    sized, numbers = runtime_sizes({**_TYPES[factor], **own, **defines})
    source = assemble(
        "tiles_pipelined.cl",
        sized,
        load("halves.cl"),
        chain.source,
    )
    work = (tiling.groups(problem) * tiling.items,)
    arguments = (*passed, *numbers, *chain.arguments)
    return (*before, Launch("tiles_pipelined.cl", source, "tiles_pipelined", arguments, work, (tiling.items,)))


def runtime_sizes(defines: Mapping[str, object]) -> tuple[dict[str, object], tuple[Scalar, ...]]:
    """The defines of tiles_pipelined.cl without the numbers that change with batches, lengths and images, and these."""
    deep = ("ID", "S_Z", "PAD_Z") if "VOLUME" in defines else ()
    several = ("N", "K", "Z", "A_M", "A_K", "B_N") if "SEVERAL" in defines else ()
    names = ("M", "A_MATRIX", "IH", "IW", "S_B", "S_Y", "PAD_Y", "PAD_X", *deep, *several)
    return by_value(defines, names, ("OW", "P", "PLANE"))


_TYPES: Mapping[DType, dict[str, object]] = {
    DType.FLOAT16: {"T": "half", "HALF_STORAGE": True},
    DType.BFLOAT16: {"T": "bfloat16", "BFLOATS": True},
    DType.FLOAT32: {"T": "half", "HALF_STORAGE": True, "FLOATS": True},
}
"""The defines of tiles_pipelined.cl for factors of a data type."""
_LOAD_V = {
    DType.FLOAT16: "load_half8(p)",
    DType.BFLOAT16: "load_bfloat8(p)",
    DType.FLOAT32: "(*(__global const float8*)(p))",
}
_STORE_V = {
    DType.FLOAT16: "store_half8(v, p)",
    DType.BFLOAT16: "store_bfloat8(v, p)",
    DType.FLOAT32: "(*(__global float8*)(p) = (v))",
}


def store_defines(dtype: DType) -> dict[str, object]:
    """Defines that store a result, eight or one at a time; with halves.cl."""
    return {"STORE_V(v, p)": _STORE_V[dtype], "STORE_1(v, p, i)": stored(STORED_TYPES[dtype], "(p)", "(i)", "v")}


def load_defines(name: str, dtype: DType) -> dict[str, object]:
    """Defines of the type `name`, and of `LOAD_V_<name>(p)`, which loads eight elements; with halves.cl."""
    return {name: STORED_TYPES[dtype], f"LOAD_V_{name}(p)": _LOAD_V[dtype]}


def bias_defines(dtype: DType) -> dict[str, object]:
    """Defines that load a bias, eight or one at a time; with halves.cl."""
    c_type = STORED_TYPES[dtype]
    return {"BIAS_T": c_type, "BIAS_V(p)": _LOAD_V[dtype], "BIAS_1(p, i)": loaded(c_type, "(p)", "(i)")}


def operands_refusal(node: TypedNode) -> Refusal | None:
    """Refuses post-ops whose operands are neither as large as the result, nor along its channels, nor single numbers."""
    result = node.outputs[0].dims
    for operand in node.operands:
        channels = len(result) > 1 and operand.size == math.prod(operand.dims[-len(result) + 1 :][:1]) == result[1]
        if operand.dims != result and operand.size != 1 and not channels:
            return Refusal(Reason.POST_OP, f"an operand {operand} of a result {node.outputs[0]} with channels innermost")
    return None
