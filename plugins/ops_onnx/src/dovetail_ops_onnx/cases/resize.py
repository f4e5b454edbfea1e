"""Cases of Resize: each output element from the standard's formulas, one axis and one coordinate at a time, and by hand."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing.case import Case
from dovetail_ops_onnx.resize import Resize, Resize_10

Place = Callable[[int, int, int], float]
PLACES: dict[str, Place] = {
    "half_pixel": lambda o, size, out: (o + 0.5) * size / out - 0.5,
    "pytorch_half_pixel": lambda o, size, out: (o + 0.5) * size / out - 0.5 if out > 1 else 0.0,
    "align_corners": lambda o, size, out: o * (size - 1) / (out - 1) if out > 1 else 0.0,
    "asymmetric": lambda o, size, out: o * size / out,
}
"""(output position, input size, output size) -> place on the input axis."""


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Modes and coordinates by scales and sizes, axes, aspect ratio, crop, antialias, version 10, types, batch 0."""
    x = rng.standard_normal((1, 2, 5, 4)).astype(np.float32)
    for coordinate, place in PLACES.items():
        for mode in ("linear", "cubic"):
            op = Resize(mode=mode, coordinate_transformation_mode=coordinate)
            want = _resized(x, (8, 3), mode, place)
            yield Case(f"{mode}_{coordinate}_sizes", op, (x, None, None, np.array([1, 2, 8, 3])), (want,), constants=(3,))
    for coordinate in ("pytorch_half_pixel", "align_corners"):  # which treat an output of one element apart, and not one of two
        op = Resize(mode="linear", coordinate_transformation_mode=coordinate)
        want = _resized(x, (2, 1), "linear", PLACES[coordinate])
        yield Case(f"linear_{coordinate}_to_2_and_1", op, (x, None, None, np.array([1, 2, 2, 1])), (want,), constants=(3,))
    scales = np.array([1, 1, 2, 0.5], np.float32)
    op = Resize(mode="linear")
    yield Case("linear_scales", op, (x, None, scales), (_resized(x, (10, 2), "linear", PLACES["half_pixel"]),), constants=(2,))
    op = Resize(mode="linear", axes=(3, 2))
    want = _resized(x, (7, 9), "linear", PLACES["half_pixel"])
    yield Case("axes", op, (x, None, None, np.array([9, 7])), (want,), constants=(3,))
    yield from _nearest()
    yield from _special(rng)


def _nearest() -> Iterator[Case]:
    x = np.array([[1, 2, 3, 4]], np.float32)
    # Six places on four: asymmetric 0, 2/3, 4/3, 2, 8/3, 10/3; half_pixel -1/6, 1/2, 7/6, 11/6, 5/2, 19/6.
    wanted = {
        ("asymmetric", "floor"): [1, 1, 2, 3, 3, 4],
        ("asymmetric", "ceil"): [1, 2, 3, 3, 4, 4],
        ("half_pixel", "round_prefer_floor"): [1, 1, 2, 3, 3, 4],
        ("half_pixel", "round_prefer_ceil"): [1, 2, 2, 3, 4, 4],
    }
    for (coordinate, rounding), values in wanted.items():
        op = Resize(coordinate_transformation_mode=coordinate, nearest_mode=rounding)
        want = np.array([values], np.float32)
        yield Case(f"nearest_{coordinate}_{rounding}", op, (x, None, None, np.array([1, 6])), (want,), constants=(3,))
    seven = np.arange(7, dtype=np.float32)[None]
    op = Resize(coordinate_transformation_mode="asymmetric", nearest_mode="round_prefer_ceil")
    for size, values in ((2, [0, 4]), (4, [0, 2, 4, 5])):  # at 0, 3.5 and at 0, 1.75, 3.5, 5.25
        want = np.array([values], np.float32)
        yield Case(f"nearest_halves_7_to_{size}", op, (seven, None, None, np.array([1, size])), (want,), constants=(3,))
    half = np.array([1, 0.5], np.float32)
    yield Case("nearest_down", Resize(), (x, None, half), (np.array([[1, 3]], np.float32),), constants=(2,))
    yield Case("version_10_down", Resize_10(), (x, half), (np.array([[1, 3]], np.float32),), constants=(1,))
    up = np.array([1, 1.5], np.float32)
    yield Case("version_10_up", Resize_10(), (x, up), (np.array([[1, 1, 2, 3, 3, 4]], np.float32),), constants=(1,))
    linear = np.array([[1, 1.5, 2, 2.5, 3, 3.5, 4, 4]], np.float32)
    double = np.array([1, 2], np.float32)
    yield Case("version_10_linear", Resize_10(mode="linear"), (x, double), (linear,), constants=(1,))
    flags = np.array([[True, False]])
    yield Case("bool", Resize(), (flags, None, double), (np.array([[True, True, False, False]]),), constants=(2,))


