"""Cases of MelWeightMatrix: triangles drawn by loops over Python's numbers, after the standard's text."""

import math
from collections.abc import Iterator

import numpy as np

from dovetail.op import DType
from dovetail.testing.case import Case
from dovetail_ops_onnx.mel_weight_matrix import MelWeightMatrix


def _expected(count: int, length: int, rate: int, lower: float, upper: float) -> list[list[float]]:
    low, high = (2595 * math.log10(1 + hertz / 700) for hertz in (lower, upper))
    mels = [low + i * (high - low) / (count + 2) for i in range(count + 2)]
    edges = [math.floor((length + 1) * 700 * (10 ** (mel / 2595) - 1) / rate) for mel in mels]
    matrix = [[0.0] * count for _ in range(length // 2 + 1)]
    for column, (left, peak, right) in enumerate(zip(edges, edges[1:], edges[2:], strict=False)):
        for row in range(left, peak):
            matrix[row][column] = (row - left) / (peak - left)
        for row in range(peak, right):
            matrix[row][column] = (right - row) / (right - peak)
        if left <= peak:
            matrix[peak][column] = 1
    return matrix


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Wide and narrow triangles, several of one bin, edges in falling order and equal ones; types of inputs and of the result."""
    for name, given in {
        "wide": (4, 64, 16000, 20, 7000),
        "narrow": (20, 65, 8000, 0, 3800),
        "falling": (3, 64, 16000, 4000, 100),
        "equal": (3, 16, 8000, 1000, 1000),
        "no_bands": (0, 16, 8000, 0, 3000),
        "one_bin": (2, 0, 8000, 0, 0),
    }.items():
        want = np.array(_expected(*given), np.float64).reshape(given[1] // 2 + 1, given[0])
        counts = tuple(np.array(value, np.int32 if name == "narrow" else np.int64) for value in given[:3])
        edges = tuple(np.array(value, np.float64 if name == "narrow" else np.float32) for value in given[3:])
        inputs, fixed = (*counts, *edges), (0, 1, 2, 3, 4)
        yield Case(name, MelWeightMatrix(), inputs, (want.astype(np.float32),), constants=fixed)
        double = MelWeightMatrix(output_datatype=DType.FLOAT64)
        yield Case(f"{name}_float64", double, inputs, (want,), rtol=1e-12, atol=1e-12, constants=fixed)
    whole = MelWeightMatrix(output_datatype=DType.INT32)
    given = (4, 64, 16000, 20, 7000)
    inputs = (*(np.array(value) for value in given[:3]), *(np.array(value, np.float32) for value in given[3:]))
    yield Case("whole_numbers", whole, inputs, (np.array(_expected(*given)).astype(np.int32),), constants=(0, 1))
