"""Cases of pooling: windows of bytes."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing import Case
from dovetail_ops_onnxruntime_contrib.cases._bytes import OUT, SCALE, random_bytes, stored
from dovetail_ops_onnxruntime_contrib.quantized_pooling import NhwcMaxPool, QLinearAveragePool, QLinearGlobalAveragePool

Array = NDArray[Any]


def q_linear_average_pool(rng: np.random.Generator) -> Iterator[Case]:
    """Windows of two by two, channels first and last."""
    x = rng.integers(0, 256, (2, 3, 4, 6)).astype(np.uint8)
    floats = (x.astype(np.float64) - 5) * 0.5
    want = stored(floats.reshape(2, 3, 2, 2, 3, 2).mean((3, 5)), 9, np.uint8)
    yield from _pools(QLinearAveragePool, x, want, kernel_shape=(2, 2), strides=(2, 2))


def q_linear_global_average_pool(rng: np.random.Generator) -> Iterator[Case]:
    """Channels first and last."""
    x = rng.integers(0, 256, (2, 3, 4, 4)).astype(np.uint8)
    want = stored(((x.astype(np.float64) - 5) * 0.5).mean((2, 3), keepdims=True), 9, np.uint8)
    yield from _pools(QLinearGlobalAveragePool, x, want)


def _pools(cls: Any, x: Array, want: Array, **attributes: Any) -> Iterator[Case]:
    end = (SCALE, np.array(5, np.uint8), OUT, np.array(9, np.uint8))
    yield Case("first", cls(**attributes), (x, *end), (want,), constants=(1, 2, 3, 4))
    last = tuple(np.ascontiguousarray(np.moveaxis(v, 1, -1)) for v in (x, want))
    yield Case("last", cls(channels_last=True, **attributes), (last[0], *end), (last[1],), constants=(1, 2, 3, 4))


def nhwc_max_pool(rng: np.random.Generator) -> Iterator[Case]:
    """Windows of two by two, with strides and with padding."""
    for dtype in (np.uint8, np.int8):
        x = random_bytes(rng, dtype, 2, 4, 6, 3)
        want = x.reshape(2, 2, 2, 3, 2, 3).max((2, 4))
        name = np.dtype(dtype).name
        yield Case(name, NhwcMaxPool(kernel_shape=(2, 2), strides=(2, 2)), (x,), (want,))
        wide = np.pad(x, ((0, 0), (1, 0), (1, 0), (0, 0)), constant_values=np.iinfo(dtype).min)
        windows = [wide[:, i : i + 4, j : j + 6] for i in (0, 1) for j in (0, 1)]
        yield Case(f"{name}_padded", NhwcMaxPool(kernel_shape=(2, 2), pads=(1, 1, 0, 0)), (x,), (np.max(windows, 0),))
