"""Cases of LpPool: place by place in float64."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing.case import Case
from dovetail_ops_onnx.lp_pool import LpPool


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Powers 1 to 3, strides, dilations, pads, one to three axes, float16, batch 0."""
    variants: tuple[tuple[str, tuple[int, ...], dict[str, Any]], ...] = (
        ("plain", (2, 3, 7, 5), {"kernel_shape": (2, 2)}),
        ("strides", (1, 2, 9, 8), {"kernel_shape": (3, 2), "strides": (2, 3)}),
        ("pads", (1, 2, 5, 5), {"kernel_shape": (3, 3), "pads": (1, 0, 1, 2)}),
        ("dilations", (1, 1, 9), {"kernel_shape": (3,), "dilations": (2,)}),
        ("three_axes", (1, 2, 4, 5, 3), {"kernel_shape": (2, 3, 1)}),
        ("batch_0", (0, 2, 4, 4), {"kernel_shape": (2, 2)}),
    )
    for name, shape, attributes in variants:
        x = rng.standard_normal(shape).astype(np.float32)
        for p in (1, 2, 3):
            yield Case(f"{name}_p_{p}", LpPool(p=p, **attributes), (x,), (_pooled(x, p, **attributes),), rtol=1e-5)
    half = rng.standard_normal((1, 2, 6)).astype(np.float16)
    yield Case("float16", LpPool(kernel_shape=(3,)), (half,), (_pooled(half, 2, kernel_shape=(3,)),), rtol=2e-3)


def _pooled(x: NDArray[Any], p: int, kernel_shape: Any, strides: Any = None, dilations: Any = None, pads: Any = None) -> Any:
    rank = len(kernel_shape)
    strides, dilations, pads = strides or (1,) * rank, dilations or (1,) * rank, pads or (0,) * 2 * rank
    wide = np.pad(np.abs(x.astype(np.float64)), [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)])
    extents = [(k - 1) * d + 1 for k, d in zip(kernel_shape, dilations, strict=True)]
    sizes = [(n - e) // s + 1 for n, e, s in zip(wide.shape[2:], extents, strides, strict=True)]
    result: NDArray[Any] = np.zeros((*x.shape[:2], *sizes))
    for place in np.ndindex(*sizes):
        steps = zip(place, strides, extents, dilations, strict=True)
        window = wide[(slice(None), slice(None), *(slice(i * s, i * s + e, d) for i, s, e, d in steps))]
        result[(slice(None), slice(None), *place)] = (window**p).sum(axis=tuple(range(2, 2 + rank))) ** (1 / p)
    return result.astype(x.dtype)
