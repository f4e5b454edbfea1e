"""Cases of Conv: expected values from loops over output positions and kernel elements in float64; output sizes by hand."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing.case import Case
from dovetail_ops_onnx.conv import Conv


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """1-D to 3-D, groups, depthwise, strides, dilations, each way of padding, batch 0, three float types."""
    x, w, b = _random(rng, (2, 3, 7, 5), (4, 3, 3, 2), (4,))
    yield Case("plain", Conv(), (x, w, b), (_conv(x, w, b, out=(5, 4)),))
    yield Case("no_bias", Conv(kernel_shape=(3, 2)), (x, w), (_conv(x, w, None, out=(5, 4)),))
    yield Case("optional_bias_left_out", Conv(), (x, w, None), (_conv(x, w, None, out=(5, 4)),))
    yield Case(
        "strides_dilations_asymmetric_pads",
        Conv(strides=(2, 3), dilations=(2, 1), pads=(1, 0, 2, 3)),
        (x, w, b),
        (_conv(x, w, b, out=(3, 3), strides=(2, 3), dilations=(2, 1), begin=(1, 0)),),
    )
    yield Case("batch_0", Conv(pads=(1, 1, 1, 1)), (x[:0], w, b), (np.zeros((0, 4, 7, 6), np.float32),))
    for constants in ((), (1, 2)):
        word = "constant_" if constants else ""
        nothing = np.zeros((2, 0, 5, 4), np.float32)
        yield Case(f"{word}weights_without_maps", Conv(), (x, w[:0], b[:0]), (nothing,), constants=constants)
        only_bias = np.broadcast_to(b[:, None, None], (2, 4, 5, 4))
        yield Case(f"{word}weights_without_channels", Conv(), (x[:, :0], w[:, :0], b), (only_bias,), constants=constants)
    for auto_pad, out, begin in (("SAME_UPPER", (4, 3), (1, 0)), ("SAME_LOWER", (4, 3), (1, 1)), ("VALID", (3, 2), (0, 0))):
        yield Case(
            f"auto_pad_{auto_pad.lower()}",
            Conv(auto_pad=auto_pad, strides=(2, 2)),
            (x, w, b),
            (_conv(x, w, b, out=out, strides=(2, 2), begin=begin),),
        )
    yield from _shapes(rng)
    yield from _types(rng)


def _shapes(rng: np.random.Generator) -> Iterator[Case]:
    x, w, b = _random(rng, (1, 6, 9), (8, 3, 4), (8,))
    yield Case("one_dimension_groups", Conv(group=2, pads=(3, 0)), (x, w, b), (_conv(x, w, b, out=(9,), begin=(3,), group=2),))
    x, w, b = _random(rng, (2, 2, 4, 5, 3), (3, 2, 2, 3, 1), (3,))
    yield Case(
        "three_dimensions",
        Conv(strides=(1, 2, 1), pads=(0, 1, 0, 1, 1, 0)),
        (x, w, b),
        (_conv(x, w, b, out=(4, 3, 3), strides=(1, 2, 1), begin=(0, 1, 0)),),
    )
    x, w, b = _random(rng, (2, 5, 6, 7), (5, 1, 3, 3), (5,))
    yield Case(
        "depthwise",
        Conv(group=5, pads=(1, 1, 1, 1), strides=(2, 2)),
        (x, w, b),
        (_conv(x, w, b, out=(3, 4), strides=(2, 2), begin=(1, 1), group=5),),
    )
    x, w, b = _random(rng, (1, 3, 5, 5), (6, 1, 3, 3), (6,))
    yield Case("depthwise_multiplier_2", Conv(group=3), (x, w, b), (_conv(x, w, b, out=(3, 3), group=3),))
    x, w, b = _random(rng, (2, 17, 5, 3), (19, 17, 1, 1), (19,))
    yield Case("pointwise", Conv(), (x, w, b), (_conv(x, w, b, out=(5, 3)),), atol=1e-5)
    x, w = _random(rng, (1, 3, 32, 33), (8, 3, 4, 4))
    yield Case("patches", Conv(strides=(4, 4)), (x, w), (_conv(x, w, None, out=(8, 8), strides=(4, 4)),), atol=1e-5)
    x, w, b = _random(rng, (1, 16, 9, 11), (21, 16, 3, 3), (21,))
    yield Case("same_3x3_odd_sizes", Conv(pads=(1, 1, 1, 1)), (x, w, b), (_conv(x, w, b, out=(9, 11), begin=(1, 1)),), atol=1e-5)
    # With a generator of its own, so that the cases of all operators after this one keep their numbers.
    x, w, b = _random(np.random.default_rng(7), (3, 4, 11), (5, 4, 3), (5,))
    yield Case(
        "one_dimension",
        Conv(pads=(2, 0), strides=(2,), dilations=(2,)),
        (x, w, b),
        (_conv(x, w, b, out=(5,), strides=(2,), dilations=(2,), begin=(2,)),),
    )
    x, w, b = _random(np.random.default_rng(8), (2, 3, 37), (3, 1, 9), (3,))
    yield Case(
        "one_dimension_depthwise",
        Conv(pads=(4, 3), group=3, strides=(2,)),
        (x, w, b),
        (_conv(x, w, b, out=(18,), strides=(2,), begin=(4,), group=3),),
        atol=1e-5,
    )


def _types(rng: np.random.Generator) -> Iterator[Case]:
    for dtype, rtol in ((np.float16, 2e-3), (np.float64, 1e-12)):
        x, w, b = (a.astype(dtype) for a in _random(rng, (1, 4, 6, 5), (3, 4, 3, 3), (3,)))
        yield Case(np.dtype(dtype).name, Conv(), (x, w, b), (_conv(x, w, b, out=(4, 3)),), rtol=rtol, atol=rtol)


def _random(rng: np.random.Generator, *shapes: tuple[int, ...]) -> list[NDArray[Any]]:
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def _conv(
    x: NDArray[Any],
    w: NDArray[Any],
    b: NDArray[Any] | None,
    *,
    out: tuple[int, ...],
    strides: Sequence[int] = (1, 1, 1),
    dilations: Sequence[int] = (1, 1, 1),
    begin: Sequence[int] = (0, 0, 0),
    group: int = 1,
) -> NDArray[Any]:
    rank, maps, channels = len(out), w.shape[0] // group, w.shape[1]
    y = np.zeros((x.shape[0], w.shape[0], *out))
    for o in np.ndindex(*out):
        for k in np.ndindex(*w.shape[2:]):
            at = tuple(o[a] * strides[a] - begin[a] + k[a] * dilations[a] for a in range(rank))
            if any(not 0 <= at[a] < x.shape[2 + a] for a in range(rank)):
                continue
            for g in range(group):
                point = x[(slice(None), slice(g * channels, (g + 1) * channels), *at)].astype(np.float64)
                of_group = slice(g * maps, (g + 1) * maps)
                y[(slice(None), of_group, *o)] += point @ w[(of_group, slice(None), *k)].astype(np.float64).T
    if b is not None:
        y += b.astype(np.float64).reshape(-1, *(1,) * rank)
    return y.astype(x.dtype)
