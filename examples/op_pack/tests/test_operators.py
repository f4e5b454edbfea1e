"""Behaviour that cases cannot express: refusals, and flows that lead nowhere."""

import numpy as np
import pytest

import dovetail
from dovetail.errors import OperatorError, ShapeError
from dovetail.graph import DType, TensorType
from dovetail.testing import Case, passed
from vision_ops import FlowWarp, ImageToTensor


@pytest.mark.parametrize("device", dovetail.Core().available_devices)
@pytest.mark.parametrize(("outside", "expected"), [("zeros", [[0, 0, 0], [0, 0, 4]]), ("edge", [[3, 1, 1], [3, 3, 4]])])
def test_flows_far_outside_and_nan(device: str, outside: str, expected: list[list[float]]) -> None:
    x = np.float32([[[[1, 2, 3], [1, 4, 3]]]])
    flow = np.zeros((1, 2, 2, 3), np.float32)
    flow[0, 0] = [[1e30, -1e30, -np.inf], [np.nan, 5, -1]]
    case = Case("far", FlowWarp(outside=outside), (x, flow), (np.float32([[expected]]),))
    with dovetail.Core().compile_model(case.model(), device) as compiled:
        assert not passed(case, [compiled(case.feeds())[0]])


def test_float16_is_computed_wide_and_rounded_once() -> None:
    rng = np.random.default_rng(3)
    x, flow = rng.normal(size=(1, 2, 4, 5)).astype(np.float16), rng.uniform(-1, 1, (1, 2, 4, 5)).astype(np.float16)
    y = FlowWarp().reference(x, flow)
    wide = FlowWarp().reference(x.astype(np.float64), flow.astype(np.float64))
    assert y.dtype == np.float16
    np.testing.assert_allclose(y.astype(np.float64), wide, rtol=2.0**-10, atol=1e-6)


def test_attributes_that_make_no_sense() -> None:
    with pytest.raises(OperatorError, match="outside is 'mirror'; accepted: zeros, edge"):
        FlowWarp(outside="mirror")
    with pytest.raises(OperatorError, match="mean has 3 numbers and std 1"):
        ImageToTensor(mean=(1.0, 2.0, 3.0), std=(1.0,))
    with pytest.raises(OperatorError, match=r"std is \[0.0\]"):
        ImageToTensor(mean=(1.0,), std=(0.0,))


def test_shapes_that_do_not_fit() -> None:
    picture = TensorType(DType.FLOAT32, (1, 3, 4, 5))
    with pytest.raises(ShapeError, match=r"flow is float32\[1, 3, 4, 5\]; accepted: \[1, 2, 4, 5\]"):
        FlowWarp().infer(picture, picture)
    with pytest.raises(ShapeError, match=r"accepted: \[N, C, H, W\]"):
        FlowWarp().infer(TensorType(DType.FLOAT32, (4, 5)), picture)
    with pytest.raises(ShapeError, match=r"accepted: \[N, H, W, 1\]"):
        ImageToTensor(mean=(0.0,), std=(1.0,)).infer(TensorType(DType.UINT8, (1, 3, 4, 5)))
