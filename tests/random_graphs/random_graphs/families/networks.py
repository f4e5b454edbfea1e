"""Matrix products, normalizations and attention."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from random_graphs.builder import Builder, Draft, makes


@makes("MatMul")
def mat_mul(b: Builder) -> Draft:
    name = b.value(b.types(), (1, 2, 3, 4))
    shape = b.array(name).shape
    batch = [1 if b.chance(0.4) else d for d in shape[:-2]][b.integer(0, 2) :]
    other = (shape[-1],) if b.chance(0.2) else (*batch, shape[-1], b.integer(1, 5))
    return Draft([name, b.like(name, other)])


@makes("Gemm")
def gemm(b: Builder) -> Draft:
    name = b.value(b.types(), (2,))
    turn_a, turn_b, columns = b.integer(0, 1), b.integer(0, 1), b.integer(1, 5)
    rows, inner = b.array(name).shape[:: -1 if turn_a else 1]
    other = b.like(name, (columns, inner) if turn_b else (inner, columns))
    bias = (
        b.like(name, b.one([(columns,), (rows, columns), (1, columns), (rows, 1), (1,)]))
        if b.version < 11 or b.chance(0.7)
        else ""
    )
    floats = b.array(name).dtype.kind not in "iu"
    numbers = {"alpha": b.one([None, 0.5]), "beta": b.one([None, 0.25, 0.0])} if floats else {}
    return Draft([name, other, bias], {"transA": turn_a, "transB": turn_b, **numbers})


@makes("MatMulInteger")
def mat_mul_integer(b: Builder) -> Draft:
    left, right = b.one(b.types(0)), b.one(b.types(1))
    rows, inner, columns = (b.integer(1, 5) for _ in range(3))
    zeros = [b.data(np.array(b.integer(0, 3)).astype(t)) if b.chance(0.6) else "" for t in (left, right)]
    return Draft([b.fresh(left, (*b.one([(), (2,)]), rows, inner)), b.fresh(right, (inner, columns)), *zeros])


def _features(b: Builder, ranks: Sequence[int] = (3, 4)) -> str:
    return b.value(b.types(), ranks, fits=lambda a: a.shape[1] > 0, shape=lambda rank: (b.integer(0, 2), 4, 3, 5)[:rank])


def _positive(b: Builder, like: str, shape: Sequence[int]) -> str:
    return b.data(b.rng.uniform(0.2, 3, shape).astype(b.array(like).dtype))


@makes("BatchNormalization")
def batch_normalization(b: Builder) -> Draft:
    name = _features(b, (2, 3, 4))
    channels = b.array(name).shape[1]
    rest = [b.fresh(b.array(name).dtype, (channels,), special=0) for _ in range(3)]
    return Draft([name, *rest, _positive(b, name, (channels,))], {"epsilon": b.one([None, 1e-3])})


@makes("InstanceNormalization")
def instance_normalization(b: Builder) -> Draft:
    name = _features(b)
    return Draft([name, *(b.fresh(b.array(name).dtype, (b.array(name).shape[1],)) for _ in range(2))])


@makes("GroupNormalization")
def group_normalization(b: Builder) -> Draft:
    name = b.fresh(b.one(b.types()), (b.integer(0, 2), 4, 3, 2))
    groups = b.one([1, 2, 4])
    size = groups if b.version < 21 else 4
    return Draft([name, *(b.fresh(b.array(name).dtype, (size,)) for _ in range(2))], {"num_groups": groups})


@makes("LayerNormalization", "RMSNormalization")
def layer_normalization(b: Builder) -> Draft:
    name = b.value(b.types(), (2, 3), fits=lambda a: 0 not in a.shape, shape=lambda rank: (2, 3, 5)[:rank])
    axis = b.axis(b.array(name).ndim)
    shape = b.array(name).shape[axis:]
    bias = b.like(name, shape) if b.op[0] == "L" and b.chance(0.5) else ""
    return Draft([name, b.like(name, shape), bias], {"axis": axis, "epsilon": b.one([None, 1e-3])})


@makes("RotaryEmbedding")
def rotary(b: Builder) -> Draft:
    n, heads, length, size = b.integer(1, 2), 2, 3, 4
    name = b.fresh(b.one(b.types()), (n, heads, length, size))
    dtype = b.array(name).dtype
    if b.chance(0.5):
        tables = [b.fresh(dtype, (n, length, size // 2), special=0) for _ in range(2)]
        return Draft([name, *tables], {"interleaved": b.integer(0, 1)})
    tables = [b.fresh(dtype, (7, size // 2), special=0) for _ in range(2)]
    return Draft([name, *tables, b.data(b.rng.integers(0, 7, (n, length)).astype(np.int64))], {"interleaved": b.integer(0, 1)})


@makes("Attention")
def attention(b: Builder) -> Draft:
    dtype = b.one(b.types())
    n, heads, queries, keys, size = b.integer(1, 2), 2, b.integer(1, 3), b.integer(1, 4), 3
    q, k, v = (b.fresh(dtype, (n, heads, count, size), special=0) for count in (queries, keys, keys))
    mask = b.fresh(dtype, (queries, keys), special=0) if b.chance(0.4) else ""
    return Draft([q, k, v, mask], {"is_causal": b.integer(0, 1) if not mask else 0, "scale": b.one([None, 0.5])})


def _recurrent(b: Builder, gates: int) -> Draft:
    length, n, size, hidden = b.integer(1, 4), b.integer(1, 3), b.integer(1, 4), b.integer(1, 3)
    dtype, direction = b.one(b.types()), b.one(["forward", "reverse", "bidirectional"])
    ways = 2 if direction == "bidirectional" else 1
    x, w, r = (
        b.fresh(dtype, s, special=0) for s in ((length, n, size), (ways, gates * hidden, size), (ways, gates * hidden, hidden))
    )
    bias = b.fresh(dtype, (ways, 2 * gates * hidden), special=0) if b.chance(0.6) else ""
    lengths = b.data(b.rng.integers(1, length + 1, n).astype(np.int32)) if b.chance(0.3) else ""
    start = b.fresh(dtype, (ways, n, hidden), special=0) if b.chance(0.5) else ""
    attributes: dict[str, Any] = {"hidden_size": hidden, "direction": direction, "linear_before_reset": b.integer(0, 1)}
    return Draft([x, w, r, bias, lengths, start], attributes, 2)


@makes("RNN")
def rnn(b: Builder) -> Draft:
    return _recurrent(b, 1)


@makes("GRU")
def gru(b: Builder) -> Draft:
    return _recurrent(b, 3)


@makes("LSTM")
def lstm(b: Builder) -> Draft:
    draft = _recurrent(b, 4)
    draft.outputs = 3
    return draft
