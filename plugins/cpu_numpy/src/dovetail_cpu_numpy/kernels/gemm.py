"""Gemm."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from dovetail.device import Binary, Refusal, TypedNode
from dovetail.ops.gemm import Gemm
from dovetail_cpu_numpy.kernel import Call, NumpyKernel, refuse_dtypes
from dovetail_cpu_numpy.launch import Array, Launch, Spec, constant, into
from dovetail_cpu_numpy.post_ops import Step


class Matmul(NumpyKernel):
    """`numpy.matmul` on transposed views, scaled by alpha, plus beta * C."""

    name = "matmul"

    def refuse(self, node: TypedNode) -> Refusal | None:
        return refuse_dtypes(node.inputs)

    def scratch(self, node: TypedNode) -> Sequence[Spec]:
        scaled = _scaled_addend(node)
        return ((scaled.dims, scaled.dtype.numpy),) if scaled is not None and scaled.value is None else ()

    def prepare(self, node: TypedNode) -> Any:
        """beta * C where C is a constant and beta is not 1."""
        scaled = _scaled_addend(node)
        return None if scaled is None or scaled.value is None else scaled.value * constant(_beta(node), scaled.value)

    def bind(self, call: Call) -> Iterable[Launch]:
        op, a, b, (dst,) = _op(call.node), call.input(0), call.input(1), call.outputs
        yield partial(np.matmul, a.T if op.transA else a, b.T if op.transB else b, dst)
        if op.alpha != 1:
            yield into(np.multiply, dst, constant(op.alpha, dst), out=dst)
        if call.scratch:
            yield into(np.multiply, call.input(2), constant(op.beta, dst), out=call.scratch[0])

    def epilogue(self, call: Call) -> Iterable[Step]:
        addend: Array | None = call.inputs[2] if len(call.inputs) > 2 else None
        if call.state is not None:
            addend = call.state
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
    return node.inputs[2] if len(node.inputs) > 2 and _beta(node) != 1 else None


KERNELS = (Matmul(),)
