"""Conv: as a matrix product, by rows, depthwise or by Winograd's algorithm on CPUs; tiled on GPUs; directly where none fits."""

import functools
import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from dovetail.device import Reason, Refusal, TypedNode
from dovetail_gpu_opencl import post_ops
from dovetail_gpu_opencl.kernel import ceil_div, spread
from dovetail_gpu_opencl.kernels._channels import ConvDepthwiseChannels
from dovetail_gpu_opencl.kernels._conv import ConvKernel, constant_weights, geometry, has_bias, problem_key, sizes, wide
from dovetail_gpu_opencl.kernels._conv_depthwise import ConvDepthwiseWindows
from dovetail_gpu_opencl.kernels._conv_pipelined import ConvPipelined
from dovetail_gpu_opencl.kernels._conv_tiled import ConvTiled
from dovetail_gpu_opencl.kernels._conv_winograd import ConvWinograd
from dovetail_gpu_opencl.kernels._gemm import GemmRows, Matrix, Product, problem_of
from dovetail_gpu_opencl.kernels._register_tiles import (
    NARROW,
    RegisterTiled,
    RegisterTiling,
    first_tiling,
    lanes_of,
    least_cycles,
)
from dovetail_gpu_opencl.kernels._spatial import MAX_SPATIAL, WINDOW, interior, named
from dovetail_gpu_opencl.kernels._tuned import Problem
from dovetail_gpu_opencl.launch import Argument, Constant, Launch, Read, Scratch, ints
from dovetail_gpu_opencl.memory import aligned_empty
from dovetail_gpu_opencl.source import accumulator, accumulator_bytes, assemble, storage
from dovetail_ops_onnx.conv import Conv

__all__ = ["KERNELS"]


