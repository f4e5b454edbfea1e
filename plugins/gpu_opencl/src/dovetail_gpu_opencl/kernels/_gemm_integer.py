"""Exact matrix products of 8-bit integers: by rows on CPUs, directly elsewhere."""

import math
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.device import DType, Reason, Refusal, TensorType, TypedNode
from dovetail_gpu_opencl.kernel import CLKernel, ceil_div, round_up, spread
from dovetail_gpu_opencl.kernels._gemm import Product
from dovetail_gpu_opencl.kernels._integer import EIGHT_BITS, Lines, Places, Ports, Weights, given, read, result_of, scales_refusal
from dovetail_gpu_opencl.kernels._integer_rows import COLUMNS, VECTOR, Sums, pack_on_device, packed, source_of
from dovetail_gpu_opencl.kernels.mat_mul import product_of
from dovetail_gpu_opencl.launch import Argument, Launch, Null, Read, Scratch, Write, ints
from dovetail_gpu_opencl.source import C_TYPES, assemble

__all__ = ["DIRECT", "IntegerDirect", "IntegerGemm", "IntegerRows"]


class IntegerGemm(CLKernel):
    """The base of both kernels."""

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
        return scales_refusal(node, self.ports)

    def product(self, node: TypedNode) -> Product:
        """The sizes and the batches."""
        found = product_of(node, self.ports.second)
        assert isinstance(found, Product)
        return found

    def zeros(self, node: TypedNode) -> tuple[TensorType | None, TensorType | None]:
        """The zero points of both factors."""
        return given(node, self.ports.first_zero), given(node, self.ports.second_zero)


@dataclass(frozen=True, slots=True)
class Names:
    """The names of the sizes of a product in a kernel file."""

    m: str = "M"
    n: str = "N"
    k: str = "K"

    def first(self, product: Product) -> str:
        """The first element of matrix z of the first factor."""
        return f"({product.a.batch or f'(z) * ({self.m} * {self.k})'})"

    def second(self, product: Product) -> str:
        """The first element of matrix z of the second factor."""
        return f"({product.b.batch or f'(z) * ({self.k} * {self.n})'})"

    def rows(self, product: Product) -> Lines:
        """The rows of the first factor; a first element over k counts those of the matrices before."""
        return Lines("m", product.m, f"{self.first(product)} / max({self.k}, 1) + (m)")

    def columns(self, product: Product) -> Lines:
        """The columns of the second factor, counted likewise."""
        return Lines("n", product.n, f"{self.second(product)} / max({self.k}, 1) + (n)")

    def places(self, product: Product) -> Places:
        """Where the parameters of factors and result are."""
        return Places(self.rows(product), self.columns(product), Lines("m", product.m, f"(z) * {self.m} + (m)"))


DIRECT, IN_ROWS = Names(), Names("OW", "M", "C")


class IntegerRows(IntegerGemm):
    """For CPUs: integer_rows.cl. A second factor that is not constant is packed in every run."""

    name = "gemm_integer_rows"
    by_content = False

    def check(self, node: TypedNode) -> Refusal | None:
        return Refusal(Reason.CAPABILITY, "made for CPUs") if self.caps.kind != "CPU" else super().check(node)

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        product, names, (zero, own) = self.product(node), node.node.inputs, self.zeros(node)
        if 0 in (product.m, product.n, product.batch):
            return ()
        count, each = self._constants(node, product), ceil_div(product.n, COLUMNS) * COLUMNS * round_up(product.k, 2)
        scratch = Scratch(f"scratch:{node.name}:0", 2 * max(1, product.batch * each))
        wei: Argument = scratch
        packing: dict[str, object] = {"W": "short"}
        if count:
            wei, packing = packed(self._weights(node, product), (count * product.n, product.k, 1, 1), self.caps, count)
        defines = {
            "X": C_TYPES[product.a.type.dtype],
            **packing,
            "B": C_TYPES[product.b.type.dtype],
            "A_BATCH(z)": IN_ROWS.first(product),
            "B_BATCH(z)": DIRECT.second(product),
            "WEI_AT(z)": "0" if count == 1 else "(z)",
            "X_ZERO(z, m)": "0" if zero is None else f"x_zero[{IN_ROWS.rows(product).of(zero)}]",
            "B_ZERO(z, n)": "0" if own is None else f"b_zero[{DIRECT.columns(product).of(own)}]",
        }
        result = result_of(node, self.ports, self.caps, IN_ROWS.places(product), VECTOR)
        sums = Sums.of_product(product.m, product.n, product.k, product.batch)
        values = (Read(names[0]), wei, read(node, self.ports.first_zero), Null(), Write(node.node.outputs[0]))
        main = sums.launch(self.caps.compute_units, defines, result, *values)
        if count or not product.k:
            return (main,)
        second = Read(product.b.name), read(node, self.ports.second_zero)
        return (pack_on_device(source_of(defines, result), *second, scratch, product.batch, product.k, product.n), main)

    def _constants(self, node: TypedNode, product: Product) -> int:
        """How many constant matrices the second factor has; 0 where not it and its zero points are constants, or some repeat."""
        second, (_, zero) = node.given(self.ports.second), self.zeros(node)
        if second.value is None or (zero is not None and zero.value is None) or not product.k:
            return 0
        count, rest = divmod(second.size, product.k * product.n)
        return count if not rest and count in (1, product.batch) else 0

    def _weights(self, node: TypedNode, product: Product) -> Weights:
        """The columns of all matrices, where there are `_constants`."""
        value, zero = node.given(self.ports.second).value, self.zeros(node)[1]
        assert value is not None
        own = None if zero is None else zero.value

        key = ("columns", b"" if own is None else (own.tobytes(), own.shape))
        return Weights(self.packed, value, key, partial(_columns, value, own, product.k, product.n))


def _columns(value: NDArray[Any], zero: NDArray[Any] | None, k: int, n: int) -> NDArray[np.int16]:
    """Matrices [..., k, n] less their zero points, with columns outermost."""
    whole = value.astype(np.int16)
    if zero is not None:
        whole = whole - zero.astype(np.int16)
    return whole.reshape(-1, k, n).swapaxes(1, 2)


class IntegerDirect(IntegerGemm):
    """One element a work item: gemm_integer.cl."""

    name = "gemm_integer"

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        product, (left, right) = self.product(node), self.zeros(node)
        if 0 in (product.m, product.n, product.batch):
            return ()
        result = result_of(node, self.ports, self.caps, DIRECT.places(product))
        defines = {
            **result.defines,
            "A": C_TYPES[product.a.type.dtype],
            "B": C_TYPES[product.b.type.dtype],
            "A_BATCH(z)": DIRECT.first(product),
            "B_BATCH(z)": DIRECT.second(product),
            "A_ZERO(z, m)": "0" if left is None else f"a_zero[{DIRECT.rows(product).of(left)}]",
            "B_ZERO(z, n)": "0" if right is None else f"b_zero[{DIRECT.columns(product).of(right)}]",
        }
        source = assemble("gemm_integer.cl", defines, result.source)
        work, local = spread(math.prod((product.m, product.n, product.batch)), self.caps)
        sizes = ints(product.batch, product.m, product.n, product.k)
        zeros = (read(node, self.ports.first_zero), read(node, self.ports.second_zero))
        factors = (Read(product.a.name), Read(product.b.name))
        arguments = (*factors, *zeros, Write(node.node.outputs[0]), *sizes, *result.arguments)
        return (Launch("gemm_integer.cl", source, self.name, arguments, work, local),)
