"""Attention by NumPy, as the composition computes it: for nodes on the host, whose sizes are others in each run."""

from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.op import TensorType, evaluate_composition
from dovetail_ops_onnx._types import Array
from dovetail_ops_onnx.softmax import Softmax

if TYPE_CHECKING:
    from dovetail_ops_onnx.attention import Attention_23, Sizes

__all__ = ["attended", "reference"]

_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


def reference(op: "Attention_23", *inputs: Any) -> tuple[Array, ...]:
    """All outputs of the operator; inputs that are left out are None."""
    found = attended(op, *inputs)
    return evaluate_composition(op, inputs) if found is None else found


def attended(
    op: "Attention_23",
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    lengths: Array | None = None,
) -> tuple[Array, ...] | None:
    """All outputs of the operator; None for halves, mixed types, lengths and short masks, which its composition takes.

    Building that, with its constants for these sizes, takes longer than the operator: 900 us of 1,000.
    """
    dtype, given = q.dtype, [one for one in (k, v, past_key, past_value) if one is not None]
    s = op.sizes(*[None if one is None else TensorType.of(one) for one in (q, k, v, past_key, past_value)])  # type: ignore[arg-type]
    if dtype not in _FLOATS or any(one.dtype != dtype for one in given) or lengths is not None:
        return None
    if mask is not None and (mask.dtype not in (dtype, np.bool_) or mask.shape[-1:] != (s.total,)):
        return None
    if op.softmax_precision is not None and op.softmax_precision.numpy != dtype:
        return None
    with np.errstate(all="ignore"):
        return _attended(op, s, q, (k, v), (past_key, past_value), mask)


def _attended(
    op: "Attention_23",
    s: "Sizes",
    q: Array,
    kv: tuple[Array, Array],
    past: tuple[Array | None, Array | None],
    mask: Array | None,
) -> tuple[Array, ...]:
    queries = _heads(q, s.heads)
    k, v = (_heads(one, s.kv_heads) for one in kv)
    k, v = (one if old is None else np.concatenate((old, one), 2) for one, old in zip((k, v), past, strict=True))
    kind = q.dtype.type
    # The composition takes the root of the factor for each side; all keys are more numbers than the queries.
    scores = (_grouped(queries * kind(op.factor(s)), s, s.head) @ k.swapaxes(2, 3)).reshape(s.scores)
    stages = [scores]
    if op.softcap > 0:
        scores = np.tanh(scores * kind(1 / op.softcap)) * kind(op.softcap)
    stages.append(scores)
    bias = _bias(op, s, mask, q.dtype)
    scores = scores if bias is None else scores + bias
    weights = Softmax().compute(scores, -1)
    if bias is not None:  # a row without keys is zeros
        weights = np.where(np.maximum.reduce(bias, -1, keepdims=True, initial=-np.inf) == -np.inf, kind(0), weights)
    stages += [scores, weights]
    y: Array = (_grouped(weights, s, s.total) @ v).reshape(s.batch, s.heads, s.queries, s.v_head)
    if q.ndim == 3:
        y = y.swapaxes(1, 2).reshape(s.batch, s.queries, s.heads * s.v_head)
    return y, k, v, stages[op.qk_matmul_output_mode]


def _bias(op: "Attention_23", s: "Sizes", mask: Array | None, dtype: np.dtype[np.generic]) -> Array | None:
    """Mask and hidden positions as one value to add to the scores; None for neither."""
    hidden = None if op.sees_all(s) else np.where(op.visible(s), 0, -np.inf).astype(dtype)
    if mask is not None and mask.dtype == np.bool_:
        mask = np.where(mask, 0, -np.inf).astype(dtype)
    return mask if hidden is None else hidden if mask is None else mask + hidden


def _heads(x: Array, count: int) -> Array:
    """[batch, heads, length, head size]."""
    return x if x.ndim == 4 else x.reshape(*x.shape[:2], count, x.shape[2] // count).swapaxes(1, 2)


def _grouped(x: Array, s: "Sizes", last: int) -> Array:
    """The rows of all query heads that share a key-value head as one matrix."""
    return x if s.heads == s.kv_heads else x.reshape(s.batch, s.kv_heads, s.heads // s.kv_heads * s.queries, last)
