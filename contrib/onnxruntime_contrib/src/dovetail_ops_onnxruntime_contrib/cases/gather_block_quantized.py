"""Cases of GatherBlockQuantized: numbers unpacked one by one."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing import Case
from dovetail_ops_onnxruntime_contrib.gather_block_quantized import GatherBlockQuantized


def gather_block_quantized(rng: np.random.Generator) -> Iterator[Case]:
    """2, 4 and 8 bits, zero points and none, an index outside."""
    rows, columns, blocks = 5, 40, 3
    scales = 2.0 ** rng.integers(-2, 3, (rows, blocks)).astype(np.float32)
    spread = scales.repeat(16, 1)[:, :columns]
    for bits in (2, 4, 8):
        q, zeros = rng.integers(0, 2**bits, (rows, columns)), rng.integers(0, 2**bits, (rows, blocks))
        op = GatherBlockQuantized(bits=bits, block_size=16)
        data, indices = _packed(q, bits), np.array([[4, -1], [0, -5]])
        floats = ((q - 2 ** (bits - 1)) * spread).astype(np.float32)
        yield Case(f"bits_{bits}", op, (data, indices, scales), (floats[indices],), constants=(0, 2))
        floats = ((q - zeros.repeat(16, 1)[:, :columns]) * spread).astype(np.float32)
        outside = np.array([1, 7, -6], np.int32)
        want = np.stack((floats[1], np.zeros(columns, np.float32), np.zeros(columns, np.float32)))
        inputs = (data, outside, scales, _packed(zeros, bits))
        yield Case(f"zero_points_{bits}", op, inputs, (want,), constants=(0, 2, 3))


def _packed(numbers: "np.typing.NDArray[np.int64]", bits: int) -> "np.typing.NDArray[np.uint8]":
    """Rows of numbers in bytes, the first in the lowest bits."""
    packed = np.zeros((len(numbers), -(-numbers.shape[1] * bits // 8)), np.uint8)
    for (row, column), number in np.ndenumerate(numbers):
        packed[row, column * bits // 8] |= number << column * bits % 8
    return packed
