"""MaxpoolGrad against a loop over windows in float64. TIM-VX's golden numbers are among its cases."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dovetail.errors import OperatorError
from dovetail_ops_onnx.max_pool import MaxPool
from dovetail_ops_tim_vx.cases.maxpool_grad import OVERLAPPING, UPDATES, placed
from dovetail_ops_tim_vx.maxpool_grad import MaxpoolGrad

Array = NDArray[Any]


def gradient(x: Array, dy: Array, kernel: tuple[int, int], strides: tuple[int, int], before: tuple[int, int]) -> Array:
    """Window by window in float64, the first of equal elements; `before` is the padding above and to the left."""
    result = np.zeros(x.shape)
    for n, c, i, j in np.ndindex(*dy.shape):
        best: tuple[int, int] | None = None
        for di, dj in np.ndindex(*kernel):
            place = (i * strides[0] + di - before[0], j * strides[1] + dj - before[1])
            inside = 0 <= place[0] < x.shape[2] and 0 <= place[1] < x.shape[3]
            if inside and (best is None or x[n, c][place] > x[n, c][best]):
                best = place
        assert best is not None
        result[n, c][best] += float(dy[n, c, i, j])
    return result


@pytest.mark.parametrize(
    ("attributes", "before"),
    [
        ({"kernel_shape": (3, 3), "strides": (1, 1)}, (0, 0)),
        ({"kernel_shape": (3, 2), "strides": (2, 1), "auto_pad": "SAME_UPPER"}, (1, 0)),
        ({"kernel_shape": (2, 2), "strides": (1, 1), "auto_pad": "SAME_LOWER"}, (1, 1)),
        ({"kernel_shape": (2, 2), "strides": (2, 2), "auto_pad": "NOTSET", "ceil_mode": True}, (0, 0)),
    ],
    ids=["valid", "same_upper", "same_lower", "ceil"],
)
def test_follows_the_loop(device: str, execute: Any, draw: Any, attributes: dict[str, Any], before: tuple[int, int]) -> None:
    x = draw(2, 3, 7, 5)
    shape = MaxPool(**attributes).reference(x)[0].shape
    dy = draw(*shape)
    (dx,) = execute(MaxpoolGrad(**attributes), (x, dy), device).outputs
    np.testing.assert_allclose(dx, gradient(x, dy, attributes["kernel_shape"], attributes["strides"], before), atol=1e-5)


def test_of_equal_elements_the_first_counts(device: str, execute: Any) -> None:
    x, dy = np.zeros((1, 1, 3, 3), np.float32), np.float32([[[[1, 2], [4, 8]]]])
    for value in (0.0, -np.inf, 3.0):
        (dx,) = execute(MaxpoolGrad(kernel_shape=(2, 2)), (x + np.float32(value), dy), device).outputs
        np.testing.assert_array_equal(dx[0, 0], placed((3, 3), (0, 0, 1), (0, 1, 2), (1, 0, 4), (1, 1, 8)))


def test_one_and_three_spatial_dimensions(device: str, execute: Any) -> None:
    (dx,) = execute(MaxpoolGrad(kernel_shape=(2,)), (np.float32([[[1, 5, 2, 5]]]), np.float32([[[1, 2, 4]]])), device).outputs
    np.testing.assert_array_equal(dx, [[[0, 3, 0, 4]]])
    x = np.arange(8, dtype=np.float32).reshape(1, 1, 2, 2, 2)
    (dx,) = execute(MaxpoolGrad(kernel_shape=(2, 2, 2)), (x, np.full((1, 1, 1, 1, 1), 5, np.float32)), device).outputs
    np.testing.assert_array_equal(dx.reshape(-1), [0, 0, 0, 0, 0, 0, 0, 5])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_floats(device: str, execute: Any, draw: Any, dtype: str) -> None:
    x, dy = draw(1, 2, 5, 5, dtype=dtype), draw(1, 2, 3, 3, dtype=dtype)
    (dx,) = execute(MaxpoolGrad(kernel_shape=(3, 3)), (x, dy), device).outputs
    expected = gradient(x.astype(np.float64), dy, (3, 3), (1, 1), (0, 0))
    assert dx.dtype == x.dtype
    np.testing.assert_allclose(dx.astype(np.float64), expected, rtol=1e-2 if dtype != "float64" else 1e-12, atol=1e-12)


def test_batch_0(device: str, execute: Any) -> None:
    arrays = np.zeros((0, 2, 4, 4), np.float32), np.zeros((0, 2, 3, 3), np.float32)
    assert execute(MaxpoolGrad(kernel_shape=(2, 2)), arrays, device).outputs[0].shape == (0, 2, 4, 4)


def test_updates_of_another_shape(execute: Any) -> None:
    with pytest.raises(OperatorError, match=r"'dY' is float32\[1, 1, 2, 2\]; accepted for X .*: shape \[1, 1, 3, 4\]"):
        execute(MaxpoolGrad(kernel_shape=(2, 2)), (OVERLAPPING[None, None], UPDATES[None, None]))


def test_the_kernel_is_required() -> None:
    with pytest.raises(OperatorError, match="'kernel_shape' is missing"):
        MaxpoolGrad.from_attributes({"strides": [1, 1]})
