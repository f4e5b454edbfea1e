"""Exact matrix products of 8-bit integers: by rows on CPUs, directly elsewhere."""

import math
from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray

from dovetail.device import DType, Reason, Refusal, TypedNode
from dovetail_gpu_opencl.kernel import CLKernel, ceil_div, spread
from dovetail_gpu_opencl.kernels._gemm import Product
from dovetail_gpu_opencl.kernels._integer import EIGHT_BITS, Lines, Places, Ports, Result, given, read, result_of
from dovetail_gpu_opencl.kernels.mat_mul import product_of
from dovetail_gpu_opencl.launch import Argument, Constant, Launch, Null, Read, Write, ints
from dovetail_gpu_opencl.source import C_TYPES, assemble

__all__ = ["IntegerDirect", "IntegerRows"]


class IntegerGemm(CLKernel):
    """What both kernels share."""

    half_by_load = True
    dtypes = EIGHT_BITS | {DType.INT32, DType.FLOAT32, DType.FLOAT16}

    def __init__(self, ports: Ports) -> None:
        self.ports = ports

    def check(self, node: TypedNode) -> Refusal | None:
        first, second = node.inputs[0], given(node, self.ports.second)
        assert first is not None
        assert second is not None
        if not {first.dtype, second.dtype} <= EIGHT_BITS:
            return Refusal(Reason.DTYPE, f"{first} by {second}; accepted: int8 and uint8")
        return None

    def product(self, node: TypedNode) -> Product:
        """The sizes and the batches."""
        found = product_of(node, self.ports.second)
        assert isinstance(found, Product)
        return found

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        product = self.product(node)
        if 0 in (product.m, product.n, product.batch):
            return ()
        rows, columns = lines(product)
        places = Places(rows, columns, Lines("m", product.m, "(z) * M + (m)"))
        return (self.launch(node, product, result_of(node, self.ports, self.caps, places, self.vec)),)

    @property
    def vec(self) -> int:
        """Results that are stored as one vector."""
        return 1

    def defines(self, node: TypedNode, product: Product, result: Result) -> dict[str, object]:
        """Types, batches and zero points."""
        left, right = (given(node, index) for index in (self.ports.first_zero, self.ports.second_zero))
        rows, columns = lines(product)
        return {
            **result.defines,
            "A": C_TYPES[product.a.type.dtype],
            "B": C_TYPES[product.b.type.dtype],
            "A_BATCH(z)": f"({product.a.batch or '(z) * (M * K)'})",
            "B_BATCH(z)": f"({product.b.batch or '(z) * (K * N)'})",
            "A_ZERO(z, m)": "0" if left is None else f"a_zero[{rows.of(left)}]",
            "B_ZERO(z, n)": "0" if right is None else f"b_zero[{columns.of(right)}]",
        }

    @abstractmethod
    def launch(self, node: TypedNode, product: Product, result: Result) -> Launch:
        """The launch of a product that is not empty."""


def lines(product: Product) -> tuple[Lines, Lines]:
    """The rows of the first factor and the columns of the second; a first element over K counts those of the matrices before."""
    dense = product.b.batch or "(z) * (K * N)"
    return (
        Lines("m", product.m, "A_BATCH(z) / max(K, 1) + (m)"),
        Lines("n", product.n, f"({dense}) / max(K, 1) + (n)"),
    )


class IntegerRows(IntegerGemm):
    """For CPUs: gemm_integer_rows.cl."""

    name = "gemm_integer_rows"
    rows = 6

    def check(self, node: TypedNode) -> Refusal | None:
        if self.caps.kind != "CPU":
            return Refusal(Reason.CAPABILITY, "made for CPUs")
        refusal = super().check(node)
        if refusal is not None or self._packed(node) is not None:
            return refusal
        zero = given(node, self.ports.second_zero)
        if self.product(node).n < self._columns:
            return Refusal(Reason.LAYOUT, "the second factor is no constant, and narrow")
        if zero is not None and zero.size != 1:
            return Refusal(Reason.ATTRIBUTE, "the second factor has several zero points, and is no constant or they are none")
        return None

    def launch(self, node: TypedNode, product: Product, result: Result) -> Launch:
        packed, columns = self._packed(node), self._columns
        defines = self.defines(node, product, result) | {"ROWS": self.rows, "VEC": columns // 2, "B_PACKED": packed is not None}
        defines["ZERO"] = defines["B"]
        second: Argument = Read(product.b.name)
        if packed is not None:
            blocks = pack_columns(packed, columns)
            second = Constant(blocks)
            defines |= {"B": "float", "B_ZERO(z, n)": "0"}
            defines["B_BATCH(z)"] = "0" if len(blocks) == 1 else "(z) * (K * COLS * ((N + COLS - 1) / COLS))"
        names = node.node.inputs
        zeros = (read(node, self.ports.first_zero), Null() if packed is not None else read(node, self.ports.second_zero))
        sizes = ints(product.m, product.n, product.k)
        arguments = (Read(names[0]), second, *zeros, Write(node.node.outputs[0]), *sizes, *result.arguments)
        work = (ceil_div(product.n, columns), ceil_div(product.m, self.rows), product.batch)
        source = assemble("gemm_integer_rows.cl", defines, result.source)
        return Launch("gemm_integer_rows.cl", source, self.name, arguments, work, (1, 1, 1))

    @property
    def vec(self) -> int:
        return self.caps.lanes("float")

    @property
    def _columns(self) -> int:
        return 2 * self.vec

    def _packed(self, node: TypedNode) -> NDArray[np.integer] | None:
        """The second factor [Z, K, N] less its zero points, where both are constants and it is not repeated for batches."""
        second, zero = (given(node, index) for index in (self.ports.second, self.ports.second_zero))
        product = self.product(node)
        assert second is not None
        if second.value is None or not product.k or (zero is not None and zero.value is None):
            return None
        if second.value.size not in (product.k * product.n, product.batch * product.k * product.n):
            return None
        whole = second.value.astype(np.int16)
        if zero is not None and zero.value is not None:
            whole = whole - zero.value.astype(np.int16)
        return whole.reshape(-1, product.k, product.n)


def pack_columns(matrices: NDArray[np.integer], columns: int) -> NDArray[np.float32]:
    """[Z, K, N] as [Z, ceil(N / columns), K, columns], padded with zeros, in float32: nothing is left to convert."""
    z, k, n = matrices.shape
    blocks = ceil_div(n, columns)
    padded = np.zeros((z, k, blocks * columns), np.float32)
    padded[:, :, :n] = matrices
    return np.ascontiguousarray(padded.reshape(z, k, blocks, columns).transpose(0, 2, 1, 3))


class IntegerDirect(IntegerGemm):
    """One element a work item: gemm_integer.cl."""

    name = "gemm_integer"

    def launch(self, node: TypedNode, product: Product, result: Result) -> Launch:
        source = assemble("gemm_integer.cl", self.defines(node, product, result), result.source)
        work, local = spread(math.prod((product.m, product.n, product.batch)), self.caps)
        sizes = ints(product.batch, product.m, product.n, product.k)
        zeros = (read(node, self.ports.first_zero), read(node, self.ports.second_zero))
        factors = (Read(product.a.name), Read(product.b.name))
        arguments = (*factors, *zeros, Write(node.node.outputs[0]), *sizes, *result.arguments)
        return Launch("gemm_integer.cl", source, self.name, arguments, work, local)
