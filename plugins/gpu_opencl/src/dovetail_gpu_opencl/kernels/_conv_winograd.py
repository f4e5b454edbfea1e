"""Convolution by windows of 3 x 3 with fewer multiplications, for CPUs."""

import math

import numpy as np
from numpy.typing import NDArray

from dovetail.device import Reason, Refusal, TypedNode
from dovetail_gpu_opencl import post_ops
from dovetail_gpu_opencl.kernel import ceil_div
from dovetail_gpu_opencl.kernels._conv import ConvKernel, constant_weights, geometry, has_bias, problem_key, sizes, wide
from dovetail_gpu_opencl.kernels._register_tiles import RegisterTiled, RegisterTiling, estimate, lanes_of
from dovetail_gpu_opencl.kernels._tuned import Problem
from dovetail_gpu_opencl.launch import Argument, Constant, Launch, Read, Scratch, Write, ints
from dovetail_gpu_opencl.memory import aligned_empty
from dovetail_gpu_opencl.source import accumulator, accumulator_bytes, assemble

__all__ = ["ConvWinograd", "transformed"]

_WEIGHTS = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
_WAY_IN, _WAY_OUT = 35.0, 25.0
"""Cycles of the transforms for a tile and channel, in and out, measured on PoCL (x86-64 with AVX-512)."""
_BETTER = 0.95


class ConvWinograd(RegisterTiled, ConvKernel):
    """For CPUs, where the cost model finds it faster than `direct`: conv_winograd.cl and gemm_rows.cl.

    Sums are those of other numbers than in a direct convolution: an infinity or NaN spoils the 2 x 2 results of a tile together.
    """

    name = "conv_winograd"
    by_content = False

    def __init__(self, direct: RegisterTiled) -> None:
        self._direct = direct

    def applies(self, node: TypedNode) -> Refusal | None:
        if self.caps.kind != "CPU":
            return Refusal(Reason.CAPABILITY, "made for CPUs")
        if node.given(1).value is None:
            return Refusal(Reason.ATTRIBUTE, "the weights are not constant")
        g, (_, _, maps, groups) = geometry(node), sizes(node)
        if (*g.kernel,) != (3, 3) or {*g.strides, *g.dilations, groups} != {1}:
            return Refusal(Reason.ATTRIBUTE, "no windows of 3 x 3 in steps of 1 in one group")
        if maps < self.caps.lanes(accumulator(node.outputs[0].dtype)):
            return Refusal(Reason.SHAPE, f"{maps} output channels; they are taken as vectors")
        return super().check(node)

    def check(self, node: TypedNode) -> Refusal | None:
        direct = self._direct.on(self.caps, self.packed)
        problem, other = self.problem(node), direct.problem(node)
        if problem is None or other is None:
            return None
        if self.least(problem) > _BETTER * direct.least(other):
            return Refusal(Reason.SHAPE, f"{problem.m} tiles of {problem.k} channels: transforms cost more than they save")
        return None

    def problem(self, node: TypedNode) -> Problem | None:
        """The 16 products of tiles and weights."""
        if not node.outputs[0].size:
            return None
        batch, channels, maps, _ = sizes(node)
        itemsize = accumulator_bytes(node.outputs[0].dtype)
        return Problem(problem_key(self.name, node), 16, batch * math.prod(_tiles(node)), maps, channels, itemsize)

    def cost(self, problem: Problem, parameters: RegisterTiling) -> float:
        """Cycles of the products and the transforms."""
        transforms = problem.m * (_WAY_IN * problem.k + _WAY_OUT * problem.n) / max(1, self.caps.compute_units)
        return estimate(problem, parameters, self.caps) + transforms

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        problem = self.problem(node)
        if problem is None:
            return ()
        tiling, lanes, acc = self.settled(problem, node), lanes_of(problem, self.caps), accumulator(node.outputs[0].dtype)
        batch, channels, maps, _ = sizes(node)
        th, tw = _tiles(node)
        ph, pw = 2 * th + 2, max(2 * tw + 2, 2 * lanes + 2)
        tiles, names = problem.m, node.node.inputs
        padded, tiled, products = (
            Scratch(f"scratch:{node.name}:{i}", count * problem.itemsize)
            for i, count in enumerate((batch * channels * ph * pw, 16 * channels * tiles, 16 * tiles * maps))
        )
        types = self.types(node) | {"VEC": lanes, **_pairs(acc, lanes)}
        plain = assemble("conv_winograd.cl", types | {"HAS_BIAS": False})
        g = geometry(node)
        pad: tuple[Argument, ...] = (Read(names[0]), padded, *ints(*g.input, *g.pads_begin, ph, pw))
        way_in: tuple[Argument, ...] = (padded, tiled, *ints(channels, ph, pw, th, tw, tiles))
        weights = self._packed(node, tiling.vectors * lanes, acc)
        chain = post_ops.epilogue(node)
        last = assemble("conv_winograd.cl", types, chain.source)
        bias = (Read(names[2]),) if has_bias(node) else ()
        way_out: tuple[Argument, ...] = (
            products,
            *bias,
            Write(node.node.outputs[0]),
            *ints(maps, *g.output, th, tw, tiles),
            *chain.arguments,
        )
        columns = ceil_div(maps, tiling.vectors * lanes)
        b_z = columns * channels * tiling.vectors * lanes
        numbers = ints(tiles, maps, channels, 1, tiles, 0, channels * tiles, b_z, tiling.down)
        defines = {"T": acc, "ACC": acc, **tiling.defines(), "VEC": lanes, "B_PACKED": True}
        multiply = assemble("gemm_rows.cl", defines)
        work = (*tiling.work(ceil_div(tiles, tiling.rows), columns), 16)
        one = (1, 1, 1)
        file = "conv_winograd.cl"
        return (
            Launch(file, plain, "winograd_pad", pad, (ph, batch * channels), (1, 1)),
            Launch(file, plain, "winograd_input", way_in, (th, channels, batch), one),
            Launch("gemm_rows.cl", multiply, "gemm_rows", (tiled, Constant(weights), products, *numbers), work, one),
            Launch(file, last, "winograd_output", way_out, (th, ceil_div(maps, lanes), batch), one),
        )

    def _packed(self, node: TypedNode, columns: int, c_type: str) -> NDArray[np.generic]:
        weights = constant_weights(node)
        order = ("winograd", columns, c_type)
        return self.packed.get(weights, order, lambda: transformed(weights, columns, c_type))


