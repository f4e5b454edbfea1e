"""Attention: batched matrix products on views of the heads, with the sums of the softmax divided out at the end."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from dovetail.device import Reason, Refusal, TensorType, TypedNode
from dovetail_cpu_numpy.kernel import BLAS, Call, NumpyKernel, refuse_dtypes
from dovetail_cpu_numpy.launch import Array, Launch, Spec, constant, into
from dovetail_ops_onnx.attention import Attention_23, Sizes

_MASK = 3
"""Mask, past key, past value and lengths come after Q, K and V."""


class Heads(NumpyKernel):
    """Q, K, V and Y are views [batch, heads, length, size] of the values in memory, which BLAS reads and writes by strides.

    Query heads that share a key-value head broadcast over it.
    """

    name = "heads"

    def refuse(self, node: TypedNode) -> Refusal | None:
        op = _op(node)
        if node.node.writes != node.node.outputs[:1]:
            return Refusal(Reason.ATTRIBUTE, "the cache or the scores are requested")
        if any(t is not None for t in node.inputs[_MASK + 1 :]):
            return Refusal(Reason.OPERATOR, "a cache or lengths of samples; accepted: Q, K, V and a mask")
        if op.softcap > 0 or op.softmax_precision not in (None, node.outputs[0].dtype):
            return Refusal(Reason.ATTRIBUTE, "softcap or softmax_precision; accepted: none, the type of Q")
        if len({t.dtype for t in node.inputs if t is not None}) > 1:
            return Refusal(Reason.DTYPE, "inputs of several types")
        mask, s = _mask(node), _sizes(node)
        if mask is not None and (not mask.rank or mask.dims[-1] != s.total):
            return Refusal(Reason.SHAPE, f"mask {mask}; accepted: [..., {s.total}]")
        return refuse_dtypes(node.inputs, BLAS)

    def scratch(self, node: TypedNode) -> Sequence[Spec]:
        s, dtype = _sizes(node), node.outputs[0].dtype.numpy
        rows = (s.batch, s.heads, s.queries)
        return (((*rows, s.head), dtype), ((*rows, s.total), dtype), ((*rows, 1), dtype))

    def prepare(self, node: TypedNode) -> Any:
        """The mask of positions that are hidden, as numbers to add; None where all are visible."""
        s, op = _sizes(node), _op(node)
        seen = op.visible(s)
        return None if seen.all() else np.where(seen, 0, -np.inf).astype(node.outputs[0].dtype.numpy)

    def bind(self, call: Call) -> Iterable[Launch]:
        s, (dst,) = _sizes(call.node), call.outputs
        if not dst.size:
            return
        scaled, scores, row = call.scratch
        yield into(np.multiply, _heads(call.input(0), s.heads), constant(_op(call.node).factor(s), scaled), out=scaled)
        keys, values = (_heads(call.input(index), s.kv_heads) for index in (1, 2))
        yield partial(np.matmul, _grouped(scaled, s), _grouped(keys, s).swapaxes(-1, -2), _grouped(scores, s))
        mask = call.inputs[_MASK] if len(call.inputs) > _MASK else None
        for bias in (mask, call.state):
            if bias is not None:
                yield into(np.add, scores, bias, out=scores)
        if s.total:
            yield partial(np.maximum.reduce, scores, 3, None, row, keepdims=True)
            # A row of minus infinities has no greatest number to subtract: with the least one it becomes zeros.
            yield into(np.maximum, row, constant(np.finfo(row.dtype).min, row), out=row)
            yield into(np.subtract, scores, row, out=scores)
        yield into(np.exp, scores, out=scores)
        yield partial(np.add.reduce, scores, 3, None, row, keepdims=True)
        yield into(np.maximum, row, constant(np.finfo(row.dtype).tiny, row), out=row)
        y = _heads(dst, s.heads)
        yield partial(np.matmul, _grouped(scores, s), _grouped(values, s), _grouped(y, s))
        yield into(np.divide, y, row, out=y)


def _op(node: TypedNode) -> Attention_23:
    assert isinstance(node.op, Attention_23)
    return node.op


def _sizes(node: TypedNode) -> Sizes:
    q, k, v = node.inputs[:3]
    assert q is not None
    assert k is not None
    assert v is not None
    return _op(node).sizes(q, k, v)


def _mask(node: TypedNode) -> TensorType | None:
    return node.inputs[_MASK] if len(node.inputs) > _MASK else None


def _heads(x: Array, count: int) -> Array:
    """[batch, heads, length, size] as a view; [batch, length, heads * size] is split."""
    return x if x.ndim == 4 else x.reshape(*x.shape[:2], count, -1).swapaxes(1, 2)


def _grouped(x: Array, s: Sizes) -> Array:
    """[batch, key-value heads, query heads that share one, length, size] as a view."""
    if s.heads == s.kv_heads:
        return x
    shape = (x.shape[0], s.kv_heads, x.shape[1] // s.kv_heads, *x.shape[2:])
    strides = (x.strides[0], x.strides[1] * shape[2], *x.strides[1:])
    return np.lib.stride_tricks.as_strided(x, shape, strides)


KERNELS = (Heads(),)
