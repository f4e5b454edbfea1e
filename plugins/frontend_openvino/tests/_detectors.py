"""Graphs of suppressions, proposals and features of regions; see `_operations.py`."""

import runpy
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from openvino import opset8, opset9, opset13, opset15
from openvino.utils.node_factory import NodeFactory

_GRAPHS = runpy.run_path(str(Path(__file__).with_name("_graphs.py")))
Operation, f, c = (_GRAPHS[name] for name in ("Operation", "f", "c"))
RNG = np.random.default_rng(20211125)


def _boxes(*shape: int, size: float = 1.0) -> Any:
    """Corners, of which about every other box overlaps a neighbour, and some have exchanged corners."""
    corners = RNG.uniform(0, size, (*shape, 2))
    sides = RNG.uniform(-0.02, 0.4, (*shape, 2)) * size
    return np.concatenate([corners, corners + sides], axis=-1).astype(np.float32)


def _scores(*shape: int) -> Any:
    """All different, in no order."""
    count = int(np.prod(shape))
    return (RNG.permutation(count).reshape(shape) / max(count, 1)).astype(np.float32)


def _matrix() -> Iterable[Any]:
    boxes, scores = _boxes(3, 17), _scores(3, 4, 17)
    for kind, across, decay in product(("none", "score", "classid"), (False, True), ("linear", "gaussian")):
        yield Operation(
            f"matrix nms {kind} {across} {decay}",
            lambda b, s, k=kind, a=across, d=decay: opset8.matrix_nms(b, s, k, a, "i64", 0.3, 9, 20, 1, d, 1.5, 0.25, True),
            (boxes, scores),
        )
    for limits in ((0.0, -1, -1, -1), (0.95, 3, 5, 0)):
        yield Operation(
            f"matrix nms {limits}",
            lambda b, s, o=limits: opset8.matrix_nms(b, s, "score", False, "i32", *o, "linear", 2.0, 0.1, False),
            (_boxes(2, 13, size=30), _scores(2, 3, 13)),
        )


def _multiclass() -> Iterable[Any]:
    boxes, scores = _boxes(3, 17), _scores(3, 4, 17)
    for kind, across, eta in product(("none", "score", "classid"), (False, True), (1.0, 0.6)):
        yield Operation(
            f"multiclass nms {kind} {across} {eta}",
            lambda b, s, k=kind, a=across, e=eta: opset8.multiclass_nms(b, s, k, a, "i64", 0.55, 0.2, 12, 25, 2, e, True),
            (boxes, scores),
        )
    for limits in ((0.0, 0.0, -1, -1, -1), (0.3, 0.9, 3, 5, 0), (0.5, 2.0, 4, 4, 9)):
        yield Operation(
            f"multiclass nms {limits}",
            lambda b, s, o=limits: opset8.multiclass_nms(b, s, "score", False, "i32", *o, 1.0, False),
            (_boxes(2, 13, size=30), _scores(2, 3, 13)),
        )
    for kind, counts in (("none", [5, 0, 7]), ("classid", [1, 9, 2])):
        yield Operation(
            f"multiclass nms rois {kind}",
            lambda b, s, n, k=kind: opset9.multiclass_nms(b, s, n, k, False, "i32", 0.4, 0.1, 6, 9, 1, 1.0, True),
            (_boxes(4, 12), _scores(4, 12), np.int32(counts)),
        )


def _rotated() -> Iterable[Any]:
    turned = np.concatenate([RNG.uniform(0, 5, (2, 19, 2)), RNG.uniform(0.5, 3, (2, 19, 2)), RNG.uniform(-4, 4, (2, 19, 1))], -1)
    boxes, scores = turned.astype(np.float32), _scores(2, 3, 19)
    for descending, clockwise in product((False, True), (False, True)):
        yield Operation(
            f"nms rotated {descending} {clockwise}",
            lambda b, s, d=descending, w=clockwise: opset13.nms_rotated(
                b, s, c(7), c(0.25, np.float32), c(0.2, np.float32), d, "i64", w
            ),
            (boxes, scores),
        )
    for clockwise, samples in product((False, True), (0, 2)):
        rois = np.float32([[6, 5, 6, 4, 0.6], [4, 3, 9, 2, -2.0], [-3, 1, 4, 4, 0], [20, 20, 3, 3, 1]])
        yield Operation(
            f"roi align rotated {clockwise} {samples}",
            lambda x, r, n, w=clockwise, o=samples: opset15.roi_align_rotated(x, r, n, 3, 2, o, 0.75, w),
            (f(2, 3, 9, 8), rois, np.int32([0, 1, 1, 0])),
        )