class ConvRows(RegisterTiled, ConvKernel):
    """For CPUs: conv_rows.cl."""

    name = "conv_rows"
    by_content = False
    scatters = True
    max_spatial = MAX_SPATIAL

    def check(self, node: TypedNode) -> Refusal | None:
        if self.caps.kind != "CPU":
            return Refusal(Reason.CAPABILITY, "made for CPUs")
        return super().check(node)

    def any_sizes(self, node: TypedNode) -> bool:
        return True

    def problem(self, node: TypedNode) -> Problem | None:
        """The problem for which a tiling is chosen; None when nothing is computed."""
        if not node.outputs[0].size:
            return None
        batch, channels, maps, groups = sizes(node)
        g, dtype = geometry(node), node.outputs[0].dtype
        pixels, depth = math.prod(g.output), channels * math.prod(g.kernel)
        return Problem(problem_key("conv_rows", node), batch * groups, pixels, maps // groups, depth, accumulator_bytes(dtype))

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        problem = self.problem(node)
        if problem is None:
            return ()
        tiling, lanes = self.settled(problem, node), lanes_of(problem, self.caps)
        batch, _, _, groups = sizes(node)
        columns = tiling.vectors * lanes
        packed, before = self._packed_weights(node, columns)
        chain = post_ops.epilogue(node)
        numbers = self.sizes(node) | {"DOWN": tiling.down}
        names = "GROUPS C M IH IW OH OW KH KW STRIDE_Y STRIDE_X DILATION_Y DILATION_X PAD_Y PAD_X DOWN"
        in_space = geometry(node).rank > 2
        names += " ID OD KD STRIDE_Z DILATION_Z PAD_Z" if in_space else ""
        defines = {**self.types(node), **tiling.defines(), "VEC": lanes, "SPACE": in_space}
        work = (*tiling.work(ceil_div(problem.m, tiling.rows), groups * ceil_div(problem.n, columns)), batch)
        arguments = (*self.arguments(node, packed), *named(numbers, names), *chain.arguments)
        source = assemble("conv_rows.cl", defines, chain.source)
        return (*before, Launch("conv_rows.cl", source, "conv_rows", arguments, work, (1, 1, 1)))

    def _packed_weights(self, node: TypedNode, columns: int) -> tuple[Constant | Scratch, tuple[Launch, ...]]:
        """The weights in the order of conv_rows.cl, and the launch that brings them into it where they are computed."""
        given, (_, _, _, groups), acc = node.given(1), sizes(node), accumulator(node.outputs[0].dtype)
        if (weights := given.value) is not None:
            make = functools.partial(pack_weights, weights, groups, columns, acc)
            return Constant(self.packed.get(weights, (groups, columns, acc), make)), ()
        own, channels, elements = given.dims[0] // groups, given.dims[1], math.prod(given.dims[2:])
        blocks = ceil_div(own, columns)
        size = groups * blocks * elements * channels * columns * accumulator_bytes(node.outputs[0].dtype)
        scratch = Scratch(f"scratch:{node.name}:0", size)
        defines = {**storage(given.dtype), "ACC": acc, "COLUMNS": columns}
        arguments: tuple[Argument, ...] = (Read(node.node.inputs[1]), scratch, *ints(own, channels, elements))
        source, work = assemble("pack_weights.cl", defines), (elements, blocks, groups)
        return scratch, (Launch("pack_weights.cl", source, "pack_weights", arguments, work, (1, 1, 1)),)


def pack_weights(weights: NDArray[np.generic], groups: int, columns: int, c_type: str) -> NDArray[np.generic]:
    """[M, C, *K] as [groups, ceil(M / groups / columns), *K, C, columns], padded with zeros, in float or double."""
    maps, channels = weights.shape[:2]
    own, elements = maps // groups, int(np.prod(weights.shape[2:]))
    whole, rest = divmod(own, columns)
    split = weights.reshape(groups, own, channels, elements)
    packed = aligned_empty((groups, whole + bool(rest), elements, channels, columns), wide(c_type))
    packed[:, :whole] = split[:, : own - rest].reshape(groups, whole, columns, channels, elements).transpose(0, 1, 4, 3, 2)
    if rest:
        packed[:, whole, ..., :rest] = split[:, own - rest :].transpose(0, 3, 2, 1)
        packed[:, whole, ..., rest:] = 0
    return packed


_COPIED = 1 << 16
"""Bytes of input that a work item of conv_depthwise.cl may copy to its stack."""


class ConvDepthwise(ConvKernel):
    """For CPUs: conv_depthwise.cl."""

    name = "conv_depthwise"
    by_content = False

    def check(self, node: TypedNode) -> Refusal | None:
        if self.caps.kind != "CPU":
            return Refusal(Reason.CAPABILITY, "made for CPUs")
        _, channels, _, _ = sizes(node)
        if channels != 1:
            return Refusal(Reason.ATTRIBUTE, "not depthwise")
        if _spreads(node):
            return Refusal(Reason.SHAPE, "one channel to many; vectors along these are faster")
        if (refusal := super().check(node)) is not None:
            return refusal
        return None if self._rows(node, self.sizes(node)) else Refusal(Reason.ATTRIBUTE, "the window covers too many elements")

    def any_sizes(self, node: TypedNode) -> bool:
        return True

    def _rows(self, node: TypedNode, numbers: Mapping[str, int]) -> int:
        """The rows that a work item computes: up to 8, so that it may copy their input; 0 where it may not for a single one."""
        acc = accumulator(node.outputs[0].dtype)
        kh, kw, stride_y, stride_x, dilation_y, dilation_x = (numbers[name] for name in WINDOW)
        span = (self.caps.lanes(acc) - 1) * stride_x + (kw - 1) * dilation_x + 1
        most = _COPIED // (span * accumulator_bytes(node.outputs[0].dtype)) - (kh - 1) * dilation_y - 1
        return next((rows for rows in (8, 4, 2, 1) if (rows - 1) * stride_y <= most), 0)

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        batch, _, maps, groups = sizes(node)
        vec = self.caps.lanes(accumulator(node.outputs[0].dtype))
        chain = post_ops.epilogue(node, vec)
        numbers = self.sizes(node) | {"C": groups} | interior(geometry(node))
        each = self._rows(node, numbers)
        defines = {**self.types(node), **{name: numbers[name] for name in WINDOW}, "VEC": vec, "ROWS": each}
        rows = ceil_div(numbers["OH"], each)
        passed = named(numbers, "C M IH IW OH OW PAD_Y PAD_X FIRST LAST")
        arguments = (*self.arguments(node), *passed, *chain.arguments)
        source = assemble("conv_depthwise.cl", defines, chain.source)
        return (Launch("conv_depthwise.cl", source, "conv_depthwise", arguments, (rows, maps, batch), (1, 1, 1)),)


def _spreads(node: TypedNode) -> bool:
    """Whether one channel, such as sound or a grey image, becomes so many that other kernels are faster.

    402 windows of 400 samples 160 apart take 0.9 ms in place of 4.9; 16 of 3 x 3 one apart stay, with 0.45 in place of 0.71
    (PoCL, one thread).
    """
    (_, _, maps, groups), g = sizes(node), geometry(node)
    sparse = bool(g.rank) and (g.strides[-1] > 1 or math.prod(g.kernel) > 25)
    return groups == 1 < maps and node.given(1).value is not None and (maps <= ConvColumns.maps or sparse)


class ConvColumns(ConvKernel):
    """For CPUs, few output channels: conv_columns.cl."""

    name = "conv_columns"
    by_content = False
    maps = 12

    def check(self, node: TypedNode) -> Refusal | None:
        if self.caps.kind != "CPU":
            return Refusal(Reason.CAPABILITY, "made for CPUs")
        _, _, maps, groups = sizes(node)
        if maps // groups > self.maps:
            return Refusal(Reason.SHAPE, f"{maps // groups} output channels a group; vectors along these are faster")
        if node.given(1).value is None:
            return Refusal(Reason.ATTRIBUTE, "the weights are not constant")
        return super().check(node)

    def any_sizes(self, node: TypedNode) -> bool:
        return True

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        batch, _, maps, groups = sizes(node)
        acc = accumulator(node.outputs[0].dtype)
        vec, own = self.caps.lanes(acc), maps // groups
        weights = constant_weights(node)
        packed = self.packed.get(weights, ("columns", groups, acc), lambda: _innermost(weights, groups, acc))
        numbers = self.sizes(node) | interior(geometry(node))
        defines = {**self.types(node), **{name: numbers[name] for name in WINDOW}, "VEC": vec, "MAPS": own}
        rows = geometry(node).output[-2] if geometry(node).rank > 1 else 1
        chain = post_ops.epilogue(node, vec)
        passed = named(numbers, "GROUPS C M IH IW OH OW PAD_Y PAD_X FIRST LAST")
        arguments = (*self.arguments(node, Constant(packed)), *passed, *chain.arguments)
        source = assemble("conv_columns.cl", defines, chain.source)
        return (Launch("conv_columns.cl", source, "conv_columns", arguments, (rows, groups, batch), (1, 1, 1)),)


def _innermost(weights: NDArray[np.generic], groups: int, c_type: str) -> NDArray[np.generic]:
    """[M, C, *K] as [groups, C * K, M / groups], in float or double."""
    maps, depth = weights.shape[0] // groups, math.prod(weights.shape[1:])
    return np.ascontiguousarray(weights.reshape(groups, maps, depth).transpose(0, 2, 1).astype(wide(c_type)))


class ConvDirect(ConvKernel):
    """One element a work item: conv_direct.cl."""

    name = "conv_direct"
    halves_by_load = True
    max_spatial = MAX_SPATIAL

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        size = node.outputs[0].size
        chain = post_ops.epilogue(node)
        defines = {**self.types(node), **storage(node.outputs[0].dtype), **self.sizes(node), "SIZE": size}
        source = assemble("conv_direct.cl", defines, chain.source)
        work, local = spread(size, self.caps)
        arguments = (*self.arguments(node), *chain.arguments)
        return (Launch("conv_direct.cl", source, "conv_direct", arguments, work, local),)


def _pointwise(node: TypedNode) -> Product | Refusal:
    """dst[n] [M, pixels] = wei [M, C] x src[n] [C, pixels]: the planes are the columns."""
    if (refusal := _spread(node)) is not None:
        return refusal
    batch, channels, maps, _ = sizes(node)
    pixels = math.prod(node.outputs[0].dims[2:])
    left = Matrix(node.node.inputs[1], node.given(1), channels, 1)
    right = Matrix(node.node.inputs[0], node.given(0), pixels, 1, channels * pixels)
    bias = node.node.inputs[2] if has_bias(node) else ""
    return Product(maps, pixels, channels, batch, left, right, bias=bias, plane_axes=node.outputs[0].rank - 2)


def _spread(node: TypedNode) -> Refusal | None:
    """Refuses convolutions other than products of weights and pixels, whatever the sizes."""
    assert isinstance(node.op, Conv)
    op, pads = node.op, node.op.pads if node.op.auto_pad == "NOTSET" else None
    if op.group > 1 or {*node.given(1).dims[2:], *(op.strides or ())} - {1} or any(pads or ()):
        return Refusal(Reason.ATTRIBUTE, "no pointwise convolution")
    return None


_FEW, _AS_FAST = 256, 1.1
"""Of so few pixels a smaller image may leave less than a tile has columns: conv_rows.cl, which takes any number, is chosen for
them unless it is so much slower."""


class PointwiseRows(GemmRows):
    """For CPUs: gemm_rows.cl with the planes as columns, where conv_rows.cl would not be faster."""

    def applies(self, node: TypedNode) -> Refusal | None:
        return _spread(node)

    def any_sizes(self, node: TypedNode) -> bool:
        return False

    def check(self, node: TypedNode) -> Refusal | None:
        product = _pointwise(node)
        if isinstance(product, Refusal) or (refusal := self.fits(product)) is not None:
            return product if isinstance(product, Refusal) else refusal
        if node.given(1).value is None or not node.outputs[0].size:
            return None
        problem = problem_of(product)
        sizes, lanes = (problem.z, problem.n, problem.m, problem.k), lanes_of(problem, self.caps)
        theirs = least_cycles(*sizes, lanes, self.caps, ConvRows.scatters)
        own = self.least(problem) * (_AS_FAST if problem.n < _FEW else 1)
        if self.default(problem) is NARROW or self.gives_way(node, own, ConvRows.name, theirs):
            return Refusal(Reason.SHAPE, f"planes of {problem.n} pixels; vectors along the channels are faster")
        return None

    def default(self, problem: Problem) -> RegisterTiling:
        """The widest, because conv_rows.cl is faster for few pixels: two programs serve all sizes."""
        widest = first_tiling(self.caps.vector_registers)
        return widest if problem.n >= widest.vectors * lanes_of(problem, self.caps) else NARROW


_CONV_ROWS = ConvRows()

KERNELS = (
    PointwiseRows(_pointwise),
    ConvDepthwise(),
    ConvColumns(),
    ConvWinograd(_CONV_ROWS),
    _CONV_ROWS,
    ConvPipelined(),
    ConvDepthwiseChannels(),
    ConvTiled(),
    ConvDepthwiseWindows(),
    ConvDirect(),
)
