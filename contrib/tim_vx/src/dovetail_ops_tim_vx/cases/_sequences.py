"""The data and golden numbers of TIM-VX's tests of sequence RNNs: 2 time steps, batch 3, 2 features, 4 equal units."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

X = np.arange(1, 13, dtype=np.float32).reshape(2, 3, 2)
W = np.full((4, 2), 0.1, np.float32)
R = np.full((4, 4), 0.1, np.float32)
B = np.full(4, 0.1, np.float32)
B_RECURRENT = np.zeros(4, np.float32)
H = np.zeros((3, 4), np.float32)
WAY = (W, R, B, B_RECURRENT, H)


def _units(rows: list[list[float]]) -> Array:
    return np.repeat(np.array(rows, np.float32)[..., None], 4, axis=2)


FORWARD = {
    "sigmoid": _units([[0.5986, 0.6899, 0.7685], [0.8628, 0.9068, 0.9374]]),
    "relu": _units([[0.4, 0.8, 1.2], [1.76, 2.32, 2.88]]),
}
BACKWARD = {
    "sigmoid": _units([[0.6754, 0.7599, 0.8273], [0.8320, 0.8807, 0.9168]]),
    "relu": _units([[1.04, 1.6, 2.16], [1.6, 2.0, 2.4]]),
}
"""In time order, as in TIM-VX's test of the Ext operator; that of BidirectionalSequenceRnn has them in order of computation."""

ATOL = 1e-4
"""Four digits are given."""


def extended(directions: int) -> tuple[Array, ...]:
    """X, W, R, B and initial_h as ONNX's RNN has them."""
    stacked = (np.stack([a] * directions) for a in (W, R, np.concatenate([B, B_RECURRENT]), H))
    return (X, *stacked)
