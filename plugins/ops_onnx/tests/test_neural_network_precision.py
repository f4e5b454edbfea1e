"""The neural-network references compute float16 and bfloat16 in float32 and round once, and stay in float64 for float64."""

from typing import Any

import numpy as np
import pytest

from dovetail.graph import DType, TensorType
from dovetail_ops_onnx import find

_X = (2, 4, 6, 5)
_OPERATORS: list[tuple[str, int, dict[str, Any], tuple[tuple[int, ...], ...]]] = [
    ("Conv", 22, {"group": 2}, (_X, (6, 2, 3, 3), (6,))),
    ("ConvTranspose", 22, {"strides": (2, 1)}, (_X, (4, 3, 3, 2), (3,))),
    ("DeformConv", 22, {"offset_group": 2}, (_X, (6, 4, 3, 3), (2, 36, 4, 3), (6,), (2, 18, 4, 3))),
    ("MaxPool", 22, {"kernel_shape": (2, 2)}, (_X,)),
    ("AveragePool", 22, {"kernel_shape": (3, 2), "pads": (1, 1, 1, 1)}, (_X,)),
    ("GlobalAveragePool", 22, {}, (_X,)),
    ("GlobalMaxPool", 22, {}, (_X,)),
    ("BatchNormalization", 15, {}, (_X, (4,), (4,), (4,), (4,))),
    ("InstanceNormalization", 22, {}, (_X, (4,), (4,))),
    ("LayerNormalization", 17, {}, (_X, (5,), (5,))),
    ("GroupNormalization", 21, {"num_groups": 2}, (_X, (4,), (4,))),
    ("RMSNormalization", 23, {}, (_X, (5,))),
    ("LRN", 13, {"size": 3}, (_X,)),
    ("LpNormalization", 22, {"p": 1}, (_X,)),
    ("Softmax", 13, {"axis": 1}, (_X,)),
    ("LogSoftmax", 13, {}, (_X,)),
    ("Hardmax", 13, {}, (_X,)),
    ("Gemm", 13, {"alpha": 0.3}, ((7, 9), (9, 5), (5,))),
    ("MatMul", 13, {}, ((2, 7, 9), (9, 5))),
    *((f"Reduce{kind}", 28, {}, (_X,)) for kind in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp")),
    ("ReduceSumSquare", 18, {}, (_X,)),
    ("RNN", 22, {}, ((3, 2, 4), (1, 5, 4), (1, 5, 5), (1, 10))),
    ("GRU", 22, {}, ((3, 2, 4), (1, 15, 4), (1, 15, 5), (1, 30))),
    ("LSTM", 22, {}, ((3, 2, 4), (1, 20, 4), (1, 20, 5), (1, 40))),
]
_every_operator = pytest.mark.parametrize(
    ("op_type", "version", "attributes", "shapes"), _OPERATORS, ids=[o[0] for o in _OPERATORS]
)


def _run(op_type: str, version: int, attributes: dict[str, Any], inputs: list[Any]) -> Any:
    cls = find(op_type, version)
    assert cls is not None
    op = cls.from_attributes(attributes)
    types = op.infer(*(TensorType.of(a) for a in inputs))
    outputs = op.reference(*inputs)
    first, array = (types[0], outputs[0]) if isinstance(types, tuple) else (types, outputs)
    assert TensorType.of(array) == first
    return array


@_every_operator
@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16])
def test_a_narrow_result_is_rounded_once(
    op_type: str, version: int, attributes: dict[str, Any], shapes: tuple[tuple[int, ...], ...], dtype: DType
) -> None:
    rng = np.random.default_rng(11)
    narrow = [rng.uniform(0.1, 1.5, shape).astype(dtype.numpy) for shape in shapes]
    wide = _run(op_type, version, attributes, [a.astype(np.float32) for a in narrow])
    got = _run(op_type, version, attributes, narrow)
    assert got.dtype == dtype.numpy
    np.testing.assert_array_equal(got.astype(np.float32), wide.astype(dtype.numpy).astype(np.float32))


@_every_operator
def test_float64_is_computed_in_float64(
    op_type: str, version: int, attributes: dict[str, Any], shapes: tuple[tuple[int, ...], ...]
) -> None:
    """Inputs that differ by less than float32 can hold must give results that differ, unless the result is 0 or 1 only."""
    rng = np.random.default_rng(12)
    inputs = [rng.uniform(0.1, 1.5, shape) for shape in shapes]
    got = _run(op_type, version, attributes, inputs)
    assert got.dtype == np.float64
    if op_type != "Hardmax":
        assert np.any(got != got.astype(np.float32))


def test_a_float16_sum_does_not_overflow_on_the_way() -> None:
    x = np.full((1, 1, 300, 300), 60.0, np.float16)
    assert _run("GlobalAveragePool", 1, {}, [x]).item() == 60
    assert _run("ReduceMean", 18, {}, [x]).item() == 60


def test_integers_interpolate_to_the_nearest_bound_when_a_cubic_overshoots() -> None:
    cls = find("Resize", 13)
    assert cls is not None
    x = np.array([[0, 0, 255, 255, 0, 0]], np.uint8)
    y = cls.from_attributes({"mode": "cubic"}).reference(x, None, None, np.array([1, 18]))
    exact = cls.from_attributes({"mode": "cubic"}).reference(x.astype(np.float64), None, None, np.array([1, 18]))
    assert exact.min() < 0
    assert exact.max() > 255
    np.testing.assert_array_equal(y, np.clip(np.trunc(exact), 0, 255).astype(np.uint8))
