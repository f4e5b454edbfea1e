"""Cases that losses over classes share."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dovetail.op import Operator
from dovetail.testing.case import Case

__all__ = ["losses"]


def losses(rng: np.random.Generator, cls: Callable[..., Operator], expected: Callable[..., tuple[Any, ...]]) -> Iterator[Case]:
    """Every reduction with and without weights and an ignored class, further dimensions, float16 and float64, batch 0."""
    for reduction in ("none", "mean", "sum"):
        for shape in ((4, 5), (3, 5, 2, 3)):
            for weighted in (False, True):
                for ignore in (None, 2, -1):
                    x = rng.standard_normal(shape).astype(np.float32)
                    target = rng.integers(0, 5, (shape[0], *shape[2:]))
                    target.reshape(-1)[0] = 1
                    if ignore is not None:
                        target.reshape(-1)[1] = ignore
                    weight = (rng.random(5).astype(np.float32) + np.float32(0.5),) if weighted else ()
                    name = f"{reduction}_rank_{len(shape)}{'_weighted' * weighted}{'' if ignore is None else f'_ignore_{ignore}'}"
                    want = expected(x, target, weight[0] if weight else None, ignore, reduction)
                    yield Case(name, cls(reduction=reduction, ignore_index=ignore), (x, target, *weight), want)
    for dtype, rtol in ((np.float16, 5e-3), (np.float64, 1e-12)):
        x, target = rng.standard_normal((3, 4)).astype(dtype), np.array([0, 3, 1], np.int32)
        want = expected(x, target, None, None, "mean")
        yield Case(np.dtype(dtype).name, cls(), (x, target), want, rtol=rtol, atol=rtol)
    empty = np.zeros((0, 4), np.float32)
    none = np.zeros(0, np.int64)
    yield Case("batch_0", cls(reduction="none"), (empty, none), expected(empty, none, None, None, "none"))
