"""Pointwise convolutions whose result only a depthwise one reads, in one launch: what is between them stays on chip."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.device import NHWC, PLAIN, DType, Eltwise, LayerConfig, Reason, Refusal, TypedNode
from dovetail_gpu_opencl import post_ops
from dovetail_gpu_opencl.capabilities import Capabilities
from dovetail_gpu_opencl.kernel import ceil_div, round_up
from dovetail_gpu_opencl.kernels._conv import constant_weights, geometry, has_bias, problem_key, sizes
from dovetail_gpu_opencl.kernels._conv_pipelined import ConvPipelined
from dovetail_gpu_opencl.kernels._conv_tiled import ConvTiled
from dovetail_gpu_opencl.kernels._spatial import spatial_defines
from dovetail_gpu_opencl.kernels._tuned import Problem, Tuned
from dovetail_gpu_opencl.kernels._wide_and_deep import PointwiseDepthwise
from dovetail_gpu_opencl.launch import Argument, Constant, Counters, Launch, Read, Scratch, Write
from dovetail_gpu_opencl.sizes import by_value
from dovetail_gpu_opencl.source import assemble, storage

__all__ = ["PointwiseDepthwiseTiles", "Tile"]

_LAUNCH = 5500.0
"""Cycles of an NVIDIA H200 for a launch that is spared, """
_ENQUEUE = 10000.0
"""and where it waits for the host, those in which the host enqueues one."""
_SHORT = 16000.0
"""Cycles of a launch that is over before the host has enqueued the next one."""
_BYTES = 2450.0
_PRODUCTS = 11.0
"""Bytes that it moves in one cycle, and products that each compute unit adds up for a depthwise convolution."""
_TAPS = 64
_MOST = 256
"""Elements of a tile."""
_BLOCKS = 4
"""Blocks of an item: 64 registers."""
_SLICES = (8, 16, 32, 64)
_ITEMS = (64, 128, 256)


@dataclass(frozen=True, slots=True)
class Tile:
    """The tunables of pointwise_depthwise.cl."""

    tile_y: int
    tile_x: int
    slice: int
    items: int

    def numbers(self) -> list[int]:
        """As tables of tuned parameters keep them."""
        return list(dataclasses.astuple(self))

    def __str__(self) -> str:
        return f"{self.tile_y}x{self.tile_x}x{self.slice} items {self.items}"


def _row(floats: int) -> int:
    """As ROW of pointwise_depthwise.cl."""
    return floats if floats // 4 % 2 else floats + 4


@dataclass(frozen=True, slots=True)
class Windows(Problem):
    """The convolutions: z images, m channels of the depthwise one, n elements of one, k channels of the images.

    `last` are the channels of the second pointwise convolution, 0 without one. Where the first one has windows, which are
    `gathered`, k are the products of an element.
    """

    image: tuple[int, int] = (1, 1)
    output: tuple[int, int] = (1, 1)
    strides: tuple[int, int] = (1, 1)
    extent: tuple[int, int] = (1, 1)
    taps: int = 1
    last: int = 0
    gathered: bool = False

    def window(self, tile: Tile) -> tuple[int, int]:
        """The rows and columns of an image that a tile sees, as far as there are so many."""
        axes = zip((tile.tile_y, tile.tile_x), self.strides, self.extent, self.image, strict=True)
        y, x = (min(size, (side - 1) * stride + extent) for side, stride, extent, size in axes)
        return y, x

    def pixels(self, tile: Tile) -> int:
        """Pixels of a window, as local memory holds them."""
        return round_up(math.prod(self.window(tile)), 4)

    def spots(self, tile: Tile) -> int:
        """Elements of a tile, as local memory holds them for the second pointwise convolution."""
        return round_up(tile.tile_y * tile.tile_x, 4)

    def shares(self, tile: Tile) -> int:
        """Floats of the sums that work groups add up for the second pointwise convolution."""
        return math.prod(self.groups(tile)) * self.spots(tile) * round_up(self.last, 4)

    def blocks(self, tile: Tile) -> int:
        """Blocks of four channels by four pixels that an item adds up."""
        return ceil_div(tile.slice // 4 * (self.pixels(tile) // 4), tile.items)

    def floats(self, tile: Tile, step: int) -> int:
        """Floats of local memory with so many channels of the images at a time, a multiple of 4."""
        result = self.spots(tile) * _row(tile.slice) if self.last else 0
        image, weights = max(self.pixels(tile) * _row(step), result), max(step, round_up(self.last, 4)) * tile.slice
        return image + weights + self.pixels(tile) * _row(tile.slice) + (self.taps + 1) * tile.slice

    def step(self, tile: Tile, local_memory: int) -> int:
        """Channels of the images at a time, a multiple of 4: as many as fit, in equal parts; 0 where not one fits."""
        fixed = self.pixels(tile) * (_row(0) + _row(tile.slice)) + (self.taps + 1) * tile.slice
        most = (local_memory // 4 - fixed) // (self.pixels(tile) + tile.slice) // 4 * 4
        return round_up(ceil_div(self.k, ceil_div(self.k, most)), 4) if most > 0 else 0

    def groups(self, tile: Tile) -> tuple[int, int]:
        """Tiles of all images, and slices of channels."""
        tiles = ceil_div(self.output[0], tile.tile_y) * ceil_div(self.output[1], tile.tile_x)
        return self.z * tiles, ceil_div(self.m, tile.slice)


class PointwiseDepthwiseTiles(Tuned[Tile]):
    """For GPUs: pointwise_depthwise.cl, where a launch costs more than what neighbouring tiles compute twice."""

    name = "pointwise_depthwise"
    dtypes = frozenset({DType.FLOAT16, DType.FLOAT32})
    halves_by_load = True

    def check(self, node: TypedNode) -> Refusal | None:
        if self.caps.kind != "GPU":
            return Refusal(Reason.CAPABILITY, "made for GPUs")
        op, (x, y) = _operator(node), (node.given(0), node.outputs[0])
        first, second, third = op.first(node), op.second(node), op.third(node)
        (_, channels, maps, groups), g = sizes(second), geometry(second)
        if g.rank != 2 or channels != 1 or maps != groups or g.kernel_size > _TAPS:
            return Refusal(Reason.ATTRIBUTE, "not depthwise with two spatial axes and at most 64 weights")
        if not geometry(first).is_pointwise and not op.gathers(node):
            return Refusal(Reason.ATTRIBUTE, "the first is neither pointwise nor of few products")
        if third is not None and not (geometry(third).is_pointwise and self.caps.ptx):
            return Refusal(Reason.ATTRIBUTE, "the last is not pointwise, or work groups cannot see what others wrote")
        if x.dtype is not y.dtype:
            return Refusal(Reason.DTYPE, f"{x} to {y}")
        if any(t is not None and t.value is None for t in node.inputs[1:]):
            return Refusal(Reason.ATTRIBUTE, "weights or biases are not constant")
        if not y.size:
            return None
        problem = self._windows(node, y.dims[1] if third is not None else 0)
        if next(iter(self.possible(problem)), None) is None:
            return Refusal(Reason.CAPABILITY, "too few work items in a group, or too little local memory")
        return self._slower(problem, node)

    def _slower(self, problem: Windows, node: TypedNode) -> Refusal | None:
        """Refuses what is likely to take less time in two launches."""
        if self.packed.keeps(self.name, node):
            return None
        op, cost = _operator(node), self.least(problem)
        first, third = op.first(node), op.third(node)
        alone = self._alone(first if third is None else third)
        if alone is None:
            return Refusal(Reason.SHAPE, f"{first.given(0)} to {first.outputs[0]}, which no tiles compute")
        if third is None:
            between, other = first, problem.z * problem.m * problem.n * problem.taps / (_PRODUCTS * self.caps.compute_units)
        else:
            pair = self._windows(node, last=0)
            between, other = op.second(node), self.least(pair)
        spared = _ENQUEUE if cost < _SHORT else _LAUNCH
        if cost <= alone + other + spared + between.outputs[0].nbytes / _BYTES:
            return None
        return Refusal(Reason.SHAPE, f"{first.given(0)} to {node.outputs[0]}; two launches are faster")

    def _alone(self, node: TypedNode) -> float | None:
        """The least cycles of a pointwise convolution in a launch of its own; None where no tiles compute it."""
        kernels: tuple[Tuned[Any], ...] = (ConvPipelined().on(self.caps, self.packed), ConvTiled().on(self.caps, self.packed))
        times = [
            kernel.least(found) for kernel in kernels if kernel.supports(node) and (found := kernel.problem(node)) is not None
        ]
        return min(times, default=None)

    def title(self, node: TypedNode) -> str:
        """The name of the kernel in reports, for a node that it accepted."""
        return self.name if _operator(node).narrow is None else f"{self.name}_pointwise"

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        result, rest = node.outputs[0].dims, (PLAIN,) * (len(node.inputs) - 1)
        operands = tuple(NHWC if operand.dims == result else PLAIN for operand in node.operands)
        innermost = LayerConfig((NHWC, *rest), (NHWC,), operands)
        found = (LayerConfig.uniform(node, PLAIN), innermost)
        if _operator(node).gathers(node):  # the images of models are plain
            return (*found, LayerConfig((PLAIN, *rest), (NHWC,), operands))
        return found

    def problem(self, node: TypedNode) -> Windows | None:
        """The problem for which a tile is chosen; None when nothing is computed."""
        y = node.outputs[0]
        return self._windows(node, y.dims[1] if _operator(node).narrow is not None else 0) if y.size else None

    def _windows(self, node: TypedNode, last: int) -> Windows:
        second = _operator(node).second(node)
        g, (batch, _, maps, _), channels = geometry(second), sizes(second), math.prod(node.given(1).dims[1:])
        key = f"{problem_key('pointwise_depthwise', second)} channels {channels}" + (f" to {last}" if last else "")
        if channels != node.given(0).dims[1]:
            key += f" of {problem_key('conv', _operator(node).first(node))}"
        y, x = range(2)
        return Windows(
            *(key, batch, maps, math.prod(g.output), channels, 4),
            image=(g.input[y], g.input[x]),
            output=(g.output[y], g.output[x]),
            strides=(g.strides[y], g.strides[x]),
            extent=(g.extent[y], g.extent[x]),
            taps=g.kernel_size,
            last=last,
            gathered=channels != node.given(0).dims[1],
        )

    def possible(self, problem: Problem) -> Iterable[Tile]:
        """Those whose groups and local memory fit the device."""
        assert isinstance(problem, Windows)
        return tiles(problem, self.caps)

    def is_possible(self, problem: Problem, parameters: Tile) -> bool:
        assert isinstance(problem, Windows)
        return (parameters.tile_y, parameters.tile_x) in _sides(problem) and _runs(problem, parameters, self.caps)

    def cost(self, problem: Problem, parameters: Tile) -> float:
        """Cycles beyond the launch."""
        assert isinstance(problem, Windows)
        return estimate(problem, parameters, self.caps)

    def default(self, problem: Problem) -> Tile:
        assert isinstance(problem, Windows)
        return default_tile(problem, self.caps)

    def read(self, numbers: Sequence[int]) -> Tile | None:
        """The fields of a tile, in order."""
        return Tile(*numbers) if len(numbers) == len(dataclasses.fields(Tile)) else None

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        problem = self.problem(node)
        if problem is None:
            return ()
        tile, op = self.settled(problem, node), _operator(node)
        second, dtype = op.second(node), node.outputs[0].dtype
        numbers = {name: n for name, n in spatial_defines(geometry(second)).items() if name[-1] not in "DZ"}
        window, channels = problem.window(tile), {"C": problem.k, "H": problem.m, "HS": round_up(problem.m, tile.slice)}
        channels["STEP"] = problem.step(tile, self.caps.local_memory)
        inner = _chains(INNER=op.chain, MIDDLE=op.deep_chain)
        defines: dict[str, object] = {**storage(dtype), **numbers, **channels, **inner[0]}
        defines |= {name.upper(): number for name, number in dataclasses.asdict(tile).items()}
        defines |= {"WINDOW_Y": window[0], "WINDOW_X": window[1], "INNERMOST": node.outputs[0].layout == NHWC}
        defines |= {"SRC_INNERMOST": node.given(0).layout == NHWC, **_gathered(node)}
        tiles, slices = problem.groups(tile)
        arguments: tuple[Argument, ...] = (
            Read(node.node.inputs[0]),
            Constant(self._packed(node, tile)),
            Write(node.node.outputs[0]),
        )
        if problem.last:
            defines["LAST"] = problem.last
            if slices > 1:
                arguments += (Scratch(f"scratch:{node.name}:0", problem.shares(tile) * 4), Counters(tiles))
        own, passed = by_value(defines, ("IH", "IW", "OH", "OW", "PAD_Y", "PAD_X", *_OF_SOURCE))
        chain = post_ops.epilogue(post_ops.in_memory_order(node))
        source = assemble("pointwise_depthwise.cl", own, inner[1], chain.source)
        arguments += (*passed, *chain.arguments)
        work, local = (tiles * tile.items, slices), (tile.items, 1)
        return (Launch("pointwise_depthwise.cl", source, "pointwise_depthwise", arguments, work, local),)

    def _packed(self, node: TypedNode, tile: Tile) -> NDArray[np.generic]:
        """The weights and biases of all convolutions in float, one after the other. Output channels are innermost."""
        given = [t.value for t in node.inputs[1:] if t is not None and t.value is not None]

        def make() -> NDArray[np.float32]:
            op = _operator(node)
            parts = [*_columns(op.first(node), tile.slice), *_columns(op.second(node), tile.slice)]
            third = op.third(node)
            return np.concatenate(parts if third is None else [*parts, *_columns(third, 4, tile.slice)], axis=None)

        absent = tuple(t is None for t in node.inputs)
        return self.packed.get(given[0], ("pointwise_depthwise", tile.slice, absent), make, *given[1:])


_OF_SOURCE = ("SRC_H", "SRC_W", "SRC_PAD_Y", "SRC_PAD_X")
"""Of a first convolution with windows, the numbers that change with images."""


def _gathered(node: TypedNode) -> dict[str, object]:
    """Defines for the windows of the first convolution; none where it is pointwise."""
    op = _operator(node)
    if not op.gathers(node):
        return {}
    numbers, names = spatial_defines(geometry(op.first(node))), {"IH": "H", "IW": "W", "KH": "KH", "KW": "KW"}
    names |= {f"{what}_{axis}": f"{what}_{axis}" for what in ("STRIDE", "DILATION", "PAD") for axis in "YX"}
    return {"SRC_C": node.given(0).dims[1], **{f"SRC_{new}": numbers[old] for old, new in names.items()}}


def _columns(node: TypedNode, columns: int, rows: int = 1) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Weights and bias, filled up with zeros to multiples of rows, and of columns: output channels."""
    weights = constant_weights(node)
    bias = node.given(2).value if has_bias(node) else None
    matrix = weights.reshape(len(weights), -1).T.astype(np.float32)
    more = -len(weights) % columns
    vector = np.zeros(len(weights), np.float32) if bias is None else bias.astype(np.float32)
    return np.pad(matrix, ((0, -len(matrix) % rows), (0, more))), np.pad(vector, (0, more))


