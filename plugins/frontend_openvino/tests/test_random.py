"""Random numbers lie where OpenVINO's do; with a seed they are the same at every run."""

from typing import Any

import numpy as np
import openvino as ov
import pytest
from openvino import opset8, opset13

from dovetail.errors import FormatError


def uniform(core: Any, saved: Any, low: Any, high: Any, kind: str, seed: int = 0) -> list[Any]:
    shape = opset13.parameter([2], np.int32, name="shape")
    bounds = [opset13.constant(np.array(value, np.float32 if kind.startswith("f") else np.int64)) for value in (low, high)]
    if not kind.startswith("f"):
        bounds = [opset13.convert(one, kind) for one in bounds]
    node = opset8.random_uniform(shape, *bounds, kind, 0, seed)
    compiled = core.compile_model(core.read_model(saved(ov.Model([node], [shape]))), "NUMPY")
    return [compiled([np.int32([40, 50])])[0] for _ in range(2)]


@pytest.mark.parametrize("kind", ["f32", "i32", "i64"])
@pytest.mark.parametrize("seed", [0, 7])
def test_uniform(core: Any, saved: Any, kind: str, seed: int) -> None:
    first, second = uniform(core, saved, [-2], 5, kind, seed)
    assert first.shape == (40, 50)
    assert first.dtype == {"f32": np.float32, "i32": np.int32, "i64": np.int64}[kind]
    assert np.array_equal(first, second) == (seed != 0)
    if kind == "f32":
        assert first.min() >= -2
        assert first.max() < 5
        assert abs(first.mean() - 1.5) < 0.2
    else:
        assert set(np.unique(first)) == {-2, -1, 0, 1, 2, 3, 4}


@pytest.mark.parametrize("logarithms", [False, True])
def test_multinomial(core: Any, saved: Any, logarithms: bool) -> None:
    probabilities = np.float32([[0.7, 1e-30, 0.3], [1e-30, 1.0, 1e-30]])
    given = np.log(probabilities) if logarithms else probabilities
    x = opset13.parameter([2, 3], np.float32, name="x")
    node = opset13.multinomial(x, opset13.constant(np.int32(2000)), "i64", True, logarithms)
    found = core.compile_model(core.read_model(saved(ov.Model([node], [x]))), "NUMPY")([given])[0]
    assert (found.shape, found.dtype) == ((2, 2000), np.int64)
    shares = np.bincount(found[0], minlength=3) / 2000
    np.testing.assert_allclose(shares, probabilities[0], atol=0.06)
    assert (found[1] == 1).all()


def test_samples_without_replacement_are_refused(core: Any, saved: Any) -> None:
    x = opset13.parameter([2, 3], np.float32, name="x")
    node = opset13.multinomial(x, opset13.constant(np.int32(2)), "i64", False, False)
    with pytest.raises(FormatError, match="'with_replacement' is false"):
        core.read_model(saved(ov.Model([node], [x])))
