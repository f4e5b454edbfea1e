"""Conv: as a matrix product, by rows or depthwise on CPUs; tiled on GPUs; directly where these refuse."""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from dovetail.device import Reason, Refusal, TypedNode
from dovetail.spatial import ConvGeometry
from dovetail_gpu_opencl import postops
from dovetail_gpu_opencl.kernel import CLKernel, ceil_div, spread
from dovetail_gpu_opencl.kernels._gemm import GemmRows, Matrix, Product
from dovetail_gpu_opencl.kernels._spatial import MAX_SPATIAL, spatial_defines
from dovetail_gpu_opencl.kernels._tiles import Problem, Tuned, tiled_launches
from dovetail_gpu_opencl.launch import Argument, Constant, Launch, Read, Write, ints
from dovetail_gpu_opencl.source import C_TYPES, accumulator, assemble

__all__ = ["KERNELS"]


class ConvKernel(CLKernel):
    """What all convolution kernels but the matrix product share: their defines and arguments."""

    max_spatial = 2

    def check(self, node: TypedNode) -> Refusal | None:
        rank = geometry(node).rank
        return None if rank <= self.max_spatial else Refusal(Reason.SHAPE, f"{rank} spatial axes")

    def types(self, node: TypedNode) -> dict[str, object]:
        """The data types, and whether there is a bias."""
        dtype = node.outputs[0].dtype
        return {"T": C_TYPES[dtype], "ACC": accumulator(dtype), "HAS_BIAS": has_bias(node)}

    def sizes(self, node: TypedNode) -> dict[str, int]:
        """The numbers of the node, by the names that kernels use."""
        batch, channels, maps, groups = sizes(node)
        return {"BATCH": batch, "GROUPS": groups, "C": channels, "M": maps, **spatial_defines(geometry(node))}

    def arguments(self, node: TypedNode, weights: Argument | None = None) -> tuple[Argument, ...]:
        """src, wei, bia if there is one, dst."""
        names = node.node.inputs
        bias = (Read(names[2]),) if has_bias(node) else ()
        return (Read(names[0]), weights or Read(names[1]), *bias, Write(node.node.outputs[0]))


