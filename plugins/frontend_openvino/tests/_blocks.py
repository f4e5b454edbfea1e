"""Graphs of blocks, YOLO's outputs, Fourier transforms, embeddings, and older versions; see `_operations.py`."""

import runpy
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from openvino import opset1, opset2, opset3, opset4, opset7, opset8, opset9, opset13, opset15
from openvino.utils.node_factory import NodeFactory

_GRAPHS = runpy.run_path(str(Path(__file__).with_name("_graphs.py")))
Operation, f, i, c, RNG = (_GRAPHS[name] for name in ("Operation", "f", "i", "c", "RNG"))


def _blocks() -> Iterable[Any]:
    x, y, block = f(2, 3, 5, 4), f(12, 3, 4, 5), c([1, 1, 2, 3])
    to_batch = [c([0, 0, 1, 1]), c([0, 0, 2, 1])]
    yield Operation("space to batch", lambda x: opset2.space_to_batch(x, block, *to_batch), (x,))
    yield Operation("space to batch open", lambda x: opset2.space_to_batch(x, block, *to_batch), (x,), open=True)
    yield Operation(
        "space to batch computed",
        lambda x, a, b: opset2.space_to_batch(x, block, a, b),
        (x, np.int64([0, 0, 1, 1]), np.int64([0, 0, 2, 1])),
    )
    yield Operation("space to batch 3", lambda x: opset2.space_to_batch(x, c([1, 3, 2]), *[c([0, 0, 0])] * 2), (f(2, 6, 4),))
    crops = [c([0, 0, 1, 0]), c([0, 0, 2, 4])]
    yield Operation("batch to space", lambda y: opset2.batch_to_space(y, block, *crops), (y,))
    yield Operation("batch to space open", lambda y: opset2.batch_to_space(y, block, *crops), (y,), open=True)
    yield Operation(
        "batch to space computed",
        lambda y, a, b: opset2.batch_to_space(y, block, a, b),
        (y, np.int64([0, 0, 1, 0]), np.int64([0, 0, 0, 1])),
    )
    yield Operation("batch to space whole", lambda y: opset2.batch_to_space(y, c([1, 3, 1, 2]), *[c([0, 0, 0, 0])] * 2), (y,))
    yield Operation("reorg", lambda x: NodeFactory("opset2").create("ReorgYolo", [x], {"stride": [2]}), (f(2, 8, 6, 4),))
    anchors = [1.0, 2.0, 3.0, 4.0]
    for soft in (True, False):
        yield Operation(
            f"region {soft}",
            lambda x, soft=soft: opset1.region_yolo(x, 4, 3, 2, soft, [0, 1], 1, 3, anchors=anchors),
            (f(2, 16, 3, 5),),
        )


def _fourier() -> Iterable[Any]:
    x, real = f(3, 6, 5, 2), f(3, 6, 5)
    for name in ("dft", "idft"):
        yield Operation(name, lambda x, name=name: getattr(opset7, name)(x, c([1, -1])), (x,))
        yield Operation(f"{name} sizes", lambda x, name=name: getattr(opset7, name)(x, c([0, 2]), c([-1, 4])), (x,))
    yield Operation("rdft", lambda x: opset9.rdft(x, c([1])), (real,))
    # Longer signals than the input's in several axes end the process in openvino's CPU plugin.
    yield Operation("rdft axes", lambda x: opset9.rdft(x, c([0, 2, 1])), (real,))
    yield Operation("rdft sizes", lambda x: opset9.rdft(x, c([0, 1]), c([2, 4])), (real,))
    yield Operation("irdft", lambda x: opset9.irdft(x, c([2])), (x,))
    yield Operation("irdft axes", lambda x: opset9.irdft(x, c([0, 1])), (x,))
    yield Operation("irdft sizes", lambda x: opset9.irdft(x, c([0, 1]), c([2, 7])), (x,))


