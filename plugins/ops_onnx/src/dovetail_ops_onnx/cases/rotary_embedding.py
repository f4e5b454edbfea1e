"""Cases of RotaryEmbedding: each pair turned as a complex number."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.rotary_embedding import RotaryEmbedding


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Four and three dimensions, positions, neighbours, a part of the head, angles for all samples, float16, batch 0."""
    x = rng.standard_normal((2, 3, 5, 8)).astype(np.float32)
    angles = rng.uniform(-3, 3, (2, 5, 4)).astype(np.float32)
    cos, sin = np.cos(angles), np.sin(angles)
    for interleaved in (False, True):
        op = RotaryEmbedding(interleaved=interleaved)
        yield Case(f"interleaved_{int(interleaved)}", op, (x, cos, sin), (_turned(x, angles, interleaved),))
        part = RotaryEmbedding(interleaved=interleaved, rotary_embedding_dim=4)
        want = np.concatenate((_turned(x[..., :4], angles[..., :2], interleaved), x[..., 4:]), -1)
        yield Case(f"part_{int(interleaved)}", part, (x, cos[..., :2], sin[..., :2]), (want,))
        yield Case(f"shared_{int(interleaved)}", op, (x, cos[:1], sin[:1]), (_turned(x, angles[:1], interleaved),))
    flat = np.moveaxis(x, 1, 2).reshape(2, 5, 24)
    want = np.moveaxis(_turned(x, angles, False), 1, 2).reshape(2, 5, 24)
    yield Case("three_dimensions", RotaryEmbedding(num_heads=3), (flat, cos, sin), (want,))
    want = np.moveaxis(_turned(x, angles[:1], False), 1, 2).reshape(2, 5, 24)
    yield Case("three_dimensions_shared", RotaryEmbedding(num_heads=3), (flat, cos[:1], sin[:1]), (want,))
    ids = rng.integers(0, 7, (2, 5))
    table = rng.uniform(-3, 3, (7, 4)).astype(np.float32)
    want = _turned(x, table[ids], False)
    yield Case("positions", RotaryEmbedding(), (x, np.cos(table), np.sin(table), ids), (want,))
    half = x.astype(np.float16)
    inputs = (half, cos.astype(np.float16), sin.astype(np.float16))
    yield Case("float16", RotaryEmbedding(), inputs, (_turned(half, angles, False),), rtol=4e-3, atol=4e-3)
    yield Case("batch_0", RotaryEmbedding(), (x[:0], cos[:0], sin[:0]), (x[:0],))
    yield Case("batch_0_shared", RotaryEmbedding(), (x[:0], cos[:1], sin[:1]), (x[:0],))


def _turned(
    x: "np.ndarray[tuple[int, ...], np.dtype[np.generic]]",
    angles: "np.ndarray[tuple[int, ...], np.dtype[np.generic]]",
    interleaved: bool,
) -> "np.ndarray[tuple[int, ...], np.dtype[np.generic]]":
    wide = x.astype(np.float64)
    half = x.shape[-1] // 2
    z = wide[..., ::2] + 1j * wide[..., 1::2] if interleaved else wide[..., :half] + 1j * wide[..., half:]
    z = z * np.exp(1j * angles.astype(np.float64))[:, None]
    y = np.stack((z.real, z.imag), -1).reshape(x.shape) if interleaved else np.concatenate((z.real, z.imag), -1)
    return y.astype(x.dtype)
