"""Attention: batched matrix products on views of the heads, with the sums of the softmax divided out at the end."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from dovetail.device import Reason, Refusal, TypedNode
from dovetail_cpu_numpy.kernel import BLAS, Call, NumpyKernel, refuse_dtypes
from dovetail_cpu_numpy.kernels._softmax import are_usual
from dovetail_cpu_numpy.launch import Array, Launch, Spec, constant, copy, into
from dovetail_ops_onnx.attention import Attention_23, Sizes

_MASK, _PAST_KEY, _LENGTHS = 3, 4, 6
"""Inputs after Q, K and V: mask, past key, past value, lengths."""


class Heads(NumpyKernel):
    """Q, K, V and Y are views [batch, heads, length, size] of the values in memory, which BLAS reads and writes by strides.

    Query heads that share a key-value head broadcast over it. With a past, or where the caches are outputs, keys and values are
    copied behind each other.
    """

    name = "heads"

    def refuse(self, node: TypedNode) -> Refusal | None:
        op = _op(node)
        if len(node.node.outputs) > 3 and node.node.outputs[3]:
            return Refusal(Reason.ATTRIBUTE, "the scores are requested")
        if _has(node, _LENGTHS):
            return Refusal(Reason.ATTRIBUTE, "lengths, for which the operator has a kernel")
        if not node.node.outputs[0]:
            return Refusal(Reason.ATTRIBUTE, "Y is left out")
        if op.softmax_precision not in (None, node.outputs[0].dtype):
            return Refusal(Reason.ATTRIBUTE, "softmax_precision; accepted: none, the type of Q")
        numbers = [t for t in node.inputs[:_LENGTHS] if t is not None]
        if len({t.dtype for t in numbers}) > 1:
            return Refusal(Reason.DTYPE, "inputs of several types")
        mask, s = node.optional(_MASK), _sizes(node)
        if mask is not None and (not mask.rank or mask.dims[-1] != s.total):
            return Refusal(Reason.SHAPE, f"mask {mask}; accepted: [..., {s.total}]")
        return refuse_dtypes(numbers, BLAS)

    def scratch(self, node: TypedNode) -> Sequence[Spec]:
        s, dtype = _sizes(node), node.outputs[0].dtype.numpy
        rows = (s.batch, s.heads, s.queries)
        caches = [((s.batch, s.kv_heads, s.total, size), dtype) for size in (s.head, s.v_head)] if _is_cached(node) else []
        return (((*rows, s.head), dtype), ((*rows, s.total), dtype), ((*rows, 1), dtype), *caches)

    def prepare(self, node: TypedNode) -> Any:
        """The mask of positions that are hidden, as numbers to add; None where all are visible."""
        s, op = _sizes(node), _op(node)
        return None if op.sees_all(s) else np.where(op.visible(s), 0, -np.inf).astype(node.outputs[0].dtype.numpy)

    def bind(self, call: Call) -> Iterable[Launch]:
        s, dst, op = _sizes(call.node), call.outputs[0], _op(call.node)
        scaled, scores, row, *caches = call.scratch
        keys, values = (_heads(call.input(index), s.kv_heads) for index in (1, 2))
        if caches:
            present = iter(call.outputs[1:])
            names = (*call.node.node.outputs, "", "")[1:3]
            caches = [next(present) if name else own for name, own in zip(names, caches, strict=True)]
            for index, new, cache in ((_PAST_KEY, keys, caches[0]), (_PAST_KEY + 1, values, caches[1])):
                if s.past:
                    yield copy(cache[:, :, : s.past], call.input(index))
                yield copy(cache[:, :, s.past :], new)
            keys, values = caches
        if not dst.size:
            return
        yield into(np.multiply, _heads(call.input(0), s.heads), constant(op.factor(s), scaled), out=scaled)
        yield _exponentials([*_scores(call, s, scaled, keys, scores)], scores, row)
        y = _heads(dst, s.heads)
        yield partial(np.matmul, _grouped(scores, s), _grouped(values, s), _grouped(y, s))
        yield into(np.divide, y, row, out=y)


def _scores(call: Call, s: Sizes, scaled: Array, keys: Array, scores: Array) -> Iterator[Launch]:
    """scores = scaled @ keys, through the soft cap, with masks added."""
    cap = _op(call.node).softcap
    yield partial(np.matmul, _grouped(scaled, s), _grouped(keys, s).swapaxes(-1, -2), _grouped(scores, s))
    if cap > 0:
        yield into(np.divide, scores, constant(cap, scores), out=scores)
        yield into(np.tanh, scores, out=scores)
        yield into(np.multiply, scores, constant(cap, scores), out=scores)
    mask = call.optional(_MASK)
    for bias in (mask, call.state):
        if bias is not None:
            yield into(np.add, scores, bias, out=scores)


def _exponentials(make: Sequence[Launch], scores: Array, row: Array) -> Launch:
    """Makes the scores and replaces them by their exponentials, with the sums in `row`; made again where these need the shift."""
    least, tiny = (constant(float(value), row) for value in (np.finfo(row.dtype).min, np.finfo(row.dtype).tiny))
    by_row, sums, ones = scores.reshape(row.size, scores.shape[3]), row.reshape(-1), np.ones(scores.shape[3], scores.dtype)

    def run() -> None:
        for launch in make:
            launch()
        np.exp(scores, scores)
        np.matmul(by_row, ones, sums)
        if are_usual(sums):
            return
        for launch in make:
            launch()
        if len(ones):
            np.maximum.reduce(scores, 3, None, row, keepdims=True)
            # A row of minus infinities has no greatest number to subtract: with the least one it becomes zeros.
            np.maximum(row, least, out=row)
            np.subtract(scores, row, scores)
        np.exp(scores, scores)
        np.matmul(by_row, ones, sums)
        np.maximum(row, tiny, out=row)

    return run


def _has(node: TypedNode, index: int) -> bool:
    return len(node.inputs) > index and node.inputs[index] is not None


def _is_cached(node: TypedNode) -> bool:
    return _has(node, _PAST_KEY) or any(node.node.outputs[1:3])


def _op(node: TypedNode) -> Attention_23:
    assert isinstance(node.op, Attention_23)
    return node.op


def _sizes(node: TypedNode) -> Sizes:
    q, k, v = (node.given(index) for index in range(3))
    return _op(node).sizes(q, k, v, *(node.inputs[_PAST_KEY:_LENGTHS] if _has(node, _PAST_KEY) else ()))


def _heads(x: Array, count: int) -> Array:
    """[batch, heads, length, size] as a view; [batch, length, heads * size] is split."""
    return x if x.ndim == 4 else x.reshape(*x.shape[:2], count, x.shape[2] // count).swapaxes(1, 2)


def _grouped(x: Array, s: Sizes) -> Array:
    """[batch, key-value heads, query heads that share one, length, size] as a view."""
    if s.heads == s.kv_heads:
        return x
    shape = (x.shape[0], s.kv_heads, x.shape[1] // s.kv_heads, *x.shape[2:])
    strides = (x.strides[0], x.strides[1] * shape[2], *x.strides[1:])
    return np.lib.stride_tricks.as_strided(x, shape, strides)


KERNELS = (Heads(),)