def _embeddings() -> Iterable[Any]:
    table, packed, ids = f(7, 3, 2), i(4, 3, low=0, high=7), i(6, low=0, high=7)
    yield Operation("packed sum", opset3.embedding_bag_packed_sum, (table, packed))
    yield Operation("packed sum weights", opset3.embedding_bag_packed_sum, (table, packed, f(4, 3)))
    yield Operation("packed", opset15.embedding_bag_packed, (table, packed))
    offsets, segments = c([0, 2, 2, 5], np.int32), c([0, 0, 2, 3, 3, 3], np.int32)
    yield Operation("offsets sum", lambda t, n: opset3.embedding_bag_offsets_sum(t, n, offsets), (table, ids))
    yield Operation("offsets", lambda t, n: opset15.embedding_bag_offsets(t, n, offsets), (table, ids))
    yield Operation(
        "offsets sum default",
        lambda t, n, w: opset3.embedding_bag_offsets_sum(t, n, offsets, c(4, np.int32), w),
        (table, ids, f(6)),
    )
    yield Operation("segments sum", lambda t, n: opset3.embedding_segments_sum(t, n, segments, c(5, np.int32)), (table, ids))
    yield Operation(
        "segments sum default",
        lambda t, n, w: opset3.embedding_segments_sum(t, n, segments, c(5, np.int32), c(1, np.int32), w),
        (f(7, 2), ids, f(6)),
    )
    sides = c(3, np.int32), c(5, np.int32)
    for k in (0, 2, -1):
        yield Operation(f"eye {k}", lambda x, k=k: opset13.add(opset9.eye(*sides, c(k, np.int32), "f32"), x), (f(3, 5),))
    yield Operation("eyes", lambda x: opset13.add(opset9.eye(*sides, c(1, np.int32), "f32", c([2, 1])), x), (f(2, 1, 3, 5),))


def _older_detections() -> Iterable[Any]:
    corners = RNG.uniform(0, 8, (2, 11, 2))
    boxes = np.concatenate([corners, corners + RNG.uniform(1, 5, (2, 11, 2))], axis=2).astype(np.float32)
    scores = RNG.permutation(2 * 3 * 11).reshape(2, 3, 11).astype(np.float32) / 66
    limits = (c(4), c(0.3, np.float32), c(0.2, np.float32))
    yield Operation("nms 1", lambda x, s: opset1.non_max_suppression(x, s, *limits, "corner", False), (boxes, scores))
    yield Operation("nms 3", lambda x, s: opset3.non_max_suppression(x, s, *limits, output_type="i32"), (boxes, scores))
    yield Operation("nms 4", lambda x, s: opset4.non_max_suppression(x, s, *limits, box_encoding="center"), (boxes, scores))


def _single_shot() -> Iterable[Any]:
    corner = RNG.uniform(0, 0.6, (20, 2))
    places = np.concatenate([corner, corner + RNG.uniform(0.2, 0.4, (20, 2))], axis=1).reshape(1, 1, -1)
    priors = np.concatenate([places, np.full((1, 1, 80), 0.1)], axis=1).astype(np.float32)
    feeds = f(2, 80), RNG.permutation(120).reshape(2, 60).astype(np.float32) / 120
    code = "caffe.PriorBoxParameter."
    common = {"share_location": True, "normalized": True, "nms_threshold": 0.45, "code_type": f"{code}CENTER_SIZE"}
    variants = {
        "": {"keep_top_k": [10], "top_k": 10, "confidence_threshold": 0.3},
        "few": {"keep_top_k": [30], "top_k": 4, "confidence_threshold": 0.8},
        "none": {"keep_top_k": [3], "confidence_threshold": 2.0},
        "corner": {"keep_top_k": [7], "code_type": f"{code}CORNER", "clip_before_nms": True, "background_label_id": 2},
        "clipped": {"keep_top_k": [60], "clip_after_nms": True, "background_label_id": -1},
        "encoded": {"keep_top_k": [9], "variance_encoded_in_target": True},
    }
    for name, given in variants.items():
        known = opset13.constant(priors[:, :1] if name == "encoded" else priors)
        yield Operation(
            f"ssd {name}".strip(),
            lambda x, s, p=known, given=given: opset8.detection_output(x, s, p, {**common, **given}),
            feeds,
        )


FAMILIES = (_blocks, _fourier, _embeddings, _older_detections, _single_shot)
