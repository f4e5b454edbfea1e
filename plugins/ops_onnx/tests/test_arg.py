"""ArgMax and ArgMin along an axis that is not the last: plane by plane."""

from typing import Any

import numpy as np
import pytest

from dovetail_ops_onnx import _arg
from dovetail_ops_onnx.arg_max import ArgMax
from dovetail_ops_onnx.arg_min import ArgMin


def _index(line: list[Any], largest: bool, last: bool) -> int:
    """NaN is the extreme."""
    found = [i for i, v in enumerate(line) if v != v]
    found = found or [i for i, v in enumerate(line) if v == (max(line) if largest else min(line))]
    return found[-1 if last else 0]


@pytest.mark.parametrize(("part", "long"), [(1, _arg._LONG), (_arg._PART, _arg._LONG), (1, 64)])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("op", [ArgMax, ArgMin])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint64"])
def test_planes(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, dtype: str, op: Any, last: bool, part: int, long: int
) -> None:
    """Equal elements, one plane, the most planes, and NaN in some places."""
    monkeypatch.setattr(_arg, "_PART", part)
    monkeypatch.setattr(_arg, "_LONG", long)
    for count, nan in ((1, False), (5, False), (5, True), (_arg._MANY, False), (_arg._MANY + 1, False)):
        x = rng.integers(0, 5, (2, count, 3, 67)).astype(dtype)
        if nan and x.dtype.kind == "f":
            x[rng.random(x.shape) < 0.02] = np.nan
        x.flags.writeable = False
        got = op(axis=1, keepdims=False, select_last_index=last).reference(x)
        lines = np.moveaxis(x, 1, -1).reshape(-1, count).tolist()
        assert got.dtype == np.int64
        assert got.reshape(-1).tolist() == [_index(line, op is ArgMax, last) for line in lines]
        kept = op(axis=-3, select_last_index=last).reference(x)
        np.testing.assert_array_equal(kept, got[:, None])


@pytest.mark.parametrize("last", [False, True])
def test_more_planes_than_a_byte_counts(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, last: bool) -> None:
    monkeypatch.setattr(_arg, "_LONG", 64)
    x = rng.integers(0, 400, (300, 64)).astype(np.float32)
    found = ArgMax(axis=0, keepdims=False, select_last_index=last).reference(x)
    assert found.tolist() == [_index(line, True, last) for line in x.T.tolist()]


def test_no_batch() -> None:
    assert ArgMax(axis=1).reference(np.zeros((0, 3, 70), np.float32)).shape == (0, 1, 70)
