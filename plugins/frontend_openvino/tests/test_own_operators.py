"""Operators of this package: what they refuse, other types, and regions that are nowhere."""

import tracemalloc
from typing import Any

import numpy as np
import openvino as ov
import pytest
from openvino import opset14
from openvino.utils.node_factory import NodeFactory

from dovetail.errors import OperatorError, ShapeError
from dovetail.op import TensorType
from dovetail_frontend_openvino.operators import (
    CTCLoss,
    DetectronDetectionOutput,
    DetectronROIFeatureExtractor,
    GatherTree,
    GenerateProposals,
    Inverse,
    MatrixNms,
    MulticlassNms,
    NMSRotated,
    Proposal,
    PSROIPooling,
    ROIAlignRotated,
    SparseFillEmptyRows,
)

SIZES = {"base_size": 4, "pre_nms_topn": 9, "post_nms_topn": 3, "feat_stride": 8, "min_size": 1}
PROPOSAL = {**SIZES, "nms_thresh": 0.5, "ratio": (1.0,), "scale": (1.0,)}
PROPOSALS = {"min_size": 1.0, "nms_threshold": 0.5, "pre_nms_count": 9, "post_nms_count": 3}
DETECTION = {"score_threshold": 0.1, "nms_threshold": 0.5, "num_classes": 2, "post_nms_count": 5, "max_delta_log_wh": 4.0}
PYRAMID = {"output_size": 2, "sampling_ratio": 2, "pyramid_scales": (4, 8)}
ROTATED = {"pooled_h": 2, "pooled_w": 2, "sampling_ratio": 0, "spatial_scale": 1.0, "clockwise_mode": True}


def of(*shape: int, dtype: Any = np.float32) -> TensorType:
    """The type of zeros, which are not known while planning."""
    return TensorType.of(np.zeros(shape, dtype))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"label_length": [3, 3]}, "not 0 to 3, the labels no more than the logits"),
        ({"label_length": [-1, 1]}, "not 0 to 3, the labels no more than the logits"),
        ({"logit_length": [4, 2]}, "not 0 to 3, the labels no more than the logits"),
        ({"labels": [[0, 1, 0], [2, 0, 0]]}, "input 'labels' has labels outside 0 to 1"),
        ({"labels": [[0, 1, 0], [-1, 0, 0]]}, "input 'labels' has labels outside 0 to 1"),
        ({"blank_index": 2}, "input 'blank_index' is 2; accepted: 0 to 1"),
        ({"blank_index": -1}, "input 'blank_index' is -1; accepted: 0 to 1"),
    ],
)
def test_losses_of_sequences_that_there_are_not(changed: Any, message: str) -> None:
    given = {"logit_length": [3, 2], "labels": [[0, 1, 0], [1, 0, 0]], "label_length": [2, 1], "blank_index": 1, **changed}
    arrays = [np.array(value, np.int32) for value in given.values()]
    with pytest.raises(OperatorError, match=message):
        CTCLoss().reference(np.zeros((2, 3, 2), np.float32), *arrays)


@pytest.mark.parametrize("wrong", range(5))
def test_shapes_of_losses(wrong: int) -> None:
    shapes: list[tuple[int, ...]] = [(2, 3, 4), (2,), (2, 3), (2,), ()]
    shapes[wrong] = (3, 3)
    types = [of(*shape, dtype=np.float32 if index == 0 else np.int32) for index, shape in enumerate(shapes)]
    with pytest.raises(ShapeError, match=r"accepted: \[N, T, C\], \[N, T\], \[N\], \[N\], and one element as 'blank_index'"):
        CTCLoss().infer(*types)


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


