"""Operators of this package: what they refuse, other types, and regions that are nowhere."""

from typing import Any

import numpy as np
import openvino as ov
import pytest
from openvino import opset14

from dovetail.errors import OperatorError, ShapeError
from dovetail.op import TensorType
from dovetail_frontend_openvino.operators import GatherTree, Inverse, Proposal, PSROIPooling

SIZES = {"base_size": 4, "pre_nms_topn": 9, "post_nms_topn": 3, "feat_stride": 8, "min_size": 1}
PROPOSAL = {**SIZES, "nms_thresh": 0.5, "ratio": (1.0,), "scale": (1.0,)}


def test_parents_outside_the_beams() -> None:
    steps = np.zeros((2, 1, 2), np.int32)
    parents = np.full((2, 1, 2), 2, np.int32)
    with pytest.raises(OperatorError, match=r"'parent_idx' at step 1 names a beam outside 0 to 1"):
        GatherTree().reference(steps, parents, np.array([2], np.int32), np.array(0, np.int32))
    one = GatherTree().reference(steps, parents, np.array([1], np.int32), np.array(9, np.int32))  # no parent is needed
    np.testing.assert_array_equal(one, [[[0, 0]], [[9, 9]]])


def test_matrices_without_an_inverse() -> None:
    with pytest.raises(OperatorError, match=r"'data' has a matrix without an inverse"):
        Inverse().reference(np.ones((2, 3, 3), np.float32))
    with pytest.raises(ShapeError, match=r"accepted: square matrices"):
        Inverse().infer(TensorType.of(np.zeros((2, 3), np.float32)))


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_inverses_of_other_types(dtype: Any, core: Any, saved: Any) -> None:
    """Against the inverse in float64; OpenVINO's CPU plugin computes both types in float32."""
    x = (np.random.default_rng(3).uniform(-1, 1, (2, 4, 4)) + 3 * np.eye(4)).astype(dtype)
    parameter = opset14.parameter([-1, -1, -1], dtype)
    model = core.read_model(saved(ov.Model([opset14.inverse(parameter)], [parameter])))
    found = core.compile_model(model, "NUMPY")([x])[0]
    assert found.dtype == dtype
    np.testing.assert_allclose(found, np.linalg.inv(x.astype(np.float64)), rtol=4 * np.finfo(dtype).eps, atol=np.finfo(dtype).eps)


@pytest.mark.parametrize("picture", [-1, 2, np.nan])
def test_regions_of_pictures_that_there_are_not(picture: float) -> None:
    op = PSROIPooling(output_dim=1, group_size=1, spatial_scale=1.0)
    with pytest.raises(OperatorError, match=r"'coords' names pictures outside 0 to 1"):
        op.reference(np.zeros((2, 1, 3, 3), np.float32), np.float32([[picture, 0, 0, 1, 1]]))


@pytest.mark.parametrize("mode", ["average", "bilinear"])
def test_regions_that_are_nowhere(mode: str) -> None:
    op = PSROIPooling(output_dim=1, group_size=1, spatial_scale=1.0, mode=mode)
    rois = np.float32([[0, np.nan, np.nan, np.nan, np.nan], [0, np.inf, 0, np.inf, 1], [0, -90, -90, -80, -80]])
    np.testing.assert_array_equal(op.reference(np.ones((1, 1, 3, 3), np.float32), rois), np.zeros((3, 1, 1, 1)))


@pytest.mark.parametrize(
    ("cls", "attributes", "message"),
    [
        (PSROIPooling, {"output_dim": 1, "group_size": 1, "spatial_scale": 1.0, "mode": "max"}, "accepted: average, bilinear"),
        (PSROIPooling, {"output_dim": 0, "group_size": 1, "spatial_scale": 1.0}, "'output_dim' is 0; accepted: 1 or more"),
        (Proposal, {**PROPOSAL, "framework": "caffe"}, "accepted: '', 'tensorflow'"),
        (Proposal, {**PROPOSAL, "post_nms_topn": 0}, "'post_nms_topn' is 0; accepted: 1 or more"),
        (Proposal, {**PROPOSAL, "ratio": (0.0,)}, "accepted: numbers above 0"),
    ],
)
def test_attributes(cls: Any, attributes: Any, message: str) -> None:
    with pytest.raises(OperatorError, match=message):
        cls(**attributes)


def test_shapes() -> None:
    of = [TensorType.of(np.zeros(shape, np.float32)) for shape in ((1, 2, 3, 4), (1, 4, 3, 5), (3,))]
    with pytest.raises(ShapeError, match=r"accepted: \[N, 2, H, W\], \[N, 4, H, W\], 3 or 4 numbers"):
        Proposal(**PROPOSAL).infer(*of)
    with pytest.raises(ShapeError, match=r"accepted: \[N, 9, H, W\] and \[regions, 5\], for mode average"):
        PSROIPooling(output_dim=1, group_size=3, spatial_scale=1.0).infer(*of[:2])
    with pytest.raises(ShapeError, match=r"accepted: \[steps, batch, beams\] twice"):
        GatherTree().infer(*of, of[2])