def transformed(weights: NDArray[np.generic], columns: int, c_type: str) -> NDArray[np.floating]:
    """G g G' of each pair of channels in float or double: [M, C, 3, 3] as [16, ceil(M / columns), C, columns]; zeros behind."""
    maps, channels = weights.shape[:2]
    blocks, dtype = ceil_div(maps, columns), wide(c_type)
    packed = aligned_empty((16, blocks, channels, columns), dtype)
    both, elements = np.kron(_WEIGHTS, _WEIGHTS).astype(dtype), np.zeros((9, channels, columns), dtype)
    # Block by block: its elements stay in the cache, and the product of both factors goes where the kernel reads it.
    for block in range(blocks):
        some = weights[block * columns : (block + 1) * columns]
        elements[..., : len(some)] = some.reshape(len(some), channels, 9).transpose(2, 1, 0)
        elements[..., len(some) :] = 0
        np.matmul(both, elements.reshape(9, -1), out=packed[:, block].reshape(16, -1))
    return packed


def _tiles(node: TypedNode) -> tuple[int, int]:
    height, width = geometry(node).output
    return ceil_div(height, 2), ceil_div(width, 2)


def _pairs(c_type: str, lanes: int) -> dict[str, str]:
    """Every other element of two vectors as one."""
    # Element by element: Oclgrind 21.10 crashes at vectors that are joined of halves.
    found: dict[str, str] = {}
    for first, name in enumerate(("EVEN", "ODD")):
        elements = ", ".join(f"({vector}).s{i:x}" for vector in "ab" for i in range(first, lanes, 2))
        found[f"{name}(a, b)"] = f"(({c_type}{lanes})({elements}))"
    return found
