"""Gemm."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from dovetail.dataclass import dataclass
from dovetail.device import Binary, Refusal, TypedNode
from dovetail_cpu_numpy.kernel import Call, NumpyKernel, refuse_dtypes
from dovetail_cpu_numpy.launch import Array, Launch, Spec, constant, into
from dovetail_cpu_numpy.post_ops import Step
from dovetail_cpu_numpy.shared import Shared
from dovetail_ops_onnx.gemm import Gemm

FEW_ROWS = 128
"""Rows of A up to which a constant B is turned beforehand. BLAS takes three times as long from B's transposed view with 2 to 8
rows, a tenth longer with 128, and as long with one, which needs no copy of B (OpenBLAS, one thread)."""


@dataclass(frozen=True, slots=True)
class _Prepared:
    """beta * C where C is a constant and beta is not 1, and a constant B turned beforehand; None for neither."""

    addend: Array | None
    b: Shared[Array] | None


class Matmul(NumpyKernel):
    """`numpy.matmul` on transposed views, scaled by alpha, plus beta * C."""

    name = "matmul"

    def refuse(self, node: TypedNode) -> Refusal | None:
        return refuse_dtypes(node.inputs)

    def scratch(self, node: TypedNode) -> Sequence[Spec]:
        scaled = _scaled_addend(node)
        return ((scaled.dims, scaled.dtype.numpy),) if scaled is not None and scaled.value is None else ()

    def prepare(self, node: TypedNode) -> "_Prepared":
        """The state that depends only on constants."""
        scaled, b = _scaled_addend(node), node.given(1)
        addend = None if scaled is None or scaled.value is None else scaled.value * constant(_beta(node), scaled.value)
        if b.value is None or not _op(node).transB or not 1 < node.outputs[0].dims[0] <= FEW_ROWS:
            return _Prepared(addend, None)
        return _Prepared(addend, Shared.of([b.value], partial(np.ascontiguousarray, b.value.swapaxes(-1, -2)), "turned"))

    def bind(self, call: Call) -> Iterable[Launch]:
        op, a, b, (dst,), state = _op(call.node), call.input(0), call.input(1), call.outputs, call.state
        b = state.b.value if state.b is not None else b.T if op.transB else b
        yield partial(np.matmul, a.T if op.transA else a, b, dst)
        if op.alpha != 1:
            yield into(np.multiply, dst, constant(op.alpha, dst), out=dst)
        if call.scratch:
            yield into(np.multiply, call.input(2), constant(op.beta, dst), out=call.scratch[0])

    def epilogue(self, call: Call) -> Iterable[Step]:
        addend: Array | None = call.inputs[2] if len(call.inputs) > 2 and _beta(call.node) else None
        if call.state.addend is not None:
            addend = call.state.addend
        elif call.scratch:
            addend = call.scratch[0]
        return () if addend is None else ((Binary("add", "C"), addend),)


def _op(node: TypedNode) -> Gemm:
    assert isinstance(node.op, Gemm)
    return node.op


def _beta(node: TypedNode) -> float:
    return _op(node).beta


def _scaled_addend(node: TypedNode) -> Any:
    """The type of C when it has to be multiplied by beta, else None."""
    return node.inputs[2] if len(node.inputs) > 2 and _beta(node) not in (0, 1) else None


KERNELS = (Matmul(),)
