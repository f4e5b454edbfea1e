"""Cases of the parts of diffusion models: their formulas in float64."""

from collections.abc import Iterator
from math import erf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing import Case
from dovetail_ops_onnxruntime_contrib.diffusion import BiasAdd, BiasSplitGelu, GroupNorm, NhwcConv, SkipGroupNorm

Array = NDArray[Any]


def _floats(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def bias_add(rng: np.random.Generator) -> Iterator[Case]:
    """Three axes, batch 0."""
    x, bias, skip = _floats(rng, 2, 3, 7), _floats(rng, 7), _floats(rng, 2, 3, 7)
    yield Case("plain", BiasAdd(), (x, bias, skip), (x + bias + skip,))
    yield Case("batch_0", BiasAdd(), (x[:0], bias, skip[:0]), (x[:0],))


def bias_split_gelu(rng: np.random.Generator) -> Iterator[Case]:
    """Three axes, batch 0."""
    x, bias = _floats(rng, 2, 3, 14), _floats(rng, 14)
    left, right = np.split(x.astype(np.float64) + bias, 2, axis=-1)
    y = (left * right / 2 * (1 + np.vectorize(erf)(right / np.sqrt(2)))).astype(np.float32)
    yield Case("plain", BiasSplitGelu(), (x, bias), (y,), atol=2e-6)
    yield Case("batch_0", BiasSplitGelu(), (x[:0], bias), (y[:0],))


def nhwc_conv(rng: np.random.Generator) -> Iterator[Case]:
    """3 x 3 with pads and strides, groups, without a bias."""
    x, w, bias = _floats(rng, 2, 5, 6, 4), _floats(rng, 6, 3, 3, 2), _floats(rng, 6)
    padded = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))[:, ::2, ::1]
    halves = [np.einsum("nyxcij,oijc->nyxo", windows[..., 2 * i : 2 * i + 2, :, :], w[3 * i : 3 * i + 3]) for i in (0, 1)]
    y = np.concatenate(halves, axis=-1)
    op = NhwcConv(group=2, pads=(1, 1, 1, 1), strides=(2, 1))
    yield Case("bias", op, (x, w, bias), ((y + bias).astype(np.float32),), rtol=1e-4, atol=1e-5)
    yield Case("plain", op, (x, w), (y.astype(np.float32),), rtol=1e-4, atol=1e-5)


def _normal(x: Array, gamma: Array, beta: Array, groups: int, silu: bool) -> Array:
    """Of [N, H, W, C]."""
    parts = x.astype(np.float64).reshape(*x.shape[:3], groups, -1)
    away = parts - parts.mean((1, 2, 4), keepdims=True)
    y = (away / np.sqrt((away**2).mean((1, 2, 4), keepdims=True) + 1e-5)).reshape(x.shape) * gamma + beta
    found: Array = (y / (1 + np.exp(-y)) if silu else y).astype(np.float32)
    return found


def group_norm(rng: np.random.Generator) -> Iterator[Case]:
    """Channels last and second, with and without SiLU."""
    x, gamma, beta = _floats(rng, 2, 3, 5, 6), _floats(rng, 6), _floats(rng, 6)
    for silu in (False, True):
        y = _normal(x, gamma, beta, 3, silu)
        yield Case(f"last_{silu}", GroupNorm(activation=int(silu), groups=3), (x, gamma, beta), (y,), atol=2e-6)
        second = GroupNorm(activation=int(silu), groups=3, channels_last=False)
        yield Case(f"second_{silu}", second, (_second(x), gamma, beta), (_second(y),), atol=2e-6)


def skip_group_norm(rng: np.random.Generator) -> Iterator[Case]:
    """Each form of the skip, with and without a bias; the sum; channels second."""
    x, gamma, beta, bias = _floats(rng, 2, 3, 5, 6), _floats(rng, 6), _floats(rng, 6), _floats(rng, 6)
    op = SkipGroupNorm(activation=1, groups=2)
    whole, each = _floats(rng, 2, 3, 5, 6), _floats(rng, 2, 1, 1, 6)
    for name, skip in (("whole", whole), ("each", each), ("matrix", each[:, 0, 0])):
        total = x + (whole if name == "whole" else each)
        y = _normal(total, gamma, beta, 2, True)
        yield Case(name, op, (x, gamma, beta, skip), (y,), atol=2e-6)
        more = total + bias
        yield Case(f"{name}_bias", op, (x, gamma, beta, skip, bias), (_normal(more, gamma, beta, 2, True), more), atol=5e-6)
    second = SkipGroupNorm(activation=0, groups=2, channels_last=False)
    arrays = (_second(x), gamma, beta, each[:, 0, 0], bias)
    yield Case("second", second, arrays, (_second(_normal(x + each + bias, gamma, beta, 2, False)),), atol=5e-6)


def _second(x: Array) -> Array:
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2))