def tiles(problem: Windows, caps: Capabilities) -> Iterator[Tile]:
    """All tiles that can run the problem on a device, whose sides divide the result as nearly as possible."""
    found = (Tile(*yx, *rest) for yx in _sides(problem) for rest in itertools.product(_SLICES, _ITEMS))
    return (tile for tile in found if _runs(problem, tile, caps))


def _sides(problem: Windows) -> Sequence[tuple[int, int]]:
    """The sides of tiles that divide the result as nearly as possible."""
    ys, xs = ({ceil_div(size, count) for count in range(1, size + 1)} for size in problem.output)
    found = ((y, x) for y, x in itertools.product(sorted(ys), sorted(xs)) if y * x <= _MOST)
    return [(y, x) for y, x in found if max(y, x) <= 2 * min(y, x) or min(y, x) in problem.output]


def _runs(problem: Windows, tile: Tile, caps: Capabilities) -> bool:
    """Whether a device runs the problem in these tiles."""
    limit = min(caps.max_work_group_size, caps.max_work_item_sizes[0])
    if tile.items > limit or problem.blocks(tile) > _BLOCKS or tile.slice >= max(2 * problem.m, 2 * _SLICES[0]):
        return False
    step = problem.step(tile, caps.local_memory)
    return step > 0 and 4 * problem.floats(tile, step) <= caps.local_memory and 4 * problem.shares(tile) < 1 << 31


