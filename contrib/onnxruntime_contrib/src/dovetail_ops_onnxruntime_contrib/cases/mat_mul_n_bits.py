"""Cases of MatMulNBits: weights unpacked one by one."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing import Case
from dovetail_ops_onnxruntime_contrib.mat_mul_n_bits import MatMulNBits

Array = NDArray[Any]


def mat_mul_n_bits(rng: np.random.Generator) -> Iterator[Case]:
    """2, 4 and 8 bits, zero points of each sort, an index of groups, a bias, batch 0."""
    k, n, block, blocks = 20, 3, 8, 3
    a = rng.standard_normal((2, k)).astype(np.float32)
    scales, bias = rng.uniform(0.1, 1, (n, blocks)).astype(np.float32), rng.standard_normal(n).astype(np.float32)
    for bits in (2, 4, 8):
        packed = rng.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8)
        zeros = rng.integers(0, 256, (n, -(-blocks * bits // 8))).astype(np.uint8)
        op = MatMulNBits(K=k, N=n, block_size=block, bits=bits)
        q = _unpacked(packed.reshape(n, -1), bits)
        middle = np.full((n, blocks), 2.0 ** (bits - 1))
        groups = np.arange(k) // block
        inputs: tuple[Array | None, ...] = (a, packed, scales)
        yield _case(f"bits_{bits}", op, inputs, _product(a, q, scales, middle, groups))
        inputs = (a, packed, scales, zeros, None, bias)
        want = _product(a, q, scales, _unpacked(zeros, bits)[:, :blocks], groups) + bias
        yield _case(f"zero_points_{bits}", op, inputs, want)
        floats = rng.uniform(0, 3, (n, blocks)).astype(np.float32)
        index = rng.integers(0, blocks, k).astype(np.int32)
        yield _case(f"floats_{bits}", op, (a, packed, scales, floats, index), _product(a, q, scales, floats, index))
        yield _case(f"batch_0_{bits}", op, (a[:0], packed, scales), np.zeros((0, n)))


def _case(name: str, op: MatMulNBits, inputs: tuple[Array | None, ...], want: Array) -> Case:
    return Case(name, op, inputs, (want.astype(np.float32),), constants=tuple(range(1, 6)), rtol=1e-4, atol=1e-4)


def _unpacked(rows: Array, bits: int) -> Array:
    return np.array([[(int(byte) >> at) % 2**bits for byte in row for at in range(0, 8, bits)] for row in rows])


def _product(a: Array, q: Array, scales: Array, zeros: Array, groups: Array) -> Array:
    y = np.zeros((len(a), len(q)))
    for row, column in np.ndindex(*y.shape):
        for k, group in enumerate(groups):
            weight = (int(q[column, k]) - float(zeros[column, group])) * float(scales[column, group])
            y[row, column] += float(a[row, k]) * weight
    return y
