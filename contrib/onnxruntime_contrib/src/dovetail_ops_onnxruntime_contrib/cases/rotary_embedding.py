"""Cases of rotary embeddings: pairs turned as complex numbers."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing import Case
from dovetail_ops_onnxruntime_contrib.rotary_embedding import MRotaryEmbedding, RotaryEmbedding


def rotary_embedding(rng: np.random.Generator) -> Iterator[Case]:
    """Given positions with four dimensions, an offset with three."""
    x = rng.standard_normal((2, 3, 5, 8)).astype(np.float32)
    table = rng.uniform(-3, 3, (9, 4)).astype(np.float32)
    cos, sin = np.cos(table), np.sin(table)
    given = rng.integers(0, 9, (2, 5))
    for name, ids, places in (("positions", given, given), ("offset", np.array([3]), np.broadcast_to(np.arange(3, 8), (2, 5)))):
        z = (x[..., :4] + 1j * x[..., 4:]) * np.exp(1j * table.astype(np.float64))[places][:, None]
        y = np.concatenate((z.real, z.imag), -1).astype(np.float32)
        if name == "positions":
            yield Case("positions_heads", RotaryEmbedding(), (x, ids, cos, sin), (y,), atol=1e-5)
        else:
            flat, want = (np.ascontiguousarray(np.moveaxis(v, 1, 2)).reshape(2, 5, 24) for v in (x, y))
            yield Case("offset_flat", RotaryEmbedding(), (flat, ids, cos, sin), (want,), atol=1e-5)


def m_rotary_embedding(rng: np.random.Generator) -> Iterator[Case]:
    """Both layouts, as pairs take the positions."""
    x = rng.standard_normal((2, 3, 5, 16)).astype(np.float32)
    table = rng.uniform(-3, 3, (9, 8)).astype(np.float32)
    ids = rng.integers(0, 9, (3, 2, 5))
    for name, layout, section, taken in (
        ("sections", 0, (3, 4, 1), [0, 0, 0, 1, 1, 1, 1, 2]),
        ("alternating", 1, (4, 2, 2), [0, 1, 2, 0, 1, 2, 0, 0]),
    ):
        angles = np.stack([table.astype(np.float64)[ids[stream], pair] for pair, stream in enumerate(taken)], -1)
        z = (x[..., :8] + 1j * x[..., 8:]) * np.exp(1j * angles)[:, None]
        y = np.concatenate((z.real, z.imag), -1).astype(np.float32)
        op = MRotaryEmbedding(mrope_section=section, mrope_layout=layout)
        yield Case(name, op, (x, ids, np.cos(table), np.sin(table)), (y,), atol=1e-5)