@functools.cache
def default_tile(problem: Windows, caps: Capabilities) -> Tile:
    """The tile that the cost model finds fastest."""
    return min(tiles(problem, caps), key=lambda tile: estimate(problem, tile, caps))


def estimate(problem: Windows, tile: Tile, caps: Capabilities) -> float:
    """Cycles that both convolutions take beyond the launch."""
    step = problem.step(tile, caps.local_memory)
    share = ceil_div(math.prod(problem.groups(tile)), caps.compute_units)
    resident = max(1, min(share, _ITEMS_RESIDENT // tile.items, _LOCAL_MEMORY // (4 * problem.floats(tile, step))))
    rounds, together = ceil_div(problem.k, step), tile.items * _AHEAD
    images = ceil_div(step * problem.pixels(tile), together) * (_GATHERED if problem.gathered else 1)
    loads = rounds * (images + ceil_div(step * tile.slice // 4, together))
    products = problem.blocks(tile) * rounds * step
    taps = ceil_div(tile.slice * tile.tile_y * tile.tile_x, tile.items) * problem.taps
    fold = 0.0
    if problem.last:
        vectors = ceil_div(problem.last, 4)
        products += ceil_div(ceil_div(problem.spots(tile) * vectors, tile.items), 4) * tile.slice
        loads += ceil_div(tile.slice * vectors, together)
        shares = ceil_div(tile.tile_y * tile.tile_x * vectors, tile.items) * problem.groups(tile)[1]
        fold = _FOLD + _SHARE * shares if problem.groups(tile)[1] > 1 else 0.0
    # What an item waits for, and what keeps the compute unit busy.
    waiting = _LOAD[0] * loads + _PRODUCT[0] * products + _TAP[0] * taps
    busy = resident * tile.items / 32 * (_LOAD[1] * loads + _PRODUCT[1] * products + _TAP[1] * taps)
    return math.ceil(share / resident) * (_GROUP + waiting + busy) + fold


_AHEAD = 8
"""Values that an item loads at a time: AHEAD of pointwise_depthwise.cl."""
_ITEMS_RESIDENT = 2048
_LOCAL_MEMORY = 227 << 10
"""Of a compute unit."""
_GATHERED = 2
"""Loads of which the place is computed for each, over others."""
_GROUP = 1350.0
_LOAD = (670.0, 33.0)
_PRODUCT = (16.0, 6.2)
_TAP = (4.0, 2.0)
_FOLD = 1000.0
_SHARE = 80.0
"""Cycles of a group; for AHEAD values that are loaded, 16 products, a tap: of an item, and of each sub-group that is resident.

Fitted to an NVIDIA H200: 11 % off on 56 pairs of convolutions; the tile that it finds fastest takes 4 % more than the fastest.
"""


def _chains(**chains: Sequence[Eltwise]) -> tuple[dict[str, object], str]:
    """Defines by these names, each of which applies a chain to a float4, and the functions that they call."""
    defines: dict[str, object] = {}
    source = post_ops.own_functions([post_op for chain in chains.values() for post_op in chain], "float", 4)
    for name, chain in chains.items():
        lines = "".join(post_ops.statement(post_op, "float4", "float", iter(())) for post_op in chain)
        defines[f"{name}(s)"] = f"{name.lower()}(s)" if chain else "(s)"
        source += f"static float4 {name.lower()}(float4 s) {{\n{lines}  return s;\n}}\n" if chain else ""
    return defines, source


def _operator(node: TypedNode) -> PointwiseDepthwise:
    op = node.op
    assert isinstance(op, PointwiseDepthwise)
    return op