def _special(rng: np.random.Generator) -> Iterator[Case]:
    x = np.array([[0, 10, 20, 30]], np.float32)
    op = Resize(mode="linear", coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=-1.0)
    roi = np.array([0, 0, 1, 4 / 3], np.float32)
    want = np.array([[0, 20, -1]], np.float32)
    yield Case("crop_and_extrapolate", op, (x, roi, None, np.array([1, 3])), (want,), constants=(1, 3), atol=1e-4)
    # Scale 1/2 stretches the tent to weights 1, 3, 3, 1 (eighths) at distances 3/2, 1/2, 1/2, 3/2; the border repeats.
    op = Resize(mode="linear", antialias=True)
    want = np.array([[6.25, 23.75]], np.float32)
    yield Case("antialias", op, (x, None, np.array([1, 0.5], np.float32)), (want,), constants=(2,))
    op = Resize(mode="linear", exclude_outside=True)
    want = np.array([[0, 2.5, 7.5, 12.5, 17.5, 22.5, 27.5, 30]], np.float32)
    yield Case("exclude_outside", op, (x, None, np.array([1, 2], np.float32)), (want,), constants=(2,))
    y = rng.standard_normal((1, 1, 4, 6)).astype(np.float32)
    for policy, out in (("not_larger", (5, 8)), ("not_smaller", (7, 11))):
        op = Resize(
            axes=(2, 3), keep_aspect_ratio_policy=policy, coordinate_transformation_mode="asymmetric", nearest_mode="floor"
        )
        ratio = 8 / 6 if policy == "not_larger" else 7 / 4
        rows, columns = ([math.floor(o / ratio) for o in range(n)] for n in out)
        want = y[:, :, rows][:, :, :, columns]
        yield Case(policy, op, (y, None, None, np.array([7, 8])), (want,), constants=(3,))
    yield Case(
        "batch_0", Resize(), (y[:0], None, None, np.array([0, 1, 8, 3])), (np.zeros((0, 1, 8, 3), np.float32),), constants=(3,)
    )
    wide = rng.standard_normal((3, 5))
    want = _resized(wide[None], (3, 9), "cubic", PLACES["half_pixel"])[0]
    yield Case("float64", Resize(mode="cubic"), (wide, None, None, np.array([3, 9])), (want,), constants=(3,), rtol=1e-12)
    half = wide.astype(np.float16)
    want = _resized(half[None], (3, 9), "linear", PLACES["half_pixel"])[0]
    yield Case(
        "float16", Resize(mode="linear"), (half, None, None, np.array([3, 9])), (want,), constants=(3,), rtol=2e-3, atol=2e-3
    )


def _resized(x: NDArray[Any], out: tuple[int, int], mode: str, place: Place) -> NDArray[Any]:
    y = np.zeros((*x.shape[:-2], *out))
    rows, columns = ([_taps(place(o, x.shape[a], out[a]), mode) for o in range(out[a])] for a in (-2, -1))
    for i, j in np.ndindex(*out):
        for r, v in rows[i].items():
            for c, w in columns[j].items():
                source = x[..., min(max(r, 0), x.shape[-2] - 1), min(max(c, 0), x.shape[-1] - 1)]
                y[..., i, j] += v * w * source.astype(np.float64)
    return y.astype(x.dtype)


def _taps(at: float, mode: str) -> dict[int, float]:
    first = math.floor(at)
    t = at - first
    if mode == "linear":
        return {first: 1 - t, first + 1: t}
    a = -0.75
    return {
        first - 1: ((a * (t + 1) - 5 * a) * (t + 1) + 8 * a) * (t + 1) - 4 * a,
        first: ((a + 2) * t - (a + 3)) * t * t + 1,
        first + 1: ((a + 2) * (1 - t) - (a + 3)) * (1 - t) * (1 - t) + 1,
        first + 2: ((a * (2 - t) - 5 * a) * (2 - t) + 8 * a) * (2 - t) - 4 * a,
    }
