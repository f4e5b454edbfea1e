"""Cases of QAttention and QEmbedLayerNormalization: as those of floats, which the bytes stand for."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing import Case
from dovetail_ops_onnxruntime_contrib.cases._bytes import random_bytes
from dovetail_ops_onnxruntime_contrib.cases.attention import attended, heads_of
from dovetail_ops_onnxruntime_contrib.quantized_transformers import QAttention, QEmbedLayerNormalization


def q_attention(rng: np.random.Generator) -> Iterator[Case]:
    """With lengths; causal, with a past."""
    x, w = random_bytes(rng, np.uint8, 2, 5, 8), random_bytes(rng, np.int8, 8, 12)
    scales = np.array(1 / 64, np.float32), np.full(12, 1 / 128, np.float32)
    zeros, bias = (np.array(100, np.uint8), np.full(12, 3, np.int8)), rng.standard_normal(12).astype(np.float32)
    both = (x.astype(np.float64) - 100) / 64 @ ((w.astype(np.float64) - 3) / 128) + bias
    sides = [heads_of(part.astype(np.float32), 2) for part in np.split(both, 3, axis=2)]
    lengths = np.array([5, 3], np.int32)
    lost = np.where(np.arange(5) < lengths[:, None], 0, -10000.0)[:, None, None]
    inputs = (x, w, bias, *scales, lengths, *zeros)
    near, constants = 1e-4, (1, 2, 3, 4, 6, 7)
    want = attended(sides[0], sides[1], sides[2], lost)
    yield Case("lengths", QAttention(num_heads=2), inputs, (want,), rtol=near, atol=near, constants=constants)
    past = rng.standard_normal((2, 2, 2, 3, 2)).astype(np.float32)
    full = [np.concatenate(pair, 2) for pair in zip(past, sides[1:], strict=True)]
    want = attended(sides[0], full[0], full[1], np.where(np.tri(5, 8, 3) > 0, 0, -np.inf))
    op = QAttention(num_heads=2, unidirectional=True)
    yield Case(
        "past", op, (x, w, bias, *scales, None, *zeros, past), (want, np.stack(full)), rtol=near, atol=near, constants=constants
    )


def q_embed_layer_normalization(rng: np.random.Generator) -> Iterator[Case]:
    """With segments and a mask, without."""
    ids, segments = rng.integers(0, 9, (2, 5)).astype(np.int32), rng.integers(0, 2, (2, 5)).astype(np.int32)
    tables = [random_bytes(rng, np.uint8, *shape) for shape in ((9, 8), (6, 8), (2, 8), (8,), (8,))]
    zeros = [np.array(i, np.uint8) for i in range(5)]
    scales = [np.array(1 / (16 << i), np.float32) for i in range(5)]
    real = [(t.astype(np.float64) - i) / (16 << i) for i, t in enumerate(tables)]
    mask = np.array([[1] * 5, [1, 1, 0, 0, 0]], np.int32)
    constants = (2, 3, 4, 5, 6, *range(8, 18))
    for name in ("all", "plain"):
        total = real[0][ids] + real[1][:5] + (real[2][segments] if name == "all" else 0)
        centred = total - total.mean(2, keepdims=True)
        y = centred / np.sqrt((centred**2).mean(2, keepdims=True) + 1e-12) * real[3] + real[4]
        given = [None if i == 2 and name == "plain" else i for i in range(5)]
        parts = [tuple(None if i is None else array[i] for i in given) for array in (tables, scales, zeros)]
        firsts = (ids, segments) if name == "all" else (ids, None)
        inputs = (*firsts, *parts[0], mask if name == "all" else None, *parts[1], *parts[2])
        counts = np.array([5, 2] if name == "all" else [0, 0], np.int32)
        want = (y.astype(np.float32), counts)
        yield Case(name, QEmbedLayerNormalization(), inputs, want, rtol=1e-4, atol=1e-4, constants=constants)
