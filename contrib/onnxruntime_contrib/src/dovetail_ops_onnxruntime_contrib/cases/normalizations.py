"""Cases of the normalizations: their formulas in float64."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing import Case
from dovetail_ops_onnxruntime_contrib.normalizations import (
    EmbedLayerNormalization,
    SimplifiedLayerNormalization,
    SkipLayerNormalization,
    SkipSimplifiedLayerNormalization,
)

Array = NDArray[Any]


def _floats(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def _normal(x: Array, gamma: Array, beta: Array | float = 0.0, centred: bool = True) -> tuple[Array, Array, Array]:
    wide = x.astype(np.float64)
    mean = wide.mean(-1, keepdims=True)
    away = wide - mean if centred else wide
    inverse = 1 / np.sqrt((away**2).mean(-1, keepdims=True) + 1e-5)
    y = away * inverse * gamma + beta
    return y.astype(np.float32), mean.astype(np.float32), inverse.astype(np.float32)


def simplified_layer_normalization(rng: np.random.Generator) -> Iterator[Case]:
    """The last axis, both outputs, batch 0."""
    x, gamma = _floats(rng, 2, 3, 7), _floats(rng, 7)
    y, _, inverse = _normal(x, gamma, centred=False)
    yield Case("last_axis", SimplifiedLayerNormalization(), (x, gamma), (y,))
    yield Case("statistics", SimplifiedLayerNormalization(), (x, gamma), (y, inverse))
    yield Case("batch_0", SimplifiedLayerNormalization(), (x[:0], gamma), (x[:0],))


def skip_simplified_layer_normalization(rng: np.random.Generator) -> Iterator[Case]:
    """Without and with a bias, all outputs, one skip for all."""
    x, skip, gamma, bias = _floats(rng, 2, 3, 7), _floats(rng, 2, 3, 7), _floats(rng, 7), _floats(rng, 7)
    op = SkipSimplifiedLayerNormalization(epsilon=1e-5)
    yield Case("plain", op, (x, skip, gamma), (_normal(x + skip, gamma, centred=False)[0],))
    total = x + skip + bias
    y, mean, inverse = _normal(total, gamma, centred=False)
    yield Case("bias", op, (x, skip, gamma, bias), (y, mean, inverse, total))
    yield Case("one_skip", op, (x, skip[0], gamma), (_normal(x + skip[0], gamma, centred=False)[0],))


def skip_layer_normalization(rng: np.random.Generator) -> Iterator[Case]:
    """Without and with beta and bias, all outputs, one skip for all, batch 0."""
    x, skip = _floats(rng, 2, 3, 7), _floats(rng, 2, 3, 7)
    gamma, beta, bias = (_floats(rng, 7) for _ in range(3))
    op = SkipLayerNormalization(epsilon=1e-5)
    yield Case("plain", op, (x, skip, gamma), (_normal(x + skip, gamma)[0],))
    total = x + skip + bias
    y, mean, inverse = _normal(total, gamma, beta)
    yield Case("bias", op, (x, skip, gamma, beta, bias), (y, mean, inverse, total), atol=2e-6)
    yield Case("one_skip", op, (x, skip[:1], gamma, beta), (_normal(x + skip[:1], gamma, beta)[0],))
    yield Case("batch_0", op, (x[:0], skip[:0], gamma), (x[:0],))


def embed_layer_normalization(rng: np.random.Generator) -> Iterator[Case]:
    """Words and positions; segments, mask and given positions."""
    ids = rng.integers(0, 11, (2, 5)).astype(np.int32)
    words, positions, table = _floats(rng, 11, 7), _floats(rng, 9, 7), _floats(rng, 2, 7)
    gamma, beta = _floats(rng, 7), _floats(rng, 7)
    op = EmbedLayerNormalization(epsilon=1e-5)
    total = words[ids] + positions[:5]
    none = np.zeros(2, np.int32)
    inputs: tuple[Array | None, ...] = (ids, None, words, positions, None, gamma, beta)
    yield Case("words", op, inputs, (_normal(total, gamma, beta)[0], none, total))
    segments, mask = rng.integers(0, 2, (2, 5)).astype(np.int32), np.array([[1] * 5, [1, 1, 0, 0, 0]], np.int32)
    places = rng.integers(0, 9, (2, 5)).astype(np.int32)
    total = words[ids] + positions[places] + table[segments]
    inputs = (ids, segments, words, positions, table, gamma, beta, mask, places)
    yield Case("everything", op, inputs, (_normal(total, gamma, beta)[0], np.array([5, 2], np.int32), total), atol=2e-6)
