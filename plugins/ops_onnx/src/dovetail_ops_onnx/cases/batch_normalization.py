"""Cases of BatchNormalization: the formula channel by channel in float64."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing.case import Case
from dovetail_ops_onnx.batch_normalization import BatchNormalization, BatchNormalization_7, BatchNormalization_9


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Ranks 2 to 5, epsilon, mixed types, batch 0, training, and the old form without `spatial`."""
    for shape in ((2, 3, 5, 7), (4, 5), (1, 2, 9), (2, 3, 2, 3, 2)):
        x, *parameters = _inputs(rng, shape)
        want = _by_channel(x, parameters, 1e-5)
        yield Case(f"rank_{len(shape)}", BatchNormalization(), (x, *parameters), (want,))
    x, *parameters = _inputs(rng, (2, 3, 5, 7))
    yield Case("epsilon", BatchNormalization(epsilon=0.1), (x, *parameters), (_by_channel(x, parameters, 0.1),))
    yield Case("batch_0", BatchNormalization(), (x[:0], *parameters), (x[:0].copy(),))
    half = x.astype(np.float16)
    want = _by_channel(half, parameters, 1e-5)
    yield Case("float16_with_float32_parameters", BatchNormalization(), (half, *parameters), (want,), rtol=2e-3, atol=1e-3)
    yield Case("version_7", BatchNormalization_7(), (x, *parameters), (_by_channel(x, parameters, 1e-5),))
    scale, b, mean, var = (rng.random((3, 2)).astype(np.float32) for _ in range(4))
    x = rng.standard_normal((4, 3, 2)).astype(np.float32)
    exact = (x.astype(np.float64) - mean) / np.sqrt(var.astype(np.float64) + 1e-5) * scale + b
    yield Case(
        "version_7_not_spatial", BatchNormalization_7(spatial=False), (x, scale, b, mean, var), (exact.astype(np.float32),)
    )
    yield Case("version_9", BatchNormalization_9(), (x, *parameters), (_by_channel(x, parameters, 1e-5),))
    yield from _training(rng)


def _training(rng: np.random.Generator) -> Iterator[Case]:
    x, scale, b, mean, var = _inputs(rng, (3, 2, 4))
    columns = [x[:, c].astype(np.float64).reshape(-1) for c in range(2)]
    current = np.array([column.sum() / 12 for column in columns])
    spread = np.array([((column - m) ** 2).sum() / 12 for column, m in zip(columns, current, strict=True)])
    y = _by_channel(x, [scale, b, current, spread], 1e-5)
    running = (mean * 0.75 + current * 0.25, var * 0.75 + spread * 0.25)
    op = BatchNormalization(training_mode=True, momentum=0.75)
    yield Case("training", op, (x, scale, b, mean, var), (y, *(r.astype(np.float32) for r in running)))
    op = BatchNormalization_9(num_outputs=5, momentum=0.75)
    saved = (current, np.array([1 / math.sqrt(s + 1e-5) for s in spread]))
    want = (y, *(r.astype(np.float32) for r in (*running, *saved)))
    yield Case("version_9_training", op, (x, scale, b, mean, var), want)


def _inputs(rng: np.random.Generator, shape: tuple[int, ...]) -> list[NDArray[Any]]:
    x = rng.standard_normal(shape).astype(np.float32)
    scale, b, mean = (rng.standard_normal(shape[1]).astype(np.float32) for _ in range(3))
    return [x, scale, b, mean, rng.uniform(0.5, 2, shape[1]).astype(np.float32)]


def _by_channel(x: NDArray[Any], parameters: list[NDArray[Any]], epsilon: float) -> NDArray[Any]:
    scale, b, mean, var = parameters
    y = np.zeros(x.shape)
    for c in range(x.shape[1]):
        y[:, c] = (x[:, c].astype(np.float64) - mean[c]) / np.sqrt(float(var[c]) + epsilon) * float(scale[c]) + float(b[c])
    return y.astype(x.dtype)
