"""Convolutions as matrix products in tiles, for GPUs."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dovetail.device import NHWC, PLAIN, LayerConfig, Reason, Refusal, TypedNode
from dovetail_gpu_opencl import post_ops
from dovetail_gpu_opencl.kernels._conv import ConvKernel, constant_weights, geometry, has_bias, problem_key, sizes
from dovetail_gpu_opencl.kernels._spatial import MAX_SPATIAL
from dovetail_gpu_opencl.kernels._tiles import Tiled, as_words, matrix_of, suffix, tiled_launches
from dovetail_gpu_opencl.kernels._tuned import Problem
from dovetail_gpu_opencl.launch import Constant, Launch, Read, Write
from dovetail_gpu_opencl.source import accumulator_bytes, storage

__all__ = ["ConvTiled", "pack_by_depth"]


class ConvTiled(Tiled, ConvKernel):
    """For GPUs: tiles.cl."""

    name = "conv_tiled"
    halves_by_load = True
    max_spatial = MAX_SPATIAL

    def check(self, node: TypedNode) -> Refusal | None:
        if self.caps.kind != "GPU":
            return Refusal(Reason.CAPABILITY, "made for GPUs")
        _, _, maps, groups = sizes(node)
        if maps // groups < 4:
            return Refusal(Reason.SHAPE, f"{maps // groups} output channels a group; a tile would be empty")
        if node.given(1).value is None:
            return Refusal(Reason.ATTRIBUTE, "the weights are not constant")
        refusal = super().check(node)
        if refusal is None and geometry(node).rank == MAX_SPATIAL and self._problem(node).matrix:
            return Refusal(Reason.SHAPE, "three spatial axes on matrix units")
        return self.refusal(self._problem(node)) if refusal is None else refusal

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        rest = (PLAIN,) * len(node.inputs)
        found = [LayerConfig.uniform(node, PLAIN)]
        if geometry(node).rank >= 2 and not self._problem(node).matrix:
            operands = tuple(NHWC if operand.dims == node.outputs[0].dims else PLAIN for operand in node.operands)
            found.append(LayerConfig(rest, (NHWC,), operands))
        return found

    def problem(self, node: TypedNode) -> Problem | None:
        """The problem for which a tiling is chosen; None when nothing is computed."""
        return self._problem(node) if node.outputs[0].size else None

    def _problem(self, node: TypedNode) -> Problem:
        batch, channels, maps, groups = sizes(node)
        g, dtype = geometry(node), node.outputs[0].dtype
        matrix = matrix_of(dtype, self.caps, constant_weights(node))
        key = problem_key("conv", node) + suffix(matrix)
        pixels, depth = batch * int(np.prod(g.output)), channels * int(np.prod(g.kernel))
        return Problem(key, groups, maps // groups, pixels, depth, accumulator_bytes(dtype), True, matrix)

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        problem = self.problem(node)
        if problem is None:
            return ()
        tiling, names = self.settled(problem, node), node.node.inputs
        weights = pack_by_depth(constant_weights(node), problem.z)
        if tiling.matrix:
            weights = as_words(weights, tiling.matrix)
        g, numbers = geometry(node), self.sizes(node)
        pixels, dense = int(np.prod(g.output)), g.is_pointwise and not any(g.pads_begin)
        volume, plane = g.rank == MAX_SPATIAL, numbers["OH"] * numbers["OW"]
        area = numbers["ID"] * numbers["IH"] * numbers["IW"]
        image = {"P": pixels, "IMAGE": area, "N": numbers.pop("BATCH") * pixels}
        if volume:
            image["PLANE"] = plane
        left_out = ("OD", "OH") if volume else ("ID", "OD", "OH", "PAD_Z")
        defines = {
            **self.types(node),
            **storage(node.outputs[0].dtype),
            **{name: value for name, value in numbers.items() if name not in left_out},
            **image,
            "VOLUME": volume,
            "M": problem.m,
            "CONV": True,
            "DENSE": dense,
            "A_K": weights.shape[-1],
            "A_ROWS": weights.shape[1],
            "A_WORDS": tiling.matrix > 0,
            "INNERMOST": node.outputs[0].layout == NHWC,
        }
        wide = math.gcd(4, pixels, tiling.tile_n) if dense else 1
        wide = self.packed.settled(f"{self.name} loads", node, wide, lambda built: wide % built == 0)
        defines |= {"A_V": min(4, tiling.tile_m), "B_V": wide}
        factors, bias = (Constant(weights), Read(names[0])), (Read(names[2]),) if has_bias(node) else ()
        dst = Write(node.node.outputs[0])
        chain = post_ops.epilogue(post_ops.in_memory_order(node))
        return tiled_launches(node, problem, tiling, defines, factors, bias, dst, chain, self)


def pack_by_depth(weights: NDArray[np.generic], groups: int) -> NDArray[np.generic]:
    """[M, C, *K] as [groups, elements of K * C, M / groups rounded up to 4], padded with zeros."""
    maps, channels = weights.shape[:2]
    own, taps = maps // groups, math.prod(weights.shape[2:])
    turned = weights.reshape(groups, own, channels, taps).transpose(0, 3, 2, 1)
    padded = np.pad(turned, ((0, 0), (0, 0), (0, 0), (0, -own % 4)))
    return padded.reshape(groups, taps * channels, padded.shape[-1])