def test_regions_far_larger_than_the_picture() -> None:
    """Samples outside are not computed: of ones, a mean is the share of samples inside."""
    picture, side = np.ones((1, 1, 6, 6), np.float32), np.float32(4000)
    extractor = DetectronROIFeatureExtractor(**{**PYRAMID, "sampling_ratio": 0, "pyramid_scales": (1,)})
    rotated = ROIAlignRotated(**ROTATED)
    zero = np.zeros(1, np.int64)
    found = extractor.reference(np.float32([[0, 0, side, side]]), picture)
    np.testing.assert_allclose(found[0, 0], [[(6 / side * 2) ** 2, 0], [0, 0]], rtol=0.3)
    found = rotated.reference(picture, np.float32([[3, 3, side, side, 0.3]]), zero)
    np.testing.assert_allclose(found[0, 0].sum(), 49 / side**2 * 4, rtol=0.3)
    tracemalloc.start()
    assert extractor.reference(np.float32([[-4e9, -4e9, 4e9, 4e9]]), picture).max() < 1e-6
    assert rotated.reference(picture, np.float32([[3, 3, 4e9, 4e9, 0.3]]), zero).max() < 1e-6
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 24
    for strange in (np.nan, np.inf, -np.inf, 3e38):
        assert np.isfinite(extractor.reference(np.full((1, 4), strange, np.float32), picture)).all()
        with pytest.raises(OperatorError, match=r"'rois' has numbers that are not finite, or above 1e\+15"):
            rotated.reference(picture, np.full((1, 5), strange, np.float32), zero)
    assert extractor.reference(np.float32([[0, 0, 3e38, 3e38]]), picture).max() < 1e-6


