"""Graphs of operations that are operators of this package; see `_operations.py`."""

import runpy
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from openvino import opset1, opset4, opset14, opset16

_GRAPHS = runpy.run_path(str(Path(__file__).with_name("_graphs.py")))
Operation, f, i, c, RNG = (_GRAPHS[name] for name in ("Operation", "f", "i", "c", "RNG"))


def _beams() -> Iterable[Any]:
    for dtype in (np.int32, np.float32):
        steps, parents = i(7, 3, 5, low=0, high=9, dtype=dtype), i(7, 3, 5, low=0, high=5, dtype=dtype)
        lengths = np.array([7, 4, 1], dtype)
        yield Operation(
            f"gather tree {np.dtype(dtype).name}",
            lambda s, p, m, d=dtype: opset1.gather_tree(s, p, m, c(8, d)),
            (steps, parents, lengths),
            open=dtype is np.int32,
        )


def _inverses() -> Iterable[Any]:
    x = f(2, 3, 5, 5) + 3 * np.eye(5, dtype=np.float32)
    for adjoint in (False, True):
        for feed in (x, x[0, 0, :1, :1], x[0, :0]):
            yield Operation(f"inverse {adjoint} {feed.shape}", lambda x, a=adjoint: opset14.inverse(x, a), (feed,))


def _regions() -> Iterable[Any]:
    rois = np.float32([[0, 0, 0, 40, 30], [1, 10.5, 3.4, 60, 50], [0, -5, 7, 90, 80], [1, 20, 20, 20, 20], [1, 30, 30, 25, 20]])
    for group in (1, 3):
        yield Operation(
            f"psroi average {group}",
            lambda x, r, g=group: opset1.psroi_pooling(x, r, 4, g, 0.25, 1, 1, "average"),
            (f(2, 4 * group**2, 13, 17), rois),
        )
        parts = np.float32([[0, 0, 0, 1, 1], [1, 0.2, 0.1, 0.7, 0.9], [1, 0.5, 0.25, 1.2, 0.3], [0, 0.3, -0.2, 0.3, 0.6]])
        yield Operation(
            f"psroi bilinear {group}",
            lambda x, r, g=group: opset1.psroi_pooling(x, r, 4, g, 1.0, 3, 2, "bilinear"),
            (f(2, 24, 13, 17), parts),
        )


def _proposals() -> Iterable[Any]:
    sizes = {"base_size": 16, "pre_nms_topn": 25, "post_nms_topn": 6, "feat_stride": 8, "min_size": 6}
    attributes = {name: np.uint32(size) for name, size in sizes.items()}
    attributes |= {"nms_thresh": np.float32(0.4), "ratio": np.float32([0.5, 1, 2]), "scale": np.float32([1, 2.5])}
    clipped = {"clip_before_nms": False, "clip_after_nms": True, "normalize": True, "box_size_scale": np.float32(5)}
    scores = RNG.permutation(2 * 12 * 5 * 6).reshape(2, 12, 5, 6).astype(np.float32) / 720
    for factory, count in ((opset1, 3), (opset4, 3), (opset4, 4)):
        for framework in ("", "tensorflow"):
            for further in ({}, clipped):
                given = {**attributes, **further, "framework": framework}
                yield Operation(
                    f"proposal {factory.__name__} {count} {framework} {len(further)}",
                    lambda s, d, h, o=factory, a=given: o.proposal(s, d, h, a),
                    (scores, f(2, 24, 5, 6, low=-1, high=1), np.float32([44, 50, 1.5, 2][:count])),
                )
    few = {**attributes, "post_nms_topn": np.uint32(60), "nms_thresh": np.float32(0.1), "pre_nms_topn": np.uint32(500)}
    few["min_size"] = np.uint32(1)  # boxes that are too small have the same score, 0, and therefore no order
    few["box_coordinate_scale"] = np.float32(2)
    # The first output alone: OpenVINO leaves the memory behind the last score as it is.
    yield Operation(
        "proposal few",
        lambda s, d, h: [opset4.proposal(s, d, h, few).output(0)],
        (scores[:1], f(1, 24, 5, 6), np.float32([44, 50, 1])),
    )


def _losses() -> Iterable[Any]:
    logits, labels = f(4, 9, 5), i(4, 9, low=0, high=4)
    lengths, counts = np.int32([9, 7, 8, 3]), np.int32([4, 3, 1, 3])
    labels[0, 1], labels[1, :3], labels[3, :3] = labels[0, 0], (1, 2, 1), (3, 1, 2)
    for number in range(8):
        flags = [bool(number & bit) for bit in (1, 2, 4)]
        yield Operation(
            f"ctc loss {number}", lambda *x, o=flags: opset4.ctc_loss(*x, None, *o), (logits, lengths, labels, counts)
        )
    further = (logits, lengths.astype(np.int64), labels + 1, counts.astype(np.int64))
    yield Operation("ctc loss blank", lambda *x: opset4.ctc_loss(*x, c(0, np.int32)), further, open=True)


def _sparse() -> Iterable[Any]:
    for dtype, index in ((np.float32, np.int32), (np.int32, np.int64)):
        places = np.array([[4, 2], [0, 5], [0, 1], [6, 0]], index)
        yield Operation(
            f"sparse rows {np.dtype(dtype).name} {np.dtype(index).name}",
            lambda v, s, p, d: opset16.sparse_fill_empty_rows(v, s, p, d),
            (i(4, dtype=dtype), np.array([8, 6], index), places, np.array(7, dtype)),
        )


FAMILIES = (_sparse, _losses, _beams, _inverses, _regions, _proposals)
