"""Cases of GroupNormalization: group by group in float64."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing.case import Case
from dovetail_ops_onnx.group_normalization import GroupNormalization, GroupNormalization_18


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """One group to one for each channel, the older form with parameters for each group, ranks, batch 0, float16."""
    x = rng.standard_normal((2, 6, 5, 3)).astype(np.float32)
    scale, b = (rng.standard_normal(6).astype(np.float32) for _ in range(2))
    for groups in (1, 2, 6):
        op = GroupNormalization(num_groups=groups)
        yield Case(f"groups_{groups}", op, (x, scale, b), (_groups(x, scale, b, groups, 1e-5),))
    old = (np.array([2, -1], np.float32), np.array([0.5, 3], np.float32))
    spread = [np.array([p[0]] * 3 + [p[1]] * 3) for p in old]
    op18 = GroupNormalization_18(num_groups=2, epsilon=0.1)
    yield Case("version_18", op18, (x, *old), (_groups(x, spread[0], spread[1], 2, 0.1),))
    line = x[..., 0]
    yield Case("rank_3", GroupNormalization(num_groups=3), (line, scale, b), (_groups(line, scale, b, 3, 1e-5),))
    yield Case("batch_0", GroupNormalization(num_groups=3), (x[:0], scale, b), (x[:0].copy(),))
    half = [a.astype(np.float16) for a in (x, scale, b)]
    want = _groups(half[0], half[1], half[2], 2, 1e-5)
    yield Case("float16", GroupNormalization(num_groups=2), tuple(half), (want,), rtol=3e-3, atol=3e-3)


def _groups(x: NDArray[Any], scale: NDArray[Any], b: NDArray[Any], groups: int, epsilon: float) -> NDArray[Any]:
    y = np.zeros(x.shape)
    each = x.shape[1] // groups
    for n in range(x.shape[0]):
        for g in range(groups):
            part = x[n, g * each : (g + 1) * each].astype(np.float64)
            centred = part - part.sum() / part.size
            unit = centred / np.sqrt((centred**2).sum() / part.size + epsilon)
            for c in range(each):
                y[n, g * each + c] = unit[c] * float(scale[g * each + c]) + float(b[g * each + c])
    return y.astype(x.dtype)