@pytest.mark.parametrize(
    ("cls", "attributes", "message"),
    [
        (PSROIPooling, {"output_dim": 1, "group_size": 1, "spatial_scale": 1.0, "mode": "max"}, "accepted: average, bilinear"),
        (PSROIPooling, {"output_dim": 0, "group_size": 1, "spatial_scale": 1.0}, "'output_dim' is 0; accepted: 1 or more"),
        (Proposal, {**PROPOSAL, "framework": "caffe"}, "accepted: '', 'tensorflow'"),
        (Proposal, {**PROPOSAL, "post_nms_topn": 0}, "'post_nms_topn' is 0; accepted: 1 or more"),
        (Proposal, {**PROPOSAL, "ratio": (0.0,)}, "accepted: numbers above 0"),
        (MatrixNms, {"sort_result_type": "box"}, "'sort_result_type' is 'box'; accepted: none, score, classid"),
        (MatrixNms, {"decay_function": "cubic"}, "'decay_function' is 'cubic'; accepted: linear, gaussian"),
        (MulticlassNms, {"keep_top_k": -2}, r"'keep_top_k' is -2; accepted: -1 \(all\) or more"),
        (GenerateProposals, {**PROPOSALS, "pre_nms_count": 0}, "'pre_nms_count' is 0; accepted: 1 or more"),
        (
            DetectronDetectionOutput,
            {**DETECTION, "max_detections_per_image": 3, "deltas_weights": (1.0, 0.0, 1.0, 1.0)},
            "accepted: 4 numbers but 0",
        ),
        (
            DetectronDetectionOutput,
            {**DETECTION, "max_detections_per_image": 0, "deltas_weights": (1.0,) * 4},
            "'max_detections_per_image' is 0; accepted: 1 or more",
        ),
        (DetectronROIFeatureExtractor, {**PYRAMID, "pyramid_scales": ()}, "accepted: from 1 on, 0 to 32768, 1 on"),
        (ROIAlignRotated, {**ROTATED, "sampling_ratio": -1}, "accepted: 1 or more, 1 or more, 0 to 32768"),
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


@pytest.mark.parametrize(
    ("op", "types", "accepted"),
    [
        (
            SparseFillEmptyRows(),
            [of(3), of(2, dtype=np.int64), of(4, 2, dtype=np.int64), of()],
            r"\[n\], \[2\], \[n, 2\], one element",
        ),
        (MatrixNms(), [of(1, 5, 4), of(1, 2, 6)], r"\[N, M, 4\] and \[N, C, M\]"),
        (MulticlassNms(), [of(1, 5, 3), of(1, 2, 5), None], r"\[N, M, 4\] and \[N, C, M\]"),
        (MulticlassNms(), [of(2, 5, 4), of(2, 5), None], r"\[C, M, 4\], \[C, M\], \[N\]"),
        (NMSRotated(), [of(1, 5, 4), of(1, 2, 5), of(), of(), of()], r"\[N, M, 5\] and \[N, C, M\]"),
        (NMSRotated(), [of(1, 5, 5), of(1, 2, 5), of(2), of(), of()], "one element each"),
        (ROIAlignRotated(**ROTATED), [of(1, 2, 3, 4), of(2, 4), of(2)], r"\[N, C, H, W\], \[n, 5\], \[n\]"),
        (GenerateProposals(**PROPOSALS), [of(1, 3), of(4), of(1, 4, 1, 1), of(1, 1, 1, 1)], "ranks 2, 4, 4"),
        (GenerateProposals(**PROPOSALS), [of(1, 2), of(1, 1, 1, 4), of(1, 4, 1, 1), of(1, 1, 1, 1)], r"\[N, 3 or 4\]"),
        (
            DetectronDetectionOutput(**DETECTION, max_detections_per_image=3, deltas_weights=(1.0,) * 4),
            [of(5, 4), of(5, 4), of(5, 2), of(1, 3)],
            r"\[n, 4\], \[n, 8\], \[n, 2\]",
        ),
        (DetectronROIFeatureExtractor(**PYRAMID), [of(5, 4), of(1, 2, 3, 3)], r"\[n, 4\], 2 of \[1, C, H, W\]"),
        (DetectronROIFeatureExtractor(**PYRAMID), [of(5, 4), of(2, 2, 3, 3), of(2, 2, 3, 3)], r"\[1, C, H, W\]"),
    ],
)
def test_shapes_of_detectors(op: Any, types: Any, accepted: str) -> None:
    with pytest.raises(ShapeError, match=f"accepted: {accepted}"):
        op.infer(*types)


def test_pictures_that_there_are_not() -> None:
    data, rois = np.zeros((1, 2, 3, 4), np.float32), np.ones((1, 5), np.float32)
    with pytest.raises(OperatorError, match="'batch_indices' has 1 to 1; accepted: 0 to 0"):
        ROIAlignRotated(**ROTATED).reference(data, rois, np.array([1]))
    with pytest.raises(OperatorError, match=r"'roisnum' is .*; accepted: numbers from 0 on, 3 in all"):
        MulticlassNms().reference(np.zeros((2, 3, 4), np.float32), np.zeros((2, 3), np.float32), np.array([2, 2]))


@pytest.mark.parametrize("place", [[2, 0], [0, 3], [-1, 0]])
def test_elements_that_there_are_not(place: Any) -> None:
    values, shape = np.zeros(1, np.float32), np.array([2, 3])
    with pytest.raises(OperatorError, match=r"'indices' names elements outside a matrix of \[2, 3\]"):
        SparseFillEmptyRows().reference(values, shape, np.array([place]), values[0])


def test_no_boxes() -> None:
    """Every output is empty: no boxes, no classes, no scores above the threshold."""
    boxes, scores = np.zeros((2, 3, 4), np.float32), np.zeros((2, 2, 3), np.float32)
    for empty in ((boxes, scores), (boxes[:, :0], scores[..., :0]), (boxes, scores[:, :0])):
        for op in (MatrixNms(), MulticlassNms(score_threshold=0.5)):
            rows, places, counts = op.reference(*empty, *([None] if isinstance(op, MulticlassNms) else []))
            assert (rows.shape, places.shape, counts.tolist()) == ((0, 6), (0, 1), [0, 0])
    limits = (np.array(3), np.float32(0.5), np.float32(0.5))
    found, values, count = NMSRotated().reference(np.zeros((2, 3, 5), np.float32), scores, *limits)
    assert (found.shape, values.shape, count.tolist()) == ((0, 3), (0, 3), [0])


def test_regions_fewer_than_rows(core: Any, saved: Any) -> None:
    """ExperimentalDetectronTopKROIs fills up with zeros; OpenVINO leaves these rows as they are."""
    rois, probs = np.arange(8, dtype=np.float32).reshape(2, 4), np.float32([0.1, 0.7])
    parameters = [ov.opset6.parameter(array.shape, np.float32) for array in (rois, probs)]
    node = NodeFactory("opset6").create("ExperimentalDetectronTopKROIs", parameters, {"max_rois": 3})
    model = core.read_model(saved(ov.Model([node], parameters)))
    found = core.compile_model(model, "NUMPY")([rois, probs])[0]
    np.testing.assert_array_equal(found, [*rois[::-1], [0, 0, 0, 0]])
