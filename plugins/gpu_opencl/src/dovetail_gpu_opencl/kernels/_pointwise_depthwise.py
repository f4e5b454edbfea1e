"""Pointwise convolutions whose result only a depthwise one reads: the operator, the pass that makes it, and its kernel.

They begin the inverted residuals of MobileNets and EfficientNets; one launch makes both, and what is between them stays on chip.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.device import NHWC, PLAIN, DType, Eltwise, Graph, LayerConfig, Node, Reason, Refusal, TensorType, TypedNode
from dovetail.op import AbstractOperator, Port
from dovetail_gpu_opencl import post_ops
from dovetail_gpu_opencl.capabilities import Capabilities
from dovetail_gpu_opencl.kernel import ceil_div, round_up
from dovetail_gpu_opencl.kernels._conv import constant_weights, geometry, has_bias, problem_key, sizes
from dovetail_gpu_opencl.kernels._conv_pipelined import ConvPipelined
from dovetail_gpu_opencl.kernels._conv_tiled import ConvTiled
from dovetail_gpu_opencl.kernels._merging import Makers, merge, origins
from dovetail_gpu_opencl.kernels._pipelined import operands_refusal
from dovetail_gpu_opencl.kernels._spatial import spatial_defines
from dovetail_gpu_opencl.kernels._tuned import Problem, Tuned
from dovetail_gpu_opencl.launch import Constant, Launch, Read, Write
from dovetail_gpu_opencl.sizes import by_value
from dovetail_gpu_opencl.source import assemble, storage
from dovetail_ops_onnx.conv import Conv

__all__ = ["PointwiseDepthwise", "PointwiseDepthwiseTiles", "Tile", "merge_pointwise"]

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


@dataclass(frozen=True, eq=False)
class PointwiseDepthwise(AbstractOperator):
    """The Conv `deep`, depthwise, of the Conv `wide`, pointwise, after a chain of post-ops without operands.

    Inputs are X, and W and B of each Conv.
    """

    domain: ClassVar[str] = "dovetail.opencl"
    op_type: ClassVar[str] = "PointwiseDepthwise"
    stem: ClassVar[str] = "pointwise_depthwise"
    inputs: ClassVar[tuple[Port, ...]] = (
        *(Port("X"), Port("W"), Port("B", optional=True)),
        *(Port("DeepW"), Port("DeepB", optional=True)),
    )
    outputs: ClassVar[tuple[Port, ...]] = (Port("Y"),)

    wide: Conv
    chain: tuple[Eltwise, ...]
    deep: Conv

    def first(self, node: TypedNode) -> TypedNode:
        """The pointwise convolution with its chain."""
        names, (x, w, b) = node.node.inputs[:3], node.inputs[:3]
        assert x is not None
        assert w is not None
        between = TensorType(node.outputs[0].dtype, (x.dims[0], w.dims[0], *x.dims[2:]))
        inner = Node(node.name, self.wide, names, node.node.outputs, post_ops=self.chain)
        return TypedNode(inner, (x, w, b), (between,), ())

    def second(self, node: TypedNode) -> TypedNode:
        """The depthwise convolution with the post-ops of the node."""
        names, (between,) = node.node.inputs, self.first(node).outputs
        inner = dataclasses.replace(node.node, op=self.deep, inputs=(names[0], *names[3:]))
        return TypedNode(inner, (between, *node.inputs[3:]), node.outputs, node.operands)

    def flops(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> int:
        x, w, b, deep_w, deep_b = (*inputs, None)[:5]
        assert x is not None
        assert w is not None
        between = TensorType(outputs[0].dtype, (x.dims[0], w.dims[0], *x.dims[2:]))
        return self.wide.flops((x, w, b), (between,)) + self.deep.flops((between, deep_w, deep_b), outputs)


def merge_pointwise(graph: Graph, accepts: Callable[[TypedNode], bool]) -> Graph:
    """The graph with one node in place of each pointwise convolution and the depthwise one that alone reads it.

    `accepts` says whether a kernel runs the new node.
    """

    def find(makers: Makers, node: Node) -> tuple[Sequence[Node], Node] | None:
        maker = makers.get(node.inputs[0]) if isinstance(node.op, Conv) and node.op.group > 1 else None
        return None if maker is None or not _alone(graph, maker, node) else ([maker], _merged(maker, node))

    return merge(graph, find, accepts)


def _alone(graph: Graph, maker: Node, node: Node) -> bool:
    """Whether a Conv is read by the other one alone, as its images, after a chain without operands."""
    result = maker.writes[0]
    if not isinstance(maker.op, Conv) or maker.op.group != 1 or result in graph.outputs:
        return False
    reads = [*node.inputs, *node.operands].count(result) == 1 and graph.consumers[result] == (node,)
    return reads and all(isinstance(post_op, Eltwise) for post_op in maker.post_ops)


def _merged(maker: Node, node: Node) -> Node:
    assert isinstance(maker.op, Conv)
    assert isinstance(node.op, Conv)
    op = PointwiseDepthwise(maker.op, tuple(p for p in maker.post_ops if isinstance(p, Eltwise)), node.op)
    bias = maker.inputs[2] if len(maker.inputs) > 2 else ""
    inputs = (*maker.inputs[:2], bias, *node.inputs[1:])
    return dataclasses.replace(node, op=op, inputs=inputs, origins=origins(maker, node))


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
    """Both convolutions: z images, m channels of the result, n elements of one, k channels of the images."""

    image: tuple[int, int] = (1, 1)
    output: tuple[int, int] = (1, 1)
    strides: tuple[int, int] = (1, 1)
    extent: tuple[int, int] = (1, 1)
    taps: int = 1

    def window(self, tile: Tile) -> tuple[int, int]:
        """The rows and columns of an image that a tile sees, as far as there are so many."""
        axes = zip((tile.tile_y, tile.tile_x), self.strides, self.extent, self.image, strict=True)
        y, x = (min(size, (side - 1) * stride + extent) for side, stride, extent, size in axes)
        return y, x

    def pixels(self, tile: Tile) -> int:
        """Pixels of a window, as local memory holds them."""
        return round_up(math.prod(self.window(tile)), 4)

    def blocks(self, tile: Tile) -> int:
        """Blocks of four channels by four pixels that an item adds up."""
        return ceil_div(tile.slice // 4 * (self.pixels(tile) // 4), tile.items)

    def floats(self, tile: Tile, step: int) -> int:
        """Floats of local memory with so many channels of the images at a time, a multiple of 4."""
        rows = _row(step) + _row(tile.slice)
        return self.pixels(tile) * rows + (step + self.taps) * tile.slice

    def step(self, tile: Tile, local_memory: int) -> int:
        """Channels of the images at a time, a multiple of 4: as many as fit, in equal parts; 0 where not one fits."""
        most = (local_memory // 4 - self.floats(tile, 0)) // (self.pixels(tile) + tile.slice) // 4 * 4
        return round_up(ceil_div(self.k, ceil_div(self.k, most)), 4) if most > 0 else 0

    def groups(self, tile: Tile) -> tuple[int, int]:
        """Tiles of all images, and slices of channels."""
        tiles = ceil_div(self.output[0], tile.tile_y) * ceil_div(self.output[1], tile.tile_x)
        return self.z * tiles, ceil_div(self.m, tile.slice)


class PointwiseDepthwiseTiles(Tuned[Tile]):
    """For GPUs: pointwise_depthwise.cl, where a launch costs more than what neighbouring tiles compute twice."""

    name = "pointwise_depthwise"
    dtypes = frozenset({DType.FLOAT16, DType.FLOAT32})
    half_by_load = True
    bfloat16_by_load = True

    def check(self, node: TypedNode) -> Refusal | None:
        if self.caps.kind != "GPU":
            return Refusal(Reason.CAPABILITY, "made for GPUs")
        op, (x, y) = _operator(node), (node.given(0), node.outputs[0])
        first, second = op.first(node), op.second(node)
        (_, channels, maps, groups), g = sizes(second), geometry(second)
        if g.rank != 2 or not geometry(first).is_pointwise or channels != 1 or maps != groups or g.kernel_size > _TAPS:
            return Refusal(Reason.ATTRIBUTE, "not pointwise and then depthwise, with two spatial axes and at most 64 weights")
        if x.dtype is not y.dtype:
            return Refusal(Reason.DTYPE, f"{x} to {y}")
        if any(t is not None and t.value is None for t in node.inputs[1:]):
            return Refusal(Reason.ATTRIBUTE, "weights or biases are not constant")
        if not y.size:
            return None
        problem = self._windows(node)
        if next(iter(self.possible(problem)), None) is None:
            return Refusal(Reason.CAPABILITY, "too few work items in a group, or too little local memory")
        return operands_refusal(node) or self._slower(problem, first)

    def _slower(self, problem: Windows, first: TypedNode) -> Refusal | None:
        """Refuses what is likely to take less time in two launches."""
        kernels: tuple[Tuned[Any], ...] = (ConvPipelined().on(self.caps), ConvTiled().on(self.caps))
        times = [
            kernel.cost(found, kernel.tiling(found))
            for kernel in kernels
            if kernel.supports(first) and (found := kernel.problem(first)) is not None
        ]
        if not times:
            return Refusal(Reason.SHAPE, f"{first.given(0)} to {first.outputs[0]}, which no tiles compute")
        depthwise = problem.z * problem.m * problem.n * problem.taps / (_PRODUCTS * self.caps.compute_units)
        cost = self.cost(problem, self.tiling(problem))
        spared = _ENQUEUE if cost < _SHORT else _LAUNCH
        if cost <= min(times) + depthwise + spared + first.outputs[0].nbytes / _BYTES:
            return None
        return Refusal(Reason.SHAPE, f"{first.given(0)} to {first.outputs[0]}; two launches are faster")

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        result, rest = node.outputs[0].dims, (PLAIN,) * (len(node.inputs) - 1)
        operands = tuple(NHWC if operand.dims == result else PLAIN for operand in node.operands)
        return (LayerConfig.uniform(node, PLAIN), LayerConfig((NHWC, *rest), (NHWC,), operands))

    def problem(self, node: TypedNode) -> Windows | None:
        """The problem for which a tile is chosen; None when nothing is computed."""
        return self._windows(node) if node.outputs[0].size else None

    def _windows(self, node: TypedNode) -> Windows:
        second = _operator(node).second(node)
        g, (batch, _, maps, _), channels = geometry(second), sizes(second), node.given(0).dims[1]
        key = f"{problem_key('pointwise_depthwise', second)} channels {channels}"
        y, x = range(2)
        return Windows(
            *(key, batch, maps, math.prod(g.output), channels, 4),
            image=(g.input[y], g.input[x]),
            output=(g.output[y], g.output[x]),
            strides=(g.strides[y], g.strides[x]),
            extent=(g.extent[y], g.extent[x]),
            taps=g.kernel_size,
        )

    def possible(self, problem: Problem) -> Iterable[Tile]:
        """Those whose groups and local memory fit the device."""
        assert isinstance(problem, Windows)
        return tiles(problem, self.caps)

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
        wide, deep = (self._packed(convolution, tile.slice) for convolution in (op.first(node), second))
        numbers = {name: n for name, n in spatial_defines(geometry(second)).items() if name[-1] not in "DZ"}
        window, channels = problem.window(tile), {"C": problem.k, "H": problem.m, "HS": round_up(problem.m, tile.slice)}
        channels["STEP"] = problem.step(tile, self.caps.local_memory)
        defines: dict[str, object] = {**storage(dtype), **numbers, **channels, **_chain(op.chain)[0]}
        defines |= {name.upper(): number for name, number in dataclasses.asdict(tile).items()}
        defines |= {"WINDOW_Y": window[0], "WINDOW_X": window[1], "INNERMOST": node.outputs[0].layout == NHWC}
        own, passed = by_value(defines, ("IH", "IW", "OH", "OW", "PAD_Y", "PAD_X"))
        chain = post_ops.epilogue(post_ops.in_memory_order(node))
        source = assemble("pointwise_depthwise.cl", own, _chain(op.chain)[1], chain.source)
        constants = map(Constant, (*wide, *deep))
        arguments = (Read(node.node.inputs[0]), *constants, Write(node.node.outputs[0]), *passed, *chain.arguments)
        tiles, slices = problem.groups(tile)
        work, local = (tiles * tile.items, slices), (tile.items, 1)
        return (Launch("pointwise_depthwise.cl", source, "pointwise_depthwise", arguments, work, local),)

    def _packed(self, node: TypedNode, multiple: int) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
        """Weights and biases in float, filled up with zeros to a multiple of output channels, which are innermost."""
        weights, bias = constant_weights(node), node.given(2).value if has_bias(node) else None

        def filled(array: NDArray[np.generic]) -> NDArray[np.float32]:
            columns = array.reshape(len(array), -1).T.astype(np.float32)
            return np.ascontiguousarray(np.pad(columns, ((0, 0), (0, -len(array) % multiple))))

        order = ("pointwise_depthwise", multiple)
        packed = self.packed.get(weights, order, lambda: filled(weights))
        if bias is None:
            return packed, np.zeros(round_up(len(weights), multiple), np.float32)
        return packed, self.packed.get(bias, order, lambda: filled(bias).reshape(-1))


def tiles(problem: Windows, caps: Capabilities) -> Iterator[Tile]:
    """All tiles that can run the problem on a device, whose sides divide the result as nearly as possible."""
    limit = min(caps.max_work_group_size, caps.max_work_item_sizes[0])
    ys, xs = ({ceil_div(size, count) for count in range(1, size + 1)} for size in problem.output)
    for y, x in itertools.product(sorted(ys), sorted(xs)):
        if y * x > _MOST or (max(y, x) > 2 * min(y, x) and min(y, x) not in problem.output):
            continue
        for own, items in itertools.product(_SLICES, _ITEMS):
            tile = Tile(y, x, own, items)
            fits = items <= limit and problem.step(tile, caps.local_memory) > 0 and problem.blocks(tile) <= _BLOCKS
            if fits and own < max(2 * problem.m, 2 * _SLICES[0]):
                yield tile


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
    loads = rounds * (ceil_div(step * problem.pixels(tile), together) + ceil_div(step * tile.slice // 4, together))
    products = problem.blocks(tile) * rounds * step
    taps = ceil_div(tile.slice * tile.tile_y * tile.tile_x, tile.items) * problem.taps
    # What an item waits for, and what keeps the compute unit busy.
    waiting = _LOAD[0] * loads + _PRODUCT[0] * products + _TAP[0] * taps
    busy = resident * tile.items / 32 * (_LOAD[1] * loads + _PRODUCT[1] * products + _TAP[1] * taps)
    return math.ceil(share / resident) * (_GROUP + waiting + busy)


_AHEAD = 8
"""Values that an item loads at a time: AHEAD of pointwise_depthwise.cl."""
_ITEMS_RESIDENT = 2048
_LOCAL_MEMORY = 227 << 10
"""Of a compute unit."""
_GROUP = 1350.0
_LOAD = (670.0, 33.0)
_PRODUCT = (16.0, 6.2)
_TAP = (4.0, 2.0)
"""Cycles of a group; for AHEAD values that are loaded, 16 products, a tap: of an item, and of each sub-group that is resident.

Fitted to an NVIDIA H200: 11 % off on 56 pairs of convolutions; the tile that it finds fastest takes 4 % more than the fastest.
"""


def _chain(chain: Sequence[Eltwise]) -> tuple[dict[str, object], str]:
    """The define INNER, which applies a chain to a float4, and the function that it calls."""
    if not chain:
        return {"INNER(s)": "(s)"}, ""
    lines = "".join(post_ops.statement(post_op, "float4", "float", iter(())) for post_op in chain)
    functions = post_ops.vector_functions(chain, "float", 4)
    return {"INNER(s)": "inner(s)"}, f"{functions}static float4 inner(float4 s) {{\n{lines}  return s;\n}}\n"


def _operator(node: TypedNode) -> PointwiseDepthwise:
    op = node.op
    assert isinstance(op, PointwiseDepthwise)
    return op
