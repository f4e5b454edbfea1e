"""Shared by kernels for products of 8-bit integers: inputs, zero points, and the steps after the exact sums."""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.device import DType, Reason, Refusal, TensorType, TypedNode
from dovetail.locks import cached_property
from dovetail_gpu_opencl import post_ops
from dovetail_gpu_opencl.capabilities import Capabilities
from dovetail_gpu_opencl.launch import Argument, Null, Read
from dovetail_gpu_opencl.packed import PackedConstants
from dovetail_gpu_opencl.source import C_TYPES, storage

__all__ = [
    "EIGHT_BITS",
    "FACTORS",
    "ONE",
    "PLAIN_PORTS",
    "QUANTIZED_PORTS",
    "Lines",
    "Places",
    "Ports",
    "Result",
    "Weights",
    "given",
    "read",
    "result_of",
    "scales_refusal",
]

EIGHT_BITS = frozenset({DType.INT8, DType.UINT8})
T = TypeVar("T")
Whole = NDArray[np.integer]


@dataclass(frozen=True, slots=True)
class Ports:
    """Which inputs of an operator are what: the factors, their zero points, and for a quantized result the scales of both factors
    and of the result, its zero point, and the bias."""

    second: int
    first_zero: int
    second_zero: int
    scales: tuple[int, int, int] | None = None
    result_zero: int = -1
    bias: int = -1


FACTORS = 4
"""Inputs that are factors and zero points; sums that become float32 may have a scale of each factor behind them."""
PLAIN_PORTS = Ports(1, 2, 3)
QUANTIZED_PORTS = Ports(3, 2, 5, (1, 4, 6), 7, 8)


@dataclass(frozen=True, slots=True)
class Lines:
    """Rows or columns that may have separate parameters: `line` is the C expression of one of `count` in a matrix, `overall`
    that of one in all matrices."""

    line: str
    count: int
    overall: str

    def of(self, parameter: TensorType | None) -> str:
        """The index of the element of a parameter: the only one, or that of the line; what is shared by batches repeats."""
        if parameter is None or parameter.size == 1:
            return "0"
        return f"({self.line})" if parameter.size == self.count else f"(({self.overall}) % {parameter.size})"


ONE = Lines("0", 1, "0")


@dataclass(frozen=True, slots=True)
class Places:
    """Where `STORE_SUM` finds the parameters of the factors and of the result."""

    first: Lines
    second: Lines
    result: Lines


@dataclass(frozen=True, slots=True)
class Result:
    """Source, defines and arguments of what becomes of sums: `STORE_SUM`, `RESULT_ARGS`, and the chain of post-ops.

    `own` are the arguments RESULT_ARGS, `chain` those of post-ops, which are behind all others.
    """

    source: str
    defines: dict[str, object]
    own: tuple[Argument, ...]
    options: tuple[str, ...] = ()
    chain: tuple[Argument, ...] = ()

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """All, in order."""
        return (*self.own, *self.chain)


class Weights:
    """Constant weights in whole numbers less their zero points, channels of the result outermost.

    Only what plans have not yet made of them is computed. `key` names all that makes them of `source`.
    """

    def __init__(self, shared: PackedConstants, source: NDArray[Any], key: Hashable, make: Callable[[], Whole]) -> None:
        self._shared, self._source, self._key, self._make = shared, source, key, make

    @staticmethod
    def of(shared: PackedConstants, source: NDArray[Any], zero: NDArray[Any] | None, axis: int) -> "Weights":
        """Those whose channels of the result are along `axis`, with a zero point for all or one for each of these."""

        def make() -> Whole:
            whole = source.astype(np.int16)
            if zero is not None:
                whole -= zero.astype(np.int16).reshape([-1 if at == axis else 1 for at in range(whole.ndim)])
            return np.moveaxis(whole, axis, 0)

        return Weights(shared, source, (axis, b"" if zero is None else zero.tobytes()), make)

    @cached_property
    def _whole(self) -> Whole:
        return self._make()

    def packed(self, order: Hashable, pack: Callable[[Whole], NDArray[Any]]) -> NDArray[Any]:
        """The weights as `pack` brings them into this order, now or for a plan that is still there."""
        return self._shared.get(self._source, (order, self._key), lambda: pack(self._whole))

    def fact(self, name: str, find: Callable[[Whole], T]) -> T:
        """Something small that `find` finds out of them, now or before."""
        return self._shared.fact(self._source, (name, self._key), lambda: find(self._whole))


