"""Cases of ConstantOfShape: by hand."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.constant_of_shape import ConstantOfShape


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """The default, other types, a scalar, a size of 0."""
    fill = int(rng.integers(1, 100))
    shape = np.array([2, 3])
    yield Case("default", ConstantOfShape(), (shape,), (np.zeros((2, 3), np.float32),), constants=(0,))
    op = ConstantOfShape(value=np.array([fill], np.int64))
    yield Case("int64", op, (shape,), (np.array([[fill] * 3] * 2),), constants=(0,))
    yield Case("bool", ConstantOfShape(value=np.array(True)), (shape,), (np.ones((2, 3), np.bool_),), constants=(0,))
    yield Case("scalar", op, (np.zeros(0, np.int64),), (np.array(fill),), constants=(0,))
    yield Case("size_0", op, (np.array([4, 0]),), (np.zeros((4, 0), np.int64),), constants=(0,))
