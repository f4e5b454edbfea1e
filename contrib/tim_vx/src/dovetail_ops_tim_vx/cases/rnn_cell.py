"""Cases of RNNCell: the data and golden numbers of TIM-VX's rnn_cell_test.cc, and steps computed in float64."""

from collections.abc import Iterator

import numpy as np

from dovetail.op import DType
from dovetail.testing import Case
from dovetail_ops_tim_vx.rnn_cell import RNNCell

X = np.array([[0.12609188, 0.46347019, 0.89598465], [0.35867718, 0.36897406, 0.73463392]], np.float32)
W = np.vstack([X, X])
B = np.array([0.01580888, 0.14943552, 0.15465137, 0.09784451], np.float32)
R = np.array(
    [
        [-0.31930989, 0.37613347, 0.27901134, 0.36137494],
        [-1.36916667, 0.38031587, 0.21580373, 0.27072677],
        [1.01580888, 0.14943552, 1.15465137, 0.09784451],
        [-1.02702999, 1.39296314, 0.15785322, 0.21931258],
    ],
    np.float32,
)
H = np.zeros((2, 4), np.float32)
Y = np.array([[0.781534, 0.771447, 0.830002, 0.749713], [0.711524, 0.74155, 0.77355, 0.717427]], np.float32)
STATE = np.array([[217, 214, 231, 208], [198, 206, 215, 199]], np.uint8)
SCALE = 0.0036


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """The golden values with a state in bytes, other activations, inputs left out, batch 0."""
    golden = RNNCell(state_dtype=DType.UINT8, state_scale=SCALE)
    yield Case("golden", golden, (X, W, B, H, R), (Y, STATE), atol=1e-6)
    yield Case("golden_weights", golden, (X, W, B, H, R), (Y, STATE), atol=1e-6, constants=(1, 2, 4))
    h = rng.standard_normal((2, 4)).astype(np.float32)
    x, w, r = (a.astype(np.float64) for a in (X, W, R))
    total = x @ w.T + B + h @ r.T
    for activation, y in (("none", total), ("relu", np.maximum(total, 0)), ("sigmoid", 1 / (1 + np.exp(-total)))):
        expected = y.astype(np.float32)
        yield Case(activation, RNNCell(activation=activation), (X, W, B, h, R), (expected, expected), atol=1e-5)
    alone = np.tanh(x @ w.T).astype(np.float32)
    yield Case("without_bias_and_state", RNNCell(), (X, W, None, None, R), (alone,), atol=1e-5)
    yield Case("batch_0", RNNCell(), (X[:0], W, B, H[:0], R), (Y[:0],))