def _proposed() -> Iterable[Any]:
    anchors, deltas = _boxes(5, 6, 3, size=60), f(2, 12, 5, 6, low=-0.4, high=0.4)
    for normalized, columns in product((False, True), (3, 4)):
        info = np.float32([[50, 64, 1.5, 2], [44, 50, 1, 1]])[:, :columns]
        yield Operation(
            f"generate proposals {normalized} {columns}",
            lambda i, a, d, s, n=normalized: opset9.generate_proposals(i, a, d, s, 2.0, 0.5, 60, 12, n, 1.0, "i32"),
            (info, anchors, deltas, _scores(2, 3, 5, 6)),
            open=columns == 3,
        )
    few = {
        "min_size": 4.0,
        "nms_threshold": 0.6,
        "post_nms_count": 9,
        "pre_nms_count": 70,
    }
    yield Operation(
        "detectron proposals",
        lambda i, a, d, s: NodeFactory("opset6").create("ExperimentalDetectronGenerateProposalsSingleImage", [i, a, d, s], few),
        (np.float32([50, 64, 1]), anchors.reshape(-1, 4), deltas[0], _scores(3, 5, 6)),
    )
    for size, stride, flat in product((0, 4), (0.0, 9.5), (False, True)):
        grid = {"flatten": flat, "h": size, "w": size + 1 if size else 0, "stride_x": stride, "stride_y": 2 * stride}
        yield Operation(
            f"prior grid {size} {stride} {flat}",
            lambda p, x, i, g=grid: NodeFactory("opset6").create("ExperimentalDetectronPriorGridGenerator", [p, x, i], g),
            (f(3, 4), f(1, 2, 4, 5), f(1, 3, 60, 70)),
            open=flat and not size,
        )
    for most in (4, 9):
        yield Operation(
            f"top rois {most}",
            lambda r, p, m=most: NodeFactory("opset6").create("ExperimentalDetectronTopKROIs", [r, p], {"max_rois": m}),
            (_boxes(9), _scores(9)),
        )


def _detected() -> Iterable[Any]:
    attributes = {"score_threshold": 0.1, "nms_threshold": 0.4, "num_classes": 4, "max_delta_log_wh": 1.0}
    attributes |= {"class_agnostic_box_regression": False, "deltas_weights": np.float32([10, 10, 5, 5])}
    for count, most in ((6, 8), (-1, 100)):
        yield Operation(
            f"detectron output {most}",
            lambda r, d, s, i, n=count, m=most: NodeFactory("opset6").create(
                "ExperimentalDetectronDetectionOutput",
                [r, d, s, i],
                {**attributes, "post_nms_count": n, "max_detections_per_image": m},
            ),
            (_boxes(23, size=60), f(23, 16), _scores(23, 4), np.float32([[60, 60, 1]])),
        )
    rois = np.float32([[0, 0, 30, 20], [5, 3, 200, 180], [10, 10, 600, 500], [-20, 4, 90, 95], [9, 9, 9, 20], [0, 0, 2000, 1800]])
    for aligned, samples in product((False, True), (0, 2)):
        given = {"output_size": 3, "sampling_ratio": samples, "pyramid_scales": np.int64([4, 8, 16]), "aligned": aligned}
        yield Operation(
            f"roi features {aligned} {samples}",
            lambda *x, g=given: NodeFactory("opset6").create("ExperimentalDetectronROIFeatureExtractor", [*x], g),
            (rois, f(1, 5, 40, 50), f(1, 5, 20, 25), f(1, 5, 10, 13)),
        )


FAMILIES = (_matrix, _multiclass, _rotated, _proposed, _detected)
