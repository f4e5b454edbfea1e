"""Cases of the operators: small results that are known without them."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing import Case
from dovetail_frontend_openvino.operators.beams import GatherTree
from dovetail_frontend_openvino.operators.losses import CTCLoss
from dovetail_frontend_openvino.operators.matrices import Inverse
from dovetail_frontend_openvino.operators.proposals import Proposal
from dovetail_frontend_openvino.operators.regions import PSROIPooling
from dovetail_frontend_openvino.operators.sparse import SparseFillEmptyRows

__all__ = ["ctc_loss", "gather_tree", "inverse", "proposal", "psroi_pooling", "sparse_fill_empty_rows"]


def gather_tree(rng: np.random.Generator) -> Iterator[Case]:
    """The example of TensorFlow's documentation, and a second sequence of one step; no sequences."""
    steps = np.array([[[1, 2, 3], [7, 8, 9]], [[4, 5, 6], [0, 0, 0]], [[7, 8, 9], [0, 0, 0]]], np.int32)
    parents = np.array([[[0, 0, 0], [0, 0, 0]], [[0, 1, 1], [5, 5, 5]], [[2, 1, 2], [5, 5, 5]]], np.int32)
    want = np.array([[[2, 2, 2], [7, 8, 9]], [[6, 5, 6], [10, 10, 10]], [[7, 8, 9], [10, 10, 10]]], np.int32)
    for dtype in (np.int32, np.int64, np.float32):
        given = tuple(a.astype(dtype) for a in (steps, parents, np.array([3, 1]), np.array(10)))
        yield Case(np.dtype(dtype).name, GatherTree(), given, (want.astype(dtype),))
    ended = np.array([[[2, 2, 2]], [[6, 5, 6]], [[6, 8, 6]]], np.int32)
    yield Case("ended", GatherTree(), (steps[:, :1], parents[:, :1], np.array([3], np.int32), np.array(6, np.int32)), (ended,))
    yield Case("none", GatherTree(), (steps[:, :0], parents[:, :0], np.zeros(0, np.int32), np.array(6, np.int32)), (want[:, :0],))


def inverse(rng: np.random.Generator) -> Iterator[Case]:
    """Triangles, none, and of the transposes in float16."""
    x = np.array([[[2, 0], [0, 4]], [[1, 3], [0, 1]]], np.float32)
    yield Case("two", Inverse(), (x,), (np.array([[[0.5, 0], [0, 0.25]], [[1, -3], [0, 1]]], np.float32),))
    yield Case("none", Inverse(), (x[:0],), (x[:0],))
    turned = np.array([[[0.5, 0], [0, 0.25]], [[1, 0], [-3, 1]]], np.float16)
    yield Case("adjoint", Inverse(adjoint=True), (x.astype(np.float16),), (turned,))


def psroi_pooling(rng: np.random.Generator) -> Iterator[Case]:
    """A ramp, of which a mean or a point is its place."""
    ramp = np.broadcast_to(np.arange(8, dtype=np.float32), (2, 4, 6, 8)).copy()
    rois = np.array([[1, 0, 0, 3, 5], [0, 2, 0, 7, 3], [0, 20, 20, 30, 30]], np.float32)
    want = np.array([[0.5, 2.5], [3, 6], [0, 0]], np.float32)[:, None, None].repeat(2, 2)
    yield Case("average", PSROIPooling(output_dim=1, group_size=2, spatial_scale=1.0), (ramp, rois), (want,))
    parts = np.array([[0, 0, 0, 1, 1], [1, 0.5, 0, 1.5, 1]], np.float32)
    op = PSROIPooling(output_dim=2, group_size=2, spatial_scale=1.0, mode="bilinear", spatial_bins_x=2, spatial_bins_y=1)
    # Bins of half a region: points at 0 and 3.5, 3.5 and 7; then 3.5 and 7, 7 and 10.5, which is outside and 0.
    want = np.array([[1.75, 5.25], [5.25, 3.5]], np.float32)[:, None, None].repeat(2, 1).repeat(2, 2)
    yield Case("bilinear", op, (ramp, parts), (want,))
    yield Case("none", op, (ramp, parts[:0]), (want[:0],))


