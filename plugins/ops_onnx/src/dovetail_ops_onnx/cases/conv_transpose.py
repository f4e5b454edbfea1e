"""Cases of ConvTranspose: every input element is scattered by loops in float64; output sizes and pads by hand."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing.case import Case
from dovetail_ops_onnx.conv_transpose import ConvTranspose


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """1-D to 3-D, groups, strides, dilations, pads, output_padding, output_shape, auto_pad, batch 0, float16."""
    x, w, b = _random(rng, (2, 3, 4, 5), (3, 2, 3, 2), (2,))
    yield Case("plain", ConvTranspose(), (x, w, b), (_scatter(x, w, b, out=(6, 6)),))
    yield Case("no_bias", ConvTranspose(strides=(2, 3)), (x, w), (_scatter(x, w, None, out=(9, 14), strides=(2, 3)),))
    yield Case(
        "asymmetric_pads_dilations_output_padding",
        ConvTranspose(strides=(2, 2), dilations=(2, 1), pads=(1, 0, 2, 1), output_padding=(1, 0)),
        (x, w, b),
        (_scatter(x, w, b, out=(9, 9), strides=(2, 2), dilations=(2, 1), begin=(1, 0)),),
    )
    yield Case(
        "output_shape",
        ConvTranspose(strides=(2, 2), output_shape=(8, 7)),
        (x, w, b),
        (_scatter(x, w, b, out=(8, 7), strides=(2, 2), begin=(1, 2)),),
    )
    yield Case(
        "same_upper",
        ConvTranspose(strides=(2, 1), auto_pad="SAME_UPPER"),
        (x, w, b),
        (_scatter(x, w, b, out=(8, 5), strides=(2, 1), begin=(0, 0)),),
    )
    yield Case(
        "same_lower",
        ConvTranspose(strides=(2, 1), auto_pad="SAME_LOWER"),
        (x, w, b),
        (_scatter(x, w, b, out=(8, 5), strides=(2, 1), begin=(1, 1)),),
    )
    yield Case("batch_0", ConvTranspose(), (x[:0], w, b), (np.zeros((0, 2, 6, 6), np.float32),))
    height, width = x.shape[2] + w.shape[2] - 1, x.shape[3] + w.shape[3] - 1
    for constants in ((), (1, 2)):
        word = "constant_" if constants else ""
        nothing = np.zeros((len(x), 0, height, width), np.float32)
        yield Case(f"{word}weights_without_maps", ConvTranspose(), (x, w[:, :0], b[:0]), (nothing,), constants=constants)
        only_bias = np.broadcast_to(b[:, None, None], (len(x), len(b), height, width))
        yield Case(f"{word}weights_without_channels", ConvTranspose(), (x[:, :0], w[:0], b), (only_bias,), constants=constants)
    x, w, b = _random(rng, (1, 4, 5), (4, 3, 3), (6,))
    yield Case("one_dimension_groups", ConvTranspose(group=2), (x, w, b), (_scatter(x, w, b, out=(7,), group=2),))
    x, w = _random(rng, (1, 2, 2, 3, 2), (2, 1, 2, 2, 3))
    yield Case(
        "three_dimensions", ConvTranspose(strides=(1, 2, 2)), (x, w), (_scatter(x, w, None, out=(3, 6, 5), strides=(1, 2, 2)),)
    )
    x, w = (a.astype(np.float16) for a in _random(rng, (1, 3, 3, 3), (3, 2, 2, 2)))
    yield Case("float16", ConvTranspose(), (x, w), (_scatter(x, w, None, out=(4, 4)),), rtol=2e-3, atol=2e-3)


def _random(rng: np.random.Generator, *shapes: tuple[int, ...]) -> list[NDArray[Any]]:
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def _scatter(
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
    rank, maps, channels = len(out), w.shape[1], w.shape[0] // group
    y = np.zeros((x.shape[0], maps * group, *out))
    for i in np.ndindex(*x.shape[2:]):
        for k in np.ndindex(*w.shape[2:]):
            at = tuple(i[a] * strides[a] - begin[a] + k[a] * dilations[a] for a in range(rank))
            if any(not 0 <= at[a] < out[a] for a in range(rank)):
                continue
            for c in range(w.shape[0]):
                own = slice(c // channels * maps, (c // channels + 1) * maps)
                point = x[(slice(None), c, *i)].astype(np.float64)[:, None]
                y[(slice(None), own, *at)] += point * w[(c, slice(None), *k)].astype(np.float64)
    if b is not None:
        y += b.astype(np.float64).reshape(-1, *(1,) * rank)
    return y.astype(x.dtype)
