"""Matrix products, for MatMul, Gemm and pointwise convolution: what is multiplied as data, and the kernels that multiply."""

import dataclasses
import math
from abc import abstractmethod
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.device import Accepted, DType, PostOp, Reason, Refusal, TensorType, TypedNode
from dovetail_gpu_opencl import post_ops
from dovetail_gpu_opencl.kernel import CLKernel, ceil_div, one_float, spread
from dovetail_gpu_opencl.kernels._register_tiles import RegisterTiled, lanes_of
from dovetail_gpu_opencl.kernels._tuned import Problem
from dovetail_gpu_opencl.launch import Argument, Constant, Launch, Read, Write, ints
from dovetail_gpu_opencl.memory import aligned_empty
from dovetail_gpu_opencl.sizes import by_value
from dovetail_gpu_opencl.source import C_TYPES, STORED_TYPES, accumulator, accumulator_bytes, assemble, storage

__all__ = ["GemmDirect", "GemmKernel", "GemmRows", "Matrix", "Product", "ProductOf", "problem_of"]


@dataclass(frozen=True, slots=True)
class Matrix:
    """One factor: the value, its type, elements from one row, column or matrix to the next.

    `batch`, where it is not empty, is the first element of matrix `z` as a C expression, in place of `z * matrix`.
    """

    name: str
    type: TensorType
    row: int
    column: int
    matrix: int = 0
    batch: str = ""

    def dense(self, rows: int, columns: int) -> NDArray[np.generic] | None:
        """The matrices as an array [..., rows, columns], when they are a constant."""
        if self.type.value is None:
            return None
        count = math.prod(self.type.dims[:-2])
        if self.column == 1:
            return self.type.value.reshape(count, rows, columns)
        return self.type.value.reshape(count, columns, rows).swapaxes(-1, -2)


@dataclass(frozen=True, slots=True)
class Product:
    """dst[z] [m, n] = bias [m] + a[z] [m, k] x b[z] [k, n] for z < batch, then `chain` and the node's own post-ops.

    `bias` is a value of m elements, or empty. `operands` are the types that `chain` reads. `plane_axes` is how many trailing
    axes of the result n counts.
    """

    m: int
    n: int
    k: int
    batch: int
    a: Matrix
    b: Matrix
    chain: tuple[PostOp, ...] = ()
    operands: tuple[TensorType, ...] = ()
    bias: str = ""
    plane_axes: int = 1

    def values(self, second: Argument | None = None) -> tuple[Argument, ...]:
        """The factors (the second perhaps in another order), and the bias if there is one."""
        bias = (Read(self.bias),) if self.bias else ()
        return (Read(self.a.name), second or Read(self.b.name), *bias)

    def attach(self, node: TypedNode) -> TypedNode:
        """The node with `chain` before its own post-ops."""
        if not self.chain:
            return node
        inner = dataclasses.replace(node.node, post_ops=(*self.chain, *node.post_ops))
        return dataclasses.replace(node, node=inner, operands=(*self.operands, *node.operands))


ProductOf = Callable[[TypedNode], Product | Refusal]


class GemmKernel(CLKernel):
    """A kernel for every operator that a function turns into a `Product`."""

    def __init__(self, product_of: ProductOf) -> None:
        self._product_of = product_of

    def supports(self, node: TypedNode) -> Accepted | Refusal:
        refusal = None if self.mixes else one_float(node)
        return super().supports(node) if refusal is None else refusal

    def check(self, node: TypedNode) -> Refusal | None:
        product = self._product_of(node)
        if isinstance(product, Refusal):
            return product
        refusal = post_ops.check(product.attach(node))
        return self.fits(product) if refusal is None else refusal

    def fits(self, product: Product) -> Refusal | None:
        """The requirements of this kernel on the product."""
        return None

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        product = self.product(node)
        if 0 in (product.m, product.n, product.batch):
            return ()
        return self.launches_of(product, product.attach(node))

    def product(self, node: TypedNode) -> Product:
        """The product of a node that `check` accepted."""
        product = self._product_of(node)
        assert isinstance(product, Product)
        return product

    @abstractmethod
    def launches_of(self, product: Product, node: TypedNode) -> tuple[Launch, ...]:
        """The launches of a product without zeros in m, n and batch, with the chain attached to `node`."""


