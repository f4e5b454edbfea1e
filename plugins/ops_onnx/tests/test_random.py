"""Operators that draw random numbers: their distribution, and the same numbers again with a seed, others without."""

from typing import Any

import numpy as np
import pytest

from dovetail.op import Operator
from dovetail_ops_onnx.bernoulli import Bernoulli
from dovetail_ops_onnx.dropout import Dropout
from dovetail_ops_onnx.multinomial import Multinomial
from dovetail_ops_onnx.random_normal import RandomNormal
from dovetail_ops_onnx.random_normal_like import RandomNormalLike
from dovetail_ops_onnx.random_uniform import RandomUniform
from dovetail_ops_onnx.random_uniform_like import RandomUniformLike

_COUNT = 20_000
_X = np.zeros(_COUNT, np.float32)


def _drawn(op: Operator, *inputs: Any) -> Any:
    assert op.is_random
    given = op.reference(*inputs)
    return given[0] if isinstance(given, tuple) else given


@pytest.mark.parametrize(
    ("op", "inputs", "mean", "deviation"),
    [
        (RandomNormal(shape=(_COUNT,), mean=3.0, scale=2.0, seed=1.0), (), 3.0, 2.0),
        (RandomNormalLike(mean=-1.0, scale=0.5, seed=7.5), (_X,), -1.0, 0.5),
        (RandomUniform(shape=(_COUNT,), low=2.0, high=8.0, seed=1.0), (), 5.0, 6 / 12**0.5),
        (RandomUniformLike(seed=0.0), (_X,), 0.5, 1 / 12**0.5),
        (Bernoulli(seed=4.0), (_X + np.float32(0.25),), 0.25, (0.25 * 0.75) ** 0.5),
        (Multinomial(sample_size=_COUNT, seed=4.0), (np.log(np.array([[1, 3]], np.float32)),), 0.75, (0.25 * 0.75) ** 0.5),
        (Dropout(seed=4), (_X + 1, np.float32(0.2), np.True_), 1.0, (0.25**2 * 0.8 + 0.2) ** 0.5),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Operator) else "",
)
def test_mean_and_deviation_and_seed(op: Operator, inputs: tuple[Any, ...], mean: float, deviation: float) -> None:
    y = _drawn(op, *inputs).astype(np.float64)
    assert abs(y.mean() - mean) < 5 * deviation / _COUNT**0.5
    assert abs(y.std() - deviation) < 0.03 * deviation
    np.testing.assert_array_equal(_drawn(op, *inputs), y)
    values = {name: getattr(op, name) for name in op.attributes}
    for other in (None, 99):
        changed = type(op)(**{**values, "seed": other})
        assert not np.array_equal(_drawn(changed, *inputs), y)


def test_uniform_numbers_stay_between_the_bounds() -> None:
    y = _drawn(RandomUniform(shape=(_COUNT,), low=-1.0, high=2.0, seed=3.0))
    assert y.min() >= -1
    assert y.max() <= 2


def test_dropout_keeps_what_the_mask_says() -> None:
    x = np.arange(1, 101, dtype=np.float32)
    y, mask = Dropout().reference(x, np.float32(0.5), np.True_)
    np.testing.assert_array_equal(y, np.where(mask, 2 * x, 0))
    assert 10 < mask.sum() < 90