def given(node: TypedNode, index: int) -> TensorType | None:
    """The type of an input; None when it is left out."""
    return node.inputs[index] if 0 <= index < len(node.inputs) else None


def read(node: TypedNode, index: int) -> Argument:
    """The buffer of an input, NULL when it is left out."""
    return Null() if given(node, index) is None else Read(node.node.inputs[index])


def scales_refusal(node: TypedNode, ports: Ports) -> Refusal | None:
    """Why the kernels do not multiply sums in float32 by the scales of both factors behind the zero points: they are several."""
    scales = () if ports.scales else node.inputs[FACTORS:]
    if all(tensor is not None and tensor.size == 1 for tensor in scales):
        return None
    return Refusal(Reason.SHAPE, f"the scales {', '.join(map(str, scales))}; accepted: one of each factor")


def result_of(node: TypedNode, ports: Ports, caps: Capabilities, places: Places, vec: int = 1) -> Result:
    """The steps after the sums of a node: store them unchanged, convert them to float with a chain, or quantize them.

    With `vec` there is `STORE_SUMS(o, sums, n)` besides, for vectors of so many sums, where the result is not quantized.

    Quantized results are computed in double, as the operators' definition is; in float where the device has no doubles, so that
    quotients next to a half may be one off.
    """
    dst = node.outputs[0].dtype
    defines: dict[str, object] = {"T": C_TYPES[dst], "RESULT_ARGS": ""}
    if ports.scales is None:
        chain, times, own = post_ops.epilogue(node, vec), "", tuple[Argument, ...]()
        if len(node.inputs) > FACTORS:
            times, own = " * (a_scale[0] * b_scale[0])", (read(node, FACTORS), read(node, FACTORS + 1))
            defines["RESULT_ARGS"] = ", __global const float* restrict a_scale, __global const float* restrict b_scale"
        defines["STORE_SUM(o, s, z, m, n)"] = f"(dst[o] = {f'POST((float)(s){times}, o)' if dst is DType.FLOAT32 else '(s)'})"
        if vec > 1:
            real = f"POST_V(convert_float{vec}(sums){times}, o)" if dst is DType.FLOAT32 else "(sums)"
            defines["STORE_SUMS(o, sums, n)"] = f"(((__global PACKED_T*)(dst + (o)))->v = {real})"
        return Result(chain.source, defines, own, chain=chain.arguments)
    scales, zero = [given(node, index) for index in ports.scales], given(node, ports.result_zero)
    assert scales[0] is not None
    a, b, y = (
        f"LOAD_S({n}_scale, {p.of(t)})"
        for n, t, p in zip("aby", scales, (places.first, places.second, places.result), strict=True)
    )
    defines |= {
        **storage(scales[0].dtype, "S"),
        "REAL": "double" if caps.fp64 else "float",
        "RESULT_ARGS": "".join(f", __global const S* restrict {n}_scale" for n in "aby") + ", __global const T* restrict y_zero",
        "STORE_SUM(o, s, z, m, n)": f"(dst[o] = quantized(s, {a}, {b}, {y}, y_zero[{places.result.of(zero)}]))",
    }
    bounds = np.iinfo(dst.numpy)
    source = (
        "static T quantized(int s, REAL a, REAL b, REAL y, T zero) {\n"
        "  const REAL real = rint((REAL)s * (a * b) / y) + (REAL)zero;\n"
        f"  return (T)clamp(real == real ? real : (REAL)0, (REAL)({bounds.min}), (REAL){bounds.max});\n}}\n"
    )
    return Result(source, defines, tuple(read(node, index) for index in (*ports.scales, ports.result_zero)))
