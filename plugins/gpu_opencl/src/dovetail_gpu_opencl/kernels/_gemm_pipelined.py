"""Matrix products of halves or floats in a pipeline, for GPUs with matrix units."""

from dovetail.device import DType, Reason, Refusal, TypedNode
from dovetail_gpu_opencl.kernels._gemm import GemmKernel, Product
from dovetail_gpu_opencl.kernels._gemm_tiled import GemmTiled
from dovetail_gpu_opencl.kernels._pipelined import Normalization, Pipelined, pack_rows, pipelined_launches
from dovetail_gpu_opencl.kernels._tiles import suffix
from dovetail_gpu_opencl.kernels._tuned import Problem
from dovetail_gpu_opencl.launch import Argument, Constant, Launch, Read, Write

__all__ = ["GemmPipelined"]


class GemmPipelined(Pipelined, GemmKernel):
    """For GPUs with matrix units: tiles_pipelined.cl. The second factor is a constant."""

    name = "gemm_pipelined"
    halves_by_load = True
    mixes = True
    spared = 0.0
    """Cycles of another launch that this one spares."""

    def check(self, node: TypedNode) -> Refusal | None:
        refusal = self.refusal(node)
        if refusal is None and node.given(0).dtype is not self.factor(node):
            refusal = Refusal(Reason.DTYPE, f"{node.given(0)}")
        if refusal is None:
            refusal = super().check(node)
        problem = GemmPipelined.problem(self, node) if refusal is None else None
        if problem is None:
            return refusal
        return self.slower(problem, GemmTiled(self._product_of).on(self.caps, self.packed), node, self.spared)

    def fits(self, product: Product) -> Refusal | None:
        a, value = product.a, product.b.type.value
        if product.bias:
            return Refusal(Reason.ATTRIBUTE, "a bias for each row")
        if value is None or value.size not in (product.k * product.n, product.batch * product.k * product.n):
            return Refusal(Reason.ATTRIBUTE, "the second factor is not constant")
        once = 16 // a.type.dtype.numpy.itemsize
        if not product.k or a.column != 1 or product.k % once or a.row % once or a.matrix % once:
            return Refusal(Reason.LAYOUT, f"rows of {product.k} elements; accepted: dense ones of multiples of {once}")
        return None

    def problem(self, node: TypedNode) -> Problem | None:
        """The problem for which a tiling is chosen; None when nothing is computed."""
        product = self.product(node)
        return None if 0 in (product.m, product.n, product.batch) else self.problem_of(product)

    def problem_of(self, product: Product) -> Problem:
        """The problem of a product that is not empty."""
        key = f"gemm_pipelined {product.batch}x{product.m}x{product.n}x{product.k}"
        factor = product.a.type.dtype
        matrix = self.format(factor)
        key += (" float32" if factor is DType.FLOAT32 else "") + suffix(matrix)
        return Problem(key, product.batch, product.m, product.n, product.k, factor.numpy.itemsize, matrix=matrix)

    def launches_of(self, product: Product, node: TypedNode) -> tuple[Launch, ...]:
        return self.multiplied(product, node, Write(node.node.outputs[0]))

    def multiplied(
        self, product: Product, node: TypedNode, dst: Argument, after: Normalization | None = None
    ) -> tuple[Launch, ...]:
        """The launches of a product into `dst`, perhaps normalized after that."""
        problem, a = self.problem_of(product), product.a
        value, b = product.b.type.value, product.b
        dense = b.dense(product.k, product.n)
        assert value is not None
        assert dense is not None
        factor = a.type.dtype
        order = (factor, product.k, product.n, b.row, b.column)
        packed = self.packed.get(value, order, lambda: pack_rows(dense.swapaxes(-1, -2), factor))
        pairs, step = problem.itemsize // 2, packed[0].size if len(packed) > 1 else 0
        batch = "0" if product.batch == 1 else a.batch or "(z) * A_MATRIX"
        defines: dict[str, object] = {"A_M": a.row * pairs, "A_MATRIX": a.matrix}
        defines |= {"A_BATCH(z)": f"(({batch}) * {pairs})", "B_BATCH(z)": f"((z) * {step * pairs})"}
        factors = (Read(a.name), Constant(packed))
        return pipelined_launches(node, problem, self.settled(problem, node), defines, factor, factors, None, dst, after=after)