def proposal(rng: np.random.Generator) -> Iterator[Case]:
    """Two cells of one anchor of 4 pixels, apart; then one in the place of the other."""
    op = Proposal(
        base_size=4, pre_nms_topn=9, post_nms_topn=3, nms_thresh=0.5, feat_stride=8, min_size=1, ratio=(1.0,), scale=(1.0,)
    )
    scores = np.array([0, 0, 0.25, 0.75], np.float32).reshape(1, 2, 1, 2)
    deltas = np.zeros((1, 4, 1, 2), np.float32)
    shape = np.array([16, 16, 1], np.float32)
    want = np.array([[0, 8, 0, 12, 4], [0, 0, 0, 4, 4], [-1, 0, 0, 0, 0]], np.float32)
    yield Case("apart", op, (scores, deltas, shape), (want, np.array([0.75, 0.25, 0], np.float32)))
    deltas = deltas.copy()
    deltas[0, 0, 0, 0] = 2.0
    one = np.array([[0, 8, 0, 12, 4], [-1, 0, 0, 0, 0], [0, 0, 0, 0, 0]], np.float32)
    yield Case("one", op, (scores, deltas, shape), (one, np.array([0.75, 0, 0], np.float32)))


def ctc_loss(rng: np.random.Generator) -> Iterator[Case]:
    """A label and the blank, equally likely: the alignments are counted."""
    logits, labels = np.zeros((2, 3, 2), np.float32), np.zeros((2, 3), np.int32)
    given = (logits, np.array([3, 2], np.int32), labels, np.array([1, 1], np.int32))
    # One label in 3 steps: a run of 1 to 3 steps, 6 of 8; in 2 steps 3 of 4. Not merged: one step, 3 of 8 and 2 of 4.
    yield Case("merged", CTCLoss(), given, (-np.log(np.array([6 / 8, 3 / 4], np.float32)),))
    yield Case("apart", CTCLoss(ctc_merge_repeated=False), given, (-np.log(np.array([3 / 8, 2 / 4], np.float32)),))
    two = (*given[:3], np.array([2, 2], np.int32), np.array(1, np.int32))
    yield Case("twice", CTCLoss(), two, (np.array([np.log(8), np.inf], np.float32),))
    for name in ("preprocess_collapse_repeated", "unique"):
        yield Case(name, CTCLoss(**{name: True}), two, (-np.log(np.array([6 / 8, 3 / 4], np.float32)),))
    yield Case("none", CTCLoss(), tuple(a[:0] for a in given), (np.zeros(0, np.float32),))


def sparse_fill_empty_rows(rng: np.random.Generator) -> Iterator[Case]:
    """The example of TensorFlow's documentation; rows in another order; a matrix without rows, and one without elements."""
    places = np.array([[0, 1], [0, 3], [2, 0], [3, 1]])
    values, shape, default = np.array([1, 2, 3, 4], np.float32), np.array([5, 6]), np.array(9, np.float32)
    filled = np.array([[0, 1], [0, 3], [1, 0], [2, 0], [3, 1], [4, 0]])
    empty = np.array([False, True, False, False, True])
    want = (filled, np.array([1, 2, 9, 3, 4, 9], np.float32), empty)
    yield Case("rows", SparseFillEmptyRows(), (values, shape, places, default), want)
    turned = (values[[2, 0, 3, 1]], shape, places[[2, 0, 3, 1]], default)
    yield Case("any_order", SparseFillEmptyRows(), turned, want)
    none = (values[:0], np.array([0, 6]), places[:0], default)
    yield Case("no_rows", SparseFillEmptyRows(), none, (filled[:0], values[:0], empty[:0]))
    bare = (values[:0].astype(np.int32), np.array([2, 6], np.int32), places[:0].astype(np.int32), np.array(7, np.int32))
    want = (np.array([[0, 0], [1, 0]], np.int32), np.array([7, 7], np.int32), np.array([True, True]))
    yield Case("no_elements", SparseFillEmptyRows(), bare, want)
