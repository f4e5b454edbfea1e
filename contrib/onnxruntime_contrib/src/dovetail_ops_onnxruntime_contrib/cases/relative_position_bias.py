"""Cases of RelativePositionBias: buckets by hand."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing import Case
from dovetail_ops_onnxruntime_contrib.relative_position_bias import RelativePositionBias

_EVERY = (0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7, 7)
"""Buckets of the distances 0 to 16 where 8 have logarithms up to 16: 4 + floor(4 log(d / 4) / log 4), 7 at most."""


def relative_position_bias(rng: np.random.Generator) -> Iterator[Case]:
    """Distances alone, and with their direction; more keys than queries; no queries."""
    for name, both, queries, keys in (
        ("distances", False, 17, 17),
        ("directions", True, 17, 17),
        ("keys", True, 3, 9),
        ("none", False, 0, 5),
    ):
        buckets = 16 if both else 8
        table = rng.standard_normal((3, buckets)).astype(np.float32)
        want = np.empty((1, 3, queries, keys), np.float32)
        for q in range(queries):
            for k in range(keys):
                want[0, :, q, k] = table[:, _EVERY[abs(k - q)] + (8 if both and k > q else 0)]
        op = RelativePositionBias(max_distance=16, is_bidirectional=both)
        yield Case(
            name,
            op,
            (table.reshape(buckets, 3), np.array(queries, np.int64), np.array([keys], np.int64)),
            (want,),
            constants=(1, 2),
        )