class ConvRows(ConvKernel):
    """For CPUs: conv_rows.cl."""

    name = "conv_rows"
    rows = 6

    def check(self, node: TypedNode) -> Refusal | None:
        if self.caps.kind != "CPU":
            return Refusal(Reason.CAPABILITY, "made for CPUs")
        weights = node.inputs[1]
        if weights is None or weights.value is None:
            return Refusal(Reason.ATTRIBUTE, "the weights are no constant")
        return super().check(node)

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        batch, _, maps, groups = sizes(node)
        vec = self.caps.lanes(accumulator(node.outputs[0].dtype))
        assert node.inputs[1] is not None
        assert node.inputs[1].value is not None
        packed = pack_weights(node.inputs[1].value, groups, 2 * vec, accumulator(node.outputs[0].dtype))
        chain = postops.epilogue(node)
        numbers = self.sizes(node)
        names = "GROUPS C M IH IW OH OW KH KW STRIDE_Y STRIDE_X DILATION_Y DILATION_X PAD_Y PAD_X"
        defines = {**self.types(node), "ROWS": self.rows, "VEC": vec}
        pixels = int(np.prod(geometry(node).output))
        work = (ceil_div(pixels, self.rows), groups * ceil_div(maps // groups, 2 * vec), batch)
        arguments = (*self.arguments(node, Constant(packed)), *_named(numbers, names), *chain.arguments)
        source = assemble("conv_rows.cl", defines, chain.source)
        return (Launch("conv_rows.cl", source, "conv_rows", arguments, work, (1, 1, 1)),)


def pack_weights(weights: NDArray[np.generic], groups: int, columns: int, c_type: str) -> NDArray[np.generic]:
    """[M, C, *K] as [groups, ceil(M / groups / columns), *K, C, columns], padded with zeros, in float or double."""
    maps, channels = weights.shape[:2]
    own = maps // groups
    blocks = ceil_div(own, columns)
    elements = int(np.prod(weights.shape[2:]))
    padded = np.zeros((groups, blocks * columns, channels, elements), _wide(c_type))
    padded[:, :own] = weights.reshape(groups, own, channels, elements)
    return np.ascontiguousarray(padded.reshape(groups, blocks, columns, channels, elements).transpose(0, 1, 4, 3, 2))


def _wide(c_type: str) -> type[np.floating]:
    return np.float64 if c_type == "double" else np.float32


class ConvDepthwise(ConvKernel):
    """For CPUs: conv_depthwise.cl."""

    name = "conv_depthwise"

    def check(self, node: TypedNode) -> Refusal | None:
        if self.caps.kind != "CPU":
            return Refusal(Reason.CAPABILITY, "made for CPUs")
        _, channels, _, _ = sizes(node)
        return Refusal(Reason.ATTRIBUTE, "not depthwise") if channels != 1 else super().check(node)

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        batch, _, maps, groups = sizes(node)
        vec = self.caps.lanes(accumulator(node.outputs[0].dtype))
        chain = postops.epilogue(node, vec)
        first, last = interior(geometry(node))
        numbers = self.sizes(node) | {"C": groups, "FIRST": first, "LAST": last}
        fixed = ("KH", "KW", "STRIDE_Y", "STRIDE_X", "DILATION_Y", "DILATION_X")
        defines = {**self.types(node), **{name: numbers[name] for name in fixed}, "VEC": vec}
        rows = geometry(node).output[-2] if geometry(node).rank > 1 else 1
        passed = _named(numbers, "C M IH IW OH OW PAD_Y PAD_X FIRST LAST")
        arguments = (*self.arguments(node), *passed, *chain.arguments)
        source = assemble("conv_depthwise.cl", defines, chain.source)
        return (Launch("conv_depthwise.cl", source, "conv_depthwise", arguments, (rows, maps, batch), (1, 1, 1)),)


def interior(g: ConvGeometry) -> tuple[int, int]:
    """The output columns, from and up to, whose windows do not leave the input to the left or right."""
    pad, stride, reach = g.pads_begin[-1], g.strides[-1], g.extent[-1]
    first = min(g.output[-1], ceil_div(pad, stride))
    last = min(g.output[-1], (g.input[-1] - reach + pad) // stride + 1)
    return first, max(first, last)


class ConvTiled(Tuned, ConvKernel):
    """For GPUs: tiles.cl."""

    name = "conv_tiled"

    def check(self, node: TypedNode) -> Refusal | None:
        if self.caps.kind != "GPU":
            return Refusal(Reason.CAPABILITY, "made for GPUs")
        _, _, maps, groups = sizes(node)
        if maps // groups < 4:
            return Refusal(Reason.SHAPE, f"{maps // groups} output channels a group; a tile would be empty")
        if node.inputs[1] is None or node.inputs[1].value is None:
            return Refusal(Reason.ATTRIBUTE, "the weights are no constant")
        refusal = super().check(node)
        return self.refusal(self._problem(node)) if refusal is None else refusal

    def problem(self, node: TypedNode) -> Problem | None:
        """What a tiling is chosen for; None when nothing is computed."""
        return self._problem(node) if node.outputs[0].size else None

    def _problem(self, node: TypedNode) -> Problem:
        batch, channels, maps, groups = sizes(node)
        g, dtype = geometry(node), node.outputs[0].dtype
        parts = (groups, channels, maps, *g.input, "kernel", *g.kernel, "strides", *g.strides, "pads", *g.pads_begin)
        key = f"conv {dtype} {batch} " + " ".join(str(part) for part in (*parts, "dilations", *g.dilations))
        pixels, itemsize = batch * int(np.prod(g.output)), 8 if accumulator(dtype) == "double" else 4
        depth = channels * int(np.prod(g.kernel))
        return Problem(key, groups, maps // groups, pixels, depth, itemsize, columns=True)

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        problem = self.problem(node)
        if problem is None:
            return ()
        tiling, names = self.tiling(problem), node.node.inputs
        assert node.inputs[1] is not None
        assert node.inputs[1].value is not None
        weights = pack_by_depth(node.inputs[1].value, problem.z)
        pixels = int(np.prod(geometry(node).output))
        dense = geometry(node).is_pointwise and not any(geometry(node).pads_begin)
        defines = {**self.types(node), **self.sizes(node), "M": problem.m, "CONV": True, "A_K": weights.shape[-1]}
        defines |= {"A_V": min(4, tiling.tile_m), "B_V": math.gcd(4, pixels, tiling.tile_n) if dense else 1}
        factors, bias = (Constant(weights), Read(names[0])), (Read(names[2]),) if has_bias(node) else ()
        dst = Write(node.node.outputs[0])
        return tiled_launches(node, problem, tiling, defines, factors, bias, dst, postops.epilogue(node))


def pack_by_depth(weights: NDArray[np.generic], groups: int) -> NDArray[np.generic]:
    """[M, C, *K] as [groups, elements of K, C, M / groups rounded up to 4], padded with zeros."""
    maps, channels = weights.shape[:2]
    own = maps // groups
    turned = weights.reshape(groups, own, channels, -1).transpose(0, 3, 2, 1)
    return np.pad(turned, ((0, 0), (0, 0), (0, 0), (0, -own % 4)))


class ConvDirect(ConvKernel):
    """One element a work item: conv_direct.cl."""

    name = "conv_direct"
    max_spatial = MAX_SPATIAL

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        size = node.outputs[0].size
        chain = postops.epilogue(node)
        source = assemble("conv_direct.cl", {**self.types(node), **self.sizes(node), "SIZE": size}, chain.source)
        work, local = spread(size, self.caps)
        arguments = (*self.arguments(node), *chain.arguments)
        return (Launch("conv_direct.cl", source, "conv_direct", arguments, work, local),)


def geometry(node: TypedNode) -> ConvGeometry:
    """The node's windows."""
    found: ConvGeometry = node.op.geometry(*node.inputs[:2])  # type: ignore[attr-defined]  # a Conv operator
    return found


def sizes(node: TypedNode) -> tuple[int, int, int, int]:
    """N, the input channels of a group, M, and the number of groups."""
    src, weights = node.inputs[:2]
    assert src is not None
    assert weights is not None
    return src.dims[0], weights.dims[1], weights.dims[0], node.op.group  # type: ignore[attr-defined]  # a Conv operator


def _named(numbers: Mapping[str, int], names: str) -> tuple[Argument, ...]:
    return ints(*(numbers[name] for name in names.split()))


def has_bias(node: TypedNode) -> bool:
    """True when the third input is present."""
    return len(node.inputs) > 2 and node.inputs[2] is not None


def _pointwise(node: TypedNode) -> Product | Refusal:
    """dst[n] [M, pixels] = wei [M, C] x src[n] [C, pixels]: the planes are the columns."""
    g = geometry(node)
    batch, channels, maps, groups = sizes(node)
    if not g.is_pointwise or groups != 1:
        return Refusal(Reason.ATTRIBUTE, "no pointwise convolution")
    src, weights = node.inputs[:2]
    assert src is not None
    assert weights is not None
    pixels = int(np.prod(g.output))
    left = Matrix(node.node.inputs[1], weights, channels, 1)
    right = Matrix(node.node.inputs[0], src, pixels, 1, channels * pixels)
    bias = node.node.inputs[2] if has_bias(node) else ""
    return Product(maps, pixels, channels, batch, left, right, bias=bias, plane_axes=g.rank)


KERNELS = (GemmRows(_pointwise), ConvDepthwise(), ConvRows(), ConvTiled(), ConvDirect())
