"""Cases of MatMulBnb4: numbers unpacked one by one."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing import Case
from dovetail_ops_onnxruntime_contrib.mat_mul_bnb4 import MatMulBnb4

# https://arxiv.org/abs/2305.14314, appendix E, and the table of bitsandbytes
_NF4 = [-1.0, -0.69619280, -0.52507305, -0.39491749, -0.28444138, -0.18477343, -0.09105004, 0.0]
_NF4 += [0.07958030, 0.16093020, 0.24611230, 0.33791524, 0.44070983, 0.56261700, 0.72295684, 1.0]
_FP4 = [sign * x / 12 for sign in (1, -1) for x in (0, 0.0625, 8, 12, 4, 6, 2, 3)]


def mat_mul_bnb4(rng: np.random.Generator) -> Iterator[Case]:
    """Both sorts of numbers, both factors, blocks that end within rows, a last block that is not full."""
    n, k, block = 5, 6, 16
    absmax = rng.uniform(0.1, 2, 2).astype(np.float32)
    packed = rng.integers(0, 256, n * k // 2).astype(np.uint8)
    for kind, numbers in enumerate((_FP4, _NF4)):
        codes = [nibble for byte in packed.tolist() for nibble in (byte >> 4, byte & 15)]
        weights = np.array([numbers[code] * float(absmax[at // block]) for at, code in enumerate(codes)]).reshape(n, k)
        for transposed in (True, False):
            a = rng.standard_normal((2, 3, k if transposed else n)).astype(np.float32)
            want = (a.astype(np.float64) @ (weights.T if transposed else weights)).astype(np.float32)
            op = MatMulBnb4(K=k, N=n, block_size=block, quant_type=kind, transB=transposed)
            name = f"{('fp4', 'nf4')[kind]}_{transposed}"
            yield Case(name, op, (a, packed, absmax), (want,), constants=(1, 2), rtol=1e-4, atol=1e-5)
