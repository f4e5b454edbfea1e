"""Cases of CenterCropPad: by hand."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.center_crop_pad import CenterCropPad


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Cut, padded, both, by axes, odd differences, strings, batch 0."""
    x = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
    cut = (x[:2, 1:3],)
    yield Case("cut", CenterCropPad(), (x, np.array([2, 2])), cut, constants=(1,))
    row = np.array([1, 2, 3], np.int32)
    yield Case("padded", CenterCropPad(), (row, np.array([6])), (np.array([0, 1, 2, 3, 0, 0], np.int32),), constants=(1,))
    both = np.array([[0, 1, 2, 3, 4, 0]], np.float32) + np.array([[0, 4, 4, 4, 4, 0]], np.float32)
    yield Case("both", CenterCropPad(), (x, np.array([1, 6])), (both,), constants=(1,))
    yield Case("axes", CenterCropPad(axes=(-1, 0)), (x, np.array([2, 3], np.int32)), (x[:, 1:3],), constants=(1,))
    texts = np.array(["a", "b"], object)
    yield Case("strings", CenterCropPad(), (texts, np.array([3])), (np.array(["a", "b", ""], object),), constants=(1,))
    yield Case("batch_0", CenterCropPad(axes=(1,)), (x[:0], np.array([2])), (x[:0, :2],), constants=(1,))
