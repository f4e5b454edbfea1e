"""Matrix products in tiles, for GPUs."""

import math

import numpy as np

from dovetail.dataclass import dataclass
from dovetail.device import Reason, Refusal, TypedNode
from dovetail_gpu_opencl import post_ops
from dovetail_gpu_opencl.capabilities import Capabilities
from dovetail_gpu_opencl.kernel import round_up
from dovetail_gpu_opencl.kernels._gemm import GemmKernel, Matrix, Product
from dovetail_gpu_opencl.kernels._tiles import Tiled, as_words, matrix_of, suffix, tiled_launches
from dovetail_gpu_opencl.kernels._tuned import Problem
from dovetail_gpu_opencl.launch import Argument, Constant, Launch, Read, Write
from dovetail_gpu_opencl.source import accumulator, accumulator_bytes, storage

__all__ = ["GemmTiled"]


class GemmTiled(Tiled, GemmKernel):
    """For GPUs: tiles.cl."""

    name = "gemm_tiled"
    halves_by_load = True

    def fits(self, product: Product) -> Refusal | None:
        if self.caps.kind != "GPU":
            return Refusal(Reason.CAPABILITY, "made for GPUs")
        return self.refusal(_problem(product, self.caps))

    def problem(self, node: TypedNode) -> Problem | None:
        """The problem for which a tiling is chosen; None when nothing is computed."""
        product = self.product(node)
        return None if 0 in (product.m, product.n, product.batch) else _problem(product, self.caps)

    def launches_of(self, product: Product, node: TypedNode) -> tuple[Launch, ...]:
        problem, dtype = _problem(product, self.caps), node.outputs[0].dtype
        tiling = self.settled(problem, node)
        a, b = _factors(product, tiling.matrix)
        defines = {**storage(dtype), "ACC": accumulator(dtype), "HAS_BIAS": bool(product.bias)}
        defines |= {"Z": product.batch, "M": product.m, "N": product.n, "K": product.k}
        defines |= a.defines("A", "M", tiling.tile_m, tiling.tile_k) | b.defines("B", "N", tiling.tile_n, tiling.tile_k)
        bias = (Read(product.bias),) if product.bias else ()
        arguments = a.argument(), b.argument()
        return tiled_launches(
            node,
            problem,
            tiling,
            defines,
            arguments,
            bias,
            Write(node.node.outputs[0]),
            post_ops.epilogue(node),
            self,
        )


def _problem(product: Product, caps: Capabilities) -> Problem:
    dtype = product.a.type.dtype
    matrix = matrix_of(dtype, caps, product.a.type.value, product.b.type.value)
    orders = " ".join(factor.order() for factor in _factors(product, matrix))
    key = f"gemm {dtype} {product.batch}x{product.m}x{product.n}x{product.k} {orders}" + suffix(matrix)
    return Problem(key, product.batch, product.m, product.n, product.k, accumulator_bytes(dtype), matrix=matrix)


@dataclass(frozen=True, slots=True)
class Factor:
    """A factor of matrices [`size`, k]: elements from one to the next along the first axis (`across`), and along k (`along`).

    `packed` is not empty for a constant that is to be laid out as [k, size rounded up to 4]: the axis along which it is dense
    as it is, `x` or `k`. With `matrix_units`, their format, it becomes words for these.
    """

    matrix: Matrix
    size: int
    k: int
    across: int
    along: int
    packed: str = ""
    matrix_units: int = 0

    def ordered_for(self, matrix_units: int) -> "Factor":
        """As the kernel gets it."""
        value, dense = self.matrix.type.value, "x" if self.across == 1 else "k"
        if value is None or value.size != self.size * self.k or not value.size:
            return self
        if dense == "x" and self.size % 4 == 0 and not matrix_units:
            return self
        return Factor(self.matrix, self.size, self.k, 1, round_up(self.size, 4), dense, matrix_units)

    def order(self) -> str:
        """Which axis is dense, and the elements that may be loaded at once."""
        return f"{'x' if self.across == 1 else 'k'}{self.vector()}"

    def vector(self) -> int:
        """How many elements, at most 4, start where memory is aligned to them."""
        if self.packed:
            return 4
        dense, other = (self.size, self.along) if self.across == 1 else (self.k, self.across)
        return math.gcd(4, dense, other, 0 if self.matrix.batch else self.matrix.matrix)

    def defines(self, letter: str, axis: str, tile: int, tile_k: int) -> dict[str, object]:
        """Its steps, its vector and its batches, for tiles of so many elements along both axes."""
        batch = "0" if self.packed else self.matrix.batch or f"(z) * {letter}_MATRIX"
        return {
            f"{letter}_MATRIX": self.matrix.matrix,
            f"{letter}_{axis}": self.across,
            f"{letter}_K": self.along,
            f"{letter}_V": min(self.vector(), tile if self.across == 1 else tile_k),
            f"{letter}_BATCH(z)": f"({batch})",
            f"{letter}_WORDS": bool(self.packed and self.matrix_units),
        }

    def argument(self) -> Argument:
        """The value, or the constant in its new layout."""
        if not self.packed:
            return Read(self.matrix.name)
        value = self.matrix.type.value
        assert value is not None
        lines = value.reshape(self.k, self.size) if self.packed == "x" else value.reshape(self.size, self.k).T
        padded = np.pad(lines, ((0, 0), (0, self.along - self.size)))
        return Constant(as_words(padded, self.matrix_units) if self.matrix_units else padded)


def _factors(product: Product, matrix_units: int) -> tuple[Factor, Factor]:
    a, b = product.a, product.b
    left = Factor(a, product.m, product.k, a.row, a.column)
    right = Factor(b, product.n, product.k, b.column, b.row)
    return left.ordered_for(matrix_units), right.ordered_for(matrix_units)
