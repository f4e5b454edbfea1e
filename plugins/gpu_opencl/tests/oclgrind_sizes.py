"""Operators whose kernels work by tiles, lines or groups, at sizes around those, for the sweep in Oclgrind."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.device import DType
from dovetail.testing import Case
from dovetail_ops_onnx import find

LINES = (1, 3, 17, 63, 65, 257)
POINTS = (1, 3, 17, 127, 129)
PRODUCTS = ((1, 1, 1), (3, 17, 5), (5, 15, 33), (6, 16, 3), (7, 17, 4), (17, 3, 33), (31, 33, 17), (3, 5, 24))
"""m, n and k: 6 rows and 16 columns is what kernels for CPUs take at once; `tiles` has the sizes for those of GPUs."""
IMAGES = ((1, 1, 1), (3, 17, 3), (17, 3, 5), (3, 33, 6), (5, 15, 9), (2, 16, 17))
"""Channels, maps and side: 25, 36 and 81 pixels are around multiples of 6 rows and of vectors."""


def sized(name: str, *inputs: NDArray[Any], constants: tuple[int, ...] = (), **attributes: Any) -> tuple[str, Case]:
    """A case without expected results."""
    found = find(name, 24)
    assert found is not None, name
    label = f"{name} of {', '.join(str(i.shape) for i in inputs)}"
    return label, Case(name, found(**attributes), inputs, (), constants=constants)


def floats(rng: np.random.Generator, *dims: int) -> NDArray[np.float32]:
    return rng.standard_normal(dims).astype(np.float32)


def wholes(rng: np.random.Generator, *dims: int) -> NDArray[np.float32]:
    """Small whole numbers, whose sums are exact in any order."""
    return rng.integers(-4, 5, dims).astype(np.float32)


def bytes_of(rng: np.random.Generator, *dims: int) -> NDArray[np.uint8]:
    return rng.integers(0, 256, dims).astype(np.uint8)


def sizes() -> Iterator[tuple[str, Case]]:
    """The operators whose kernels work by tiles, lines or groups, at sizes of 1, 3, 17 and round those."""
    rng = np.random.default_rng(6)
    yield from _line_sizes(rng)
    for m, n, k in PRODUCTS:
        for constants in ((), (1,)):
            yield sized("MatMul", floats(rng, m, k), floats(rng, k, n), constants=constants)
            yield sized("Gemm", floats(rng, m, k), floats(rng, n, k), floats(rng, n), constants=constants, transB=1)
            yield sized("MatMulInteger", bytes_of(rng, m, k), bytes_of(rng, k, n), constants=constants)
        yield sized("Transpose", floats(rng, m, n), perm=(1, 0))
        yield sized("Transpose", floats(rng, 2, m, n, 3), perm=(0, 2, 3, 1))
        yield sized("MatMul", floats(rng, 2, m, k), floats(rng, 2, k, n))
    for queries, keys in ((15, 31), (17, 33), (33, 129)):
        yield sized("Attention", floats(rng, 1, 1, queries, 8), floats(rng, 1, 1, keys, 8), floats(rng, 1, 1, keys, 5))
    yield from _image_sizes(rng)


def _line_sizes(rng: np.random.Generator) -> Iterator[tuple[str, Case]]:
    for n in POINTS:
        yield sized("Relu", floats(rng, n))
        yield sized("Add", floats(rng, n, 3), floats(rng, 3))
        yield sized("Where", floats(rng, n) > 0, floats(rng, n), floats(rng, 1))
        yield sized("Cast", floats(rng, n), to=DType.INT64)
    for n in LINES:
        for name in ("Softmax", "LogSoftmax", "Hardmax"):
            yield sized(name, floats(rng, 3, n))
        yield sized("Softmax", floats(rng, n, 3), axis=0)
        label, case = sized("LayerNormalization", floats(rng, 3, n), floats(rng, n), floats(rng, n), constants=(1, 2))
        yield label, case
        yield f"{label}, Y alone", dataclasses.replace(case, expected=case.op.reference(*case.inputs)[:1])
        yield sized("ReduceMax", floats(rng, 3, n), np.array([1]), constants=(1,))
        yield sized("ReduceSum", floats(rng, n, 3), np.array([0]), constants=(1,))
        yield sized("ReduceLogSumExp", floats(rng, 2, n, 3), np.array([1]), constants=(1,))
        yield sized("ArgMax", floats(rng, 3, n), axis=1)
        yield sized("TopK", floats(rng, 3, n), np.array([min(3, n)]), constants=(1,))
        yield sized("CumSum", floats(rng, 3, n), np.array(1), constants=(1,))
        yield sized("CumSum", floats(rng, 2, 3, n), np.array(1), constants=(1,))
        yield sized("ScatterND", floats(rng, 4, n), rng.integers(-4, 4, (5, 1)), floats(rng, 5, n), reduction="add")
        yield sized("InstanceNormalization", floats(rng, 2, 3, n), floats(rng, 3), floats(rng, 3), constants=(1, 2))
        yield sized("DynamicQuantizeLinear", floats(rng, n))


def _image_sizes(rng: np.random.Generator) -> Iterator[tuple[str, Case]]:
    for channels, maps, side in IMAGES:
        x = floats(rng, 2, channels, side, side)
        yield sized("Conv", x, floats(rng, maps, channels, 1, 1), floats(rng, maps), constants=(1, 2))
        yield sized("Conv", x, floats(rng, maps, channels, 3, 3), constants=(1,), pads=(1, 1, 1, 1), strides=(2, 2))
        yield sized("Conv", x, floats(rng, maps, channels, 3, 3), constants=(1,), pads=(1, 1, 1, 1))
        yield sized("Conv", x, floats(rng, channels, 1, 3, 3), constants=(1,), group=channels, pads=(1, 1, 1, 1))
        whole = bytes_of(rng, 1, channels, side, side)
        yield sized("ConvInteger", whole, bytes_of(rng, maps, channels, 3, 3), constants=(1,), pads=(1, 1, 1, 1))
        depthwise = bytes_of(rng, channels, 1, 3, 3)
        yield sized("ConvInteger", whole, depthwise, constants=(1,), group=channels, pads=(1, 1, 1, 1), strides=(2, 2))
        yield sized("ConvTranspose", x, floats(rng, channels, 3, 2, 2), constants=(1,), strides=(2, 2))
        yield sized("MaxPool", x, kernel_shape=(3, 3), pads=(1, 1, 1, 1))
        yield sized("AveragePool", x, kernel_shape=(2, 2), pads=(1, 1, 1, 1), strides=(2, 2))
        yield sized("GlobalAveragePool", x)
        yield sized("Gather", x, rng.integers(0, side, (maps,)), axis=2)
        yield sized("Concat", x, x, axis=1)
        scales = np.array([1, 1, 2, 2], np.float32)
        yield sized("Resize", x, np.zeros(0, np.float32), scales, constants=(1, 2), mode="linear")