class GemmRows(RegisterTiled, GemmKernel):
    """For CPUs: gemm_rows.cl."""

    name = "gemm_rows"
    by_content = False

    def fits(self, product: Product) -> Refusal | None:
        if self.caps.kind != "CPU":
            return Refusal(Reason.CAPABILITY, "made for CPUs")
        if not packs(product) and product.b.column != 1:
            return Refusal(Reason.LAYOUT, "the second factor is not constant, and transposed")
        return None

    def any_sizes(self, node: TypedNode) -> bool:
        second = node.given(1)
        return second.value is not None and second.rank <= 2

    def problem(self, node: TypedNode) -> Problem | None:
        """The problem for which a tiling is chosen; None when nothing is computed."""
        product = self.product(node)
        return None if 0 in (product.m, product.n, product.batch) else problem_of(product)

    def columns(self, problem: Problem) -> int:
        """Columns that are not packed are loaded from their places."""
        return 0 if problem.key.endswith(PACKED) else problem.n

    def launches_of(self, product: Product, node: TypedNode) -> tuple[Launch, ...]:
        problem, dtype = problem_of(product), node.outputs[0].dtype
        tiling, lanes = self.settled(problem, node), lanes_of(problem, self.caps)
        columns = tiling.vectors * lanes
        chain = post_ops.epilogue(node, lanes, product.plane_axes)
        b_z = product.b.matrix
        defines = _types(product, node) | tiling.defines()
        defines |= {"VEC": lanes, "B_PACKED": packs(product)}
        defines |= {f"{n}_BATCH(z)": f"({m.batch})" for n, m in (("A", product.a), ("B", product.b)) if m.batch}
        second: Argument | None = None
        if packs(product):
            dense, value, acc = product.b.dense(product.k, product.n), product.b.type.value, accumulator(dtype)
            assert dense is not None
            assert value is not None
            order = (dense.shape, dense.strides, columns, acc)
            second = Constant(self.packed.get(value, order, partial(pack_columns, dense, columns, acc)))
            defines.pop("B_BATCH(z)", None)
            b_z = 0 if len(dense) == 1 else ceil_div(product.n, columns) * product.k * columns
        sizes = (product.m, product.n, product.k)
        steps = (product.a.row, product.a.column, product.b.row, product.a.matrix, b_z)
        work = (*tiling.work(ceil_div(product.m, tiling.rows), ceil_div(product.n, columns)), product.batch)
        arguments = (*product.values(second), Write(node.node.outputs[0]), *ints(*sizes, *steps, tiling.down), *chain.arguments)
        source = assemble("gemm_rows.cl", defines, chain.source)
        return (Launch("gemm_rows.cl", source, "gemm_rows", arguments, work, (1, 1, 1)),)


PACKED = " packed"


def packs(product: Product) -> bool:
    """Whether the second factor is a constant that can be laid out again."""
    value = product.b.type.value
    return value is not None and value.size in (product.k * product.n, product.batch * product.k * product.n)


def problem_of(product: Product) -> Problem:
    """The problem for which a tiling of gemm_rows.cl is chosen."""
    dtype, batch = product.a.type.dtype, product.batch
    key = f"gemm_rows {dtype} {batch}x{product.m}x{product.n}x{product.k} {'k' if product.a.column == 1 else 'm'}"
    key += PACKED if packs(product) else ""
    return Problem(key, batch, product.m, product.n, product.k, accumulator_bytes(dtype))


def pack_columns(matrices: NDArray[np.generic], columns: int, c_type: str) -> NDArray[np.generic]:
    """[Z, K, N] as [Z, ceil(N / columns), K, columns], padded with zeros, in float or double."""
    z, k, n = matrices.shape
    whole, rest = divmod(n, columns)
    packed = aligned_empty((z, whole + bool(rest), k, columns), np.float64 if c_type == "double" else np.float32)
    packed[:, :whole] = matrices[:, :, : n - rest].reshape(z, k, whole, columns).transpose(0, 2, 1, 3)
    if rest:
        packed[:, whole, :, :rest] = matrices[:, :, n - rest :]
        packed[:, whole, :, rest:] = 0
    return packed


class GemmDirect(GemmKernel):
    """One element a work item, for what the others refuse: gemm_direct.cl."""

    name = "gemm_direct"
    halves_by_load = True
    dtypes = frozenset(C_TYPES) - {DType.BOOL}

    def launches_of(self, product: Product, node: TypedNode) -> tuple[Launch, ...]:
        chain = post_ops.epilogue(node)
        defines, sizes = by_value({**_defines(product, node), **storage(node.outputs[0].dtype)}, _SIZES, ("M", "N"))
        source = assemble("gemm_direct.cl", defines, chain.source)
        work, local = spread(math.prod((product.m, product.n, product.batch)), self.caps)
        arguments = (*product.values(), Write(node.node.outputs[0]), *sizes, *chain.arguments)
        return (Launch("gemm_direct.cl", source, "gemm_direct", arguments, work, local),)


_SIZES = ("BATCH", "K", "A_M", "A_K", "A_Z", "B_K", "B_N", "B_Z")


def _defines(product: Product, node: TypedNode) -> dict[str, object]:
    a, b = product.a, product.b
    return _types(product, node) | {
        "BATCH": product.batch,
        "M": product.m,
        "N": product.n,
        "K": product.k,
        "A_M": a.row,
        "A_K": a.column,
        "A_Z": a.matrix,
        "A_BATCH(z)": f"({a.batch or '(z) * A_Z'})",
        "B_K": b.row,
        "B_N": b.column,
        "B_Z": b.matrix,
        "B_BATCH(z)": f"({b.batch or '(z) * B_Z'})",
    }


def _types(product: Product, node: TypedNode) -> dict[str, object]:
    dtype = node.outputs[0].dtype
    return {"T": STORED_TYPES[dtype], "ACC": accumulator(dtype), "HAS_BIAS": bool(product.bias)}
