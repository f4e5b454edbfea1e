"""ConvTranspose's reference against its definition: each element of the input, times the kernel, is added to the output."""

import itertools

import numpy as np
import pytest

from dovetail_ops_onnx.conv_transpose import ConvTranspose


@pytest.mark.parametrize("seed", range(12))
def test_the_reference_adds_what_the_pads_leave(seed: int) -> None:
    """Strides that leave gaps, dilations, groups, pads of several taps at either end, an output that some taps miss."""
    rng = np.random.default_rng(seed)
    sizes, kernel = rng.integers(1, 6, 2), rng.integers(1, 5, 2)
    strides, dilations = rng.integers(1, 4, 2), rng.integers(1, 4, 2)
    full = (sizes - 1) * strides + (kernel - 1) * dilations + 1
    begin = [int(rng.integers(0, n)) for n in full]
    end = [int(rng.integers(0, n - b)) for n, b in zip(full, begin, strict=True)]
    x, w = rng.standard_normal((2, 4, *sizes)), rng.standard_normal((4, 3, *kernel))
    expected = np.zeros((2, 6, *full))
    for c, m, i, j in itertools.product(range(4), range(3), *map(range, sizes)):
        places = [slice(p * s, p * s + (n - 1) * d + 1, d) for p, s, n, d in zip((i, j), strides, kernel, dilations, strict=True)]
        expected[(slice(None), c // 2 * 3 + m, *places)] += x[:, c, i, j, None, None] * w[c, m]
    expected = expected[(..., *(slice(b, n - e) for b, e, n in zip(begin, end, full, strict=True)))]
    op = ConvTranspose(group=2, strides=(*map(int, strides),), dilations=(*map(int, dilations),), pads=(*begin, *end))
    np.testing.assert_allclose(op.reference(x, w), expected, rtol=1e-12, atol=1e-12)


def test_the_reference_takes_memory_for_its_result_alone() -> None:
    """Without the pads it would be 2^40 numbers."""
    x, w = np.float64([[[1, 2, 3]]]), np.float64([[[5, 7]]])
    op = ConvTranspose(dilations=(1 << 40,), pads=((1 << 40) - 1, 0))
    np.testing.assert_array_equal(op.reference(x, w), [[[0, 7, 14, 21]]])
