"""Floating-point operations of one run, counted by hand: `dovetail info` sums them up."""

from typing import Any

import pytest

from dovetail.graph import DType, TensorType
from dovetail.op import Operator
from dovetail_ops_onnx import find

Dims = tuple[int, ...]

COUNTED: list[tuple[str, dict[str, Any], list[Dims | None], Dims, int]] = [
    # A multiply-add is two; 30 results of 4 each.
    ("MatMul", {}, [(2, 3, 4), (4, 5)], (2, 3, 5), 30 * 2 * 4),
    ("MatMulInteger", {}, [(2, 3, 4), (4, 5)], (2, 3, 5), 30 * 2 * 4),
    ("Gemm", {}, [(3, 4), (4, 5)], (3, 5), 15 * 2 * 4),
    ("Gemm", {"transA": True}, [(4, 3), (4, 5), (5,)], (3, 5), 15 * (2 * 4 + 1)),
    ("Einsum", {"equation": "ij,jk->ik"}, [(2, 3), (3, 4)], (2, 4), 2 * 2 * 3 * 4),
    # Windows of 3 x 3 in the two channels of a group, and a bias.
    ("Conv", {"group": 2}, [(1, 4, 5, 5), (6, 2, 3, 3), (6,)], (1, 6, 3, 3), 54 * (2 * 18 + 1)),
    ("ConvInteger", {}, [(1, 4, 5, 5), (6, 4, 3, 3)], (1, 6, 3, 3), 54 * 2 * 36),
    # Each of 48 elements goes to a window of 2 x 2 in both output channels.
    ("ConvTranspose", {}, [(1, 3, 4, 4), (3, 2, 2, 2)], (1, 2, 5, 5), 48 * 2 * 8),
    ("ConvTranspose", {}, [(1, 3, 4, 4), (3, 2, 2, 2), (2,)], (1, 2, 5, 5), 48 * 2 * 8 + 50),
    # A convolution, whose 9 windows of 3 x 3 in 4 channels are sums of four products each.
    ("DeformConv", {"group": 2}, [(1, 4, 5, 5), (6, 2, 3, 3), (1, 18, 3, 3), (6,)], (1, 6, 3, 3), 54 * (2 * 18 + 1) + 9 * 36 * 8),
    ("MaxPool", {"kernel_shape": (2, 2)}, [(1, 2, 4, 4)], (1, 2, 3, 3), 18 * 4),
    ("AveragePool", {"kernel_shape": (2, 2)}, [(1, 2, 4, 4)], (1, 2, 3, 3), 18 * (4 + 1)),
    ("LpPool", {"kernel_shape": (2, 2)}, [(1, 2, 4, 4)], (1, 2, 3, 3), 18 * 2 * 4),
    ("GlobalAveragePool", {}, [(1, 2, 3, 3)], (1, 2, 1, 1), 18 + 2),
    ("GlobalMaxPool", {}, [(1, 2, 3, 3)], (1, 2, 1, 1), 18),
    ("GlobalLpPool", {}, [(1, 2, 3, 3)], (1, 2, 1, 1), 2 * 18),
    ("ReduceSum", {}, [(3, 4), (1,)], (3, 1), 12),
    ("ArgMax", {}, [(3, 4)], (1, 4), 12),
    ("TopK", {}, [(3, 4), (1,)], (3, 2), 12),
    ("LRN", {"size": 3}, [(1, 2, 3)], (1, 2, 3), 6 * (2 * 3 + 4)),
    # Five steps of two sequences; three inputs and four units before, to four gates of four units.
    ("LSTM", {"hidden_size": 4}, [(5, 2, 3), (1, 16, 3), (1, 16, 4)], (5, 1, 2, 4), 2 * 5 * 2 * 16 * (3 + 4)),
    # Six queries by fifteen keys in all heads: a product with keys of 4, one with values of 6, and a softmax.
    ("Attention", {}, [(1, 3, 2, 4), (1, 3, 5, 4), (1, 3, 5, 6)], (1, 3, 2, 6), 3 * 2 * 5 * (2 * 4 + 2 * 6 + 5)),
    # Two neighbours in linear interpolation and four in cubic, along each axis; nearest only moves.
    ("Resize", {"mode": "nearest"}, [(1, 1, 2, 2)], (1, 1, 4, 4), 0),
    ("Resize", {"mode": "linear"}, [(1, 1, 2, 2)], (1, 1, 4, 4), 16 * 4 * 2 * 2),
    ("Resize", {"mode": "cubic"}, [(1, 1, 2, 2)], (1, 1, 4, 4), 16 * 4 * 2 * 4),
    ("Upsample", {"mode": "nearest"}, [(1, 1, 2, 2), (4,)], (1, 1, 4, 4), 0),
    ("Upsample", {"mode": "linear"}, [(1, 1, 2, 2), (4,)], (1, 1, 4, 4), 16 * 4 * 2 * 2),
    ("Add", {}, [(3, 4), (3, 4)], (3, 4), 12),
    ("Transpose", {}, [(3, 4)], (4, 3), 0),
    ("Concat", {"axis": 0}, [(3, 4), (3, 4)], (6, 4), 0),
]


@pytest.mark.parametrize(("name", "attributes", "inputs", "output", "expected"), COUNTED, ids=lambda value: str(value)[:24])
def test_counted_by_hand(name: str, attributes: dict[str, Any], inputs: list[Dims | None], output: Dims, expected: int) -> None:
    found = find(name, 9 if name == "Upsample" else 24)
    assert found is not None
    op: Operator = found(**attributes)
    types = [None if dims is None else TensorType(DType.FLOAT32, dims) for dims in inputs]
    assert op.flops(types, [TensorType(DType.FLOAT32, output)]) == expected


def test_work_for_each_element() -> None:
    """Operators that compute each element from its line: so many operations for each, and more than one."""
    y = TensorType(DType.FLOAT32, (2, 3, 4))
    for name in ("Softmax", "LogSoftmax", "LayerNormalization", "RMSNormalization", "InstanceNormalization", "LpNormalization"):
        found = find(name, 24)
        assert found is not None
        work, rest = divmod(found().flops([y, None, None], [y]), y.size)
        assert (rest, 2 < work < 10) == (0, True), name
