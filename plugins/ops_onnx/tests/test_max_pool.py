"""MaxPool with indices: each window by itself."""

from typing import Any

import numpy as np
import pytest

from dovetail.op import TensorType
from dovetail_ops_onnx.max_pool import MaxPool


def _by_window(op: MaxPool, x: Any) -> tuple[Any, Any]:
    """The first NaN of a window, else its first largest element; padding does not count."""
    g = op.geometry(TensorType.of(x))
    y = np.full((*x.shape[:2], *g.output), -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min, x.dtype)
    index = np.full(y.shape, -1)
    order: Any = "F" if op.storage_order else "C"
    for n, c, *o in np.ndindex(*y.shape):
        for k in np.ndindex(*g.kernel):
            at = [o[a] * g.strides[a] - g.pads_begin[a] + k[a] * g.dilations[a] for a in range(g.rank)]
            if all(0 <= p < size for p, size in zip(at, g.input, strict=True)):
                value, best = x[(n, c, *at)], y[(n, c, *o)]
                if index[(n, c, *o)] < 0 or (best == best and (value > best or value != value)):
                    y[(n, c, *o)] = value
                    place = np.ravel_multi_index(at, g.input, order=order)
                    index[(n, c, *o)] = place + (n * x.shape[1] + c) * np.prod(g.input)
    return y, index


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint8"])
@pytest.mark.parametrize(
    ("size", "attributes"),
    [
        ((7, 6), {"kernel_shape": (2, 3), "strides": (2, 1)}),
        ((6, 7), {"kernel_shape": (3, 2), "pads": (2, 0, 1, 1), "dilations": (1, 3)}),
        ((5, 4), {"kernel_shape": (1, 1), "pads": (1, 1, 1, 1)}),  # windows in the padding
        ((9,), {"kernel_shape": (4,), "strides": (3,), "pads": (1, 2), "ceil_mode": True}),
        ((4, 3, 5), {"kernel_shape": (2, 2, 3), "auto_pad": "SAME_LOWER"}),
        ((18, 17), {"kernel_shape": (17, 16)}),  # more kernel elements than a byte counts
    ],
)
def test_windows(rng: np.random.Generator, size: tuple[int, ...], attributes: Any, dtype: str, order: int) -> None:
    x = rng.integers(0, 4, (2, 3, *size)).astype(dtype)
    op = MaxPool(storage_order=order, **attributes)
    for special in (None, np.nan, -np.inf) if x.dtype.kind == "f" else (None,):
        given = x.copy()
        if special is not None:
            given[rng.random(x.shape) < 0.3] = special
        given.flags.writeable = False
        (y, index), (values, places) = op.reference(given), _by_window(op, given)
        np.testing.assert_array_equal(y, values)
        np.testing.assert_array_equal(index, places)
        assert (y.dtype, index.dtype) == (x.dtype, np.int64)
