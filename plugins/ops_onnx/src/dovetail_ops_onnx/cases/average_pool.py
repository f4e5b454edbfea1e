"""Cases of AveragePool: each output position adds up its window in float64; output sizes by hand."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing.case import Case
from dovetail_ops_onnx.average_pool import AveragePool


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Strides, pads counted and not counted, dilations, ceil_mode, auto_pad, 1-D and 3-D, batch 0, float16."""
    x = rng.standard_normal((2, 3, 7, 5)).astype(np.float32)
    yield Case("no_strides", AveragePool(kernel_shape=(3, 2)), (x,), (_pool(x, (3, 2), (5, 4)),))
    for counted in (False, True):
        op = AveragePool(kernel_shape=(3, 3), strides=(2, 2), pads=(1, 0, 1, 2), count_include_pad=counted)
        want = _pool(x, (3, 3), (4, 3), strides=(2, 2), pads=((1, 1), (0, 2)), counted=counted)
        yield Case(f"asymmetric_pads_counted_{counted}", op, (x,), (want,))
        op = AveragePool(kernel_shape=(3, 3), strides=(3, 3), pads=(1, 1, 1, 1), ceil_mode=True, count_include_pad=counted)
        # Along the last axis a third window would start at 6, in the padding after the 5 elements and 1 before them.
        want = _pool(x, (3, 3), (3, 2), strides=(3, 3), pads=((1, 1), (1, 1)), counted=counted)
        yield Case(f"ceil_mode_counted_{counted}", op, (x,), (want,))
        op = AveragePool(kernel_shape=(3, 3), strides=(2, 2), ceil_mode=True, count_include_pad=counted)
        want = _pool(x[:, :, :6, :4], (3, 3), (3, 2), strides=(2, 2), counted=False)
        yield Case(f"ceil_mode_overhang_counted_{counted}", op, (x[:, :, :6, :4],), (want,))
    yield Case(
        "dilations", AveragePool(kernel_shape=(2, 2), dilations=(3, 2)), (x,), (_pool(x, (2, 2), (4, 3), dilations=(3, 2)),)
    )
    yield Case(
        "same_upper",
        AveragePool(kernel_shape=(2, 3), auto_pad="SAME_UPPER"),
        (x,),
        (_pool(x, (2, 3), (7, 5), pads=((0, 1), (1, 1))),),
    )
    yield Case("batch_0", AveragePool(kernel_shape=(2, 2)), (x[:0],), (np.zeros((0, 3, 6, 4), np.float32),))
    x = rng.standard_normal((1, 2, 9)).astype(np.float64)
    yield Case("one_dimension_float64", AveragePool(kernel_shape=(4,), strides=(2,)), (x,), (_pool(x, (4,), (3,), strides=(2,)),))
    x = rng.standard_normal((1, 2, 4, 3, 5)).astype(np.float16)
    yield Case(
        "three_dimensions_float16",
        AveragePool(kernel_shape=(2, 2, 3)),
        (x,),
        (_pool(x, (2, 2, 3), (3, 2, 3)),),
        rtol=2e-3,
        atol=1e-3,
    )


def _pool(
    x: NDArray[Any],
    kernel: tuple[int, ...],
    out: tuple[int, ...],
    *,
    strides: Sequence[int] = (1, 1, 1),
    dilations: Sequence[int] = (1, 1, 1),
    pads: Sequence[tuple[int, int]] = ((0, 0),) * 3,
    counted: bool = False,
) -> NDArray[Any]:
    spatial, axes = x.shape[2:], range(len(out))
    y = np.zeros((*x.shape[:2], *out))
    for o in np.ndindex(*out):
        count = 0
        for k in np.ndindex(*kernel):
            at = tuple(o[a] * strides[a] - pads[a][0] + k[a] * dilations[a] for a in axes)
            inside = all(0 <= at[a] < spatial[a] for a in axes)
            padded = all(-pads[a][0] <= at[a] < spatial[a] + pads[a][1] for a in axes)
            if inside:
                y[(..., *o)] += x[(..., *at)].astype(np.float64)
            count += padded if counted else inside
        y[(..., *o)] /= count
    return y.astype(x.dtype)
