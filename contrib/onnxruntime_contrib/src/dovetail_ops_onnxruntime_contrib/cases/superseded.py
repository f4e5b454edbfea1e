"""Cases of the operators that the standard has taken over: by NumPy and by hand."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing import Case
from dovetail_ops_onnxruntime_contrib.superseded import (
    ConvTransposeWithDynamicPads,
    ExpandDims,
    GatherND,
    GridSample,
    Pad,
    Range,
    Trilu,
    Unique,
)


def trilu(rng: np.random.Generator) -> Iterator[Case]:
    """Above, and below another diagonal."""
    x = rng.standard_normal((2, 3, 4)).astype(np.float32)
    yield Case("upper", Trilu(), (x,), (np.triu(x),))
    yield Case("lower", Trilu(upper=False), (x, np.array(1)), (np.tril(x, 1),))


def expand_dims(rng: np.random.Generator) -> Iterator[Case]:
    """Each place, counted from both ends."""
    x = rng.standard_normal((2, 3)).astype(np.float32)
    for axis in (0, 2, -1, -3):
        inputs = (x, np.array(axis, np.int32))
        yield Case(f"axis_{axis}", ExpandDims(), inputs, (np.expand_dims(x, axis),), constants=(1,))


def range(rng: np.random.Generator) -> Iterator[Case]:  # noqa: A001 - named as the operator
    """With a step, without, vectors of one element."""
    yield Case(
        "step",
        Range(),
        tuple(np.array(x, np.float32) for x in (1, 3, 0.5)),
        (np.array([1, 1.5, 2, 2.5], np.float32),),
        constants=(0, 1, 2),
    )
    yield Case("steps_of_1", Range(), (np.array([3]), np.array([7])), (np.arange(3, 7),), constants=(0, 1))


def pad(rng: np.random.Generator) -> Iterator[Case]:
    """A row of pads with a value, a vector."""
    x = rng.standard_normal((2, 3)).astype(np.float32)
    want = np.pad(x, ((1, 0), (0, 2)), constant_values=0.5)
    yield Case("value", Pad(), (x, np.array([[1, 0, 0, 2]]), np.array([0.5], np.float32)), (want,), constants=(1,))
    yield Case("edge", Pad(mode="edge"), (x, np.array([1, 0, 0, 2])), (np.pad(x, ((1, 0), (0, 2)), "edge"),), constants=(1,))


def unique(rng: np.random.Generator) -> Iterator[Case]:
    """In the order of the first occurrence."""
    x = np.array([2, 1, 1, 3, 4, 3], np.float32)
    want = np.array([2, 1, 3, 4], np.float32), np.array([0, 1, 1, 2, 3, 2]), np.array([1, 2, 2, 1])
    yield Case("order", Unique(), (x,), want)


def gather_nd(rng: np.random.Generator) -> Iterator[Case]:
    """Elements, rows by int32."""
    x = rng.standard_normal((2, 3)).astype(np.float32)
    yield Case("elements", GatherND(), (x, np.array([[0, 2], [1, 0]])), (x[[0, 1], [2, 0]],))
    yield Case("rows", GatherND(), (x, np.array([[1], [0]], np.int32)), (x[[1, 0]],))


def grid_sample(rng: np.random.Generator) -> Iterator[Case]:
    """Corners, the middle of two elements, places outside."""
    x = rng.standard_normal((1, 2, 3, 3)).astype(np.float32)
    grid = np.array([[[[-1, -1], [1, -1], [0.5, 0], [3, 0]]]], np.float32)
    want = np.stack((x[0, :, 0, 0], x[0, :, 0, 2], x[0, :, 1, 1:].mean(-1), np.zeros(2, np.float32)), -1)[None, :, None]
    yield Case("linear", GridSample(align_corners=True), (x, grid), (want,))
    want = np.stack((x[0, :, 0, 0], x[0, :, 0, 2], x[0, :, 1, 2], x[0, :, 1, 2]), -1)[None, :, None]
    grid = np.array([[[[-1, -1], [1, -1], [0.75, 0], [3, 0]]]], np.float32)
    yield Case("nearest", GridSample(align_corners=True, mode="nearest", padding_mode="border"), (x, grid), (want,))


def conv_transpose_with_dynamic_pads(rng: np.random.Generator) -> Iterator[Case]:
    """Pieces side by side, cut off by the pads."""
    x, w = rng.standard_normal((2, 3, 2, 3)).astype(np.float32), rng.standard_normal((3, 4, 2, 2)).astype(np.float32)
    b = rng.standard_normal(4).astype(np.float32)
    y = np.einsum("ncab,coij->noaibj", x.astype(np.float64), w.astype(np.float64)).reshape(2, 4, 4, 6) + b[:, None, None]
    op = ConvTransposeWithDynamicPads(strides=(2, 2))
    yield Case("whole", op, (x, w, None, b), (y.astype(np.float32),), rtol=1e-4, atol=1e-5)
    cut = np.ascontiguousarray(y[:, :, 1:, :-2]).astype(np.float32)
    yield Case("cut", op, (x, w, np.array([1, 0, 0, 2]), b), (cut,), constants=(2,), rtol=1e-4, atol=1e-5)
