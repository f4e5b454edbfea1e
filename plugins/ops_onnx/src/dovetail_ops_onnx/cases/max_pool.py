"""Cases of MaxPool: each output position scans its window; output sizes by hand."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing.case import Case
from dovetail_ops_onnx.max_pool import MaxPool


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """1-D to 3-D, strides, pads, dilations, ceil_mode, auto_pad, indices in both orders, ties, NaN, integers, batch 0."""
    x = rng.standard_normal((2, 3, 7, 5)).astype(np.float32)
    yield Case("no_strides", MaxPool(kernel_shape=(3, 2)), (x,), (_pool(x, (3, 2), (5, 4))[0],))
    yield Case(
        "resnet_stem",
        MaxPool(kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1)),
        (x,),
        (_pool(x, (3, 3), (4, 3), strides=(2, 2), begin=(1, 1))[0],),
    )
    yield Case(
        "asymmetric_pads_dilations",
        MaxPool(kernel_shape=(2, 3), dilations=(3, 1), pads=(0, 2, 1, 0), strides=(1, 2)),
        (x,),
        (_pool(x, (2, 3), (5, 3), strides=(1, 2), dilations=(3, 1), begin=(0, 2))[0],),
    )
    yield Case(
        "ceil_mode",
        MaxPool(kernel_shape=(2, 2), strides=(2, 2), ceil_mode=True),
        (x,),
        (_pool(x, (2, 2), (4, 3), strides=(2, 2))[0],),
    )
    yield Case(
        "ceil_mode_drops_window_in_padding",
        MaxPool(kernel_shape=(1, 1), strides=(2, 3), pads=(0, 0, 1, 1), ceil_mode=True),
        (x,),
        (_pool(x, (1, 1), (4, 2), strides=(2, 3))[0],),
    )
    yield Case(
        "same_lower",
        MaxPool(kernel_shape=(2, 2), auto_pad="SAME_LOWER"),
        (x,),
        (_pool(x, (2, 2), (7, 5), begin=(1, 1))[0],),
    )
    yield Case("batch_0", MaxPool(kernel_shape=(2, 2)), (x[:0],), (np.zeros((0, 3, 6, 4), np.float32),))
    for order in (0, 1):
        op = MaxPool(kernel_shape=(2, 3), strides=(2, 1), pads=(0, 1, 0, 1), storage_order=order)
        yield Case(f"indices_order_{order}", op, (x,), _pool(x, (2, 3), (3, 5), strides=(2, 1), begin=(0, 1), order="CF"[order]))
    yield from _values(rng)


def _values(rng: np.random.Generator) -> Iterator[Case]:
    nan = np.array([[[1, np.nan, 3, 2, 2]]], np.float32)
    yield Case(
        "nan_and_ties",
        MaxPool(kernel_shape=(2,)),
        (nan,),
        (np.array([[[np.nan, np.nan, 3, 2]]], np.float32), np.array([[[1, 1, 2, 3]]])),
    )
    low = np.full((1, 1, 3), -np.inf, np.float32)
    yield Case("padding_never_wins", MaxPool(kernel_shape=(2,), pads=(1, 0)), (low,), (low, np.array([[[0, 0, 1]]])))
    x = rng.integers(-128, 127, (1, 2, 5, 4)).astype(np.int8)
    yield Case("int8", MaxPool(kernel_shape=(2, 2), pads=(1, 1, 1, 1)), (x,), (_pool(x, (2, 2), (6, 5), begin=(1, 1))[0],))
    x = rng.standard_normal((1, 2, 4, 5, 3)).astype(np.float16)
    yield Case("three_dimensions_float16", MaxPool(kernel_shape=(2, 3, 1)), (x,), _pool(x, (2, 3, 1), (3, 3, 3)))


def _pool(
    x: NDArray[Any],
    kernel: tuple[int, ...],
    out: tuple[int, ...],
    *,
    strides: Sequence[int] = (1, 1, 1),
    dilations: Sequence[int] = (1, 1, 1),
    begin: Sequence[int] = (0, 0, 0),
    order: Any = "C",
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    spatial = x.shape[2:]
    y = np.zeros((*x.shape[:2], *out), x.dtype)
    index = np.zeros(y.shape, np.int64)
    for n, c, *o in np.ndindex(*y.shape):
        found: list[tuple[Any, int]] = []
        for k in np.ndindex(*kernel):
            at = [o[a] * strides[a] - begin[a] + k[a] * dilations[a] for a in range(len(out))]
            if all(0 <= p < size for p, size in zip(at, spatial, strict=True)):
                place = int(np.ravel_multi_index(at, spatial, order=order))
                found.append((x[(n, c, *at)], place + (n * x.shape[1] + c) * int(np.prod(spatial))))
        y[(n, c, *o)], index[(n, c, *o)] = max(found, key=lambda pair: pair[0])
    return y, index
