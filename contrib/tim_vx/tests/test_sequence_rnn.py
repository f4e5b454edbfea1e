"""The four sequence RNNs against TIM-VX's golden numbers, a loop in float64, and ONNX's RNN."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dovetail.errors import OperatorError
from dovetail.graph import TensorType
from dovetail_ops_onnx.rnn import RNN
from dovetail_ops_tim_vx.bidirectional_sequence_rnn import BidirectionalSequenceRnn
from dovetail_ops_tim_vx.bidirectional_sequence_rnn_ext import BidirectionalSequenceRnnExt
from dovetail_ops_tim_vx.cases._sequences import BACKWARD, FORWARD, WAY, H, R, W, X, extended
from dovetail_ops_tim_vx.unidirectional_sequence_rnn import UnidirectionalSequenceRnn
from dovetail_ops_tim_vx.unidirectional_sequence_rnn_ext import UnidirectionalSequenceRnnExt

pytestmark = pytest.mark.exhaustive(0.1, device="OPENCL")  # compiles programs

Array = NDArray[Any]


def loop(step: Any, x: Array, way: tuple[Array | None, ...], activation: str, reverse: bool = False) -> tuple[Array, Array]:
    """Last state and outputs in time order for x [time, batch, size], step by step in float64."""
    w, r, b, b_recurrent, h = way
    assert w is not None
    bias = sum((np.asarray(v, np.float64) for v in (b, b_recurrent) if v is not None), np.zeros(w.shape[0]))
    state = np.zeros((x.shape[1], w.shape[0])) if h is None else np.asarray(h, np.float64)
    y = np.zeros((x.shape[0], *state.shape))
    for t in sorted(range(x.shape[0]), reverse=reverse):
        state = y[t] = step(x[t], w, bias, state, r, activation)
    return state, y


def drawn_way(draw: Any, batch: int, size: int, units: int) -> tuple[Array, ...]:
    return draw(units, size), draw(units, units, spread=0.5), draw(units), draw(units), draw(batch, units)


def test_backward_outputs_of_all_operators_stand_in_time_order(device: str, execute: Any) -> None:
    op = BidirectionalSequenceRnn(activation="relu", time_major=True)
    fw_state, bw_state, fw, bw = execute(op, (X, *WAY, *WAY), device, outputs=4).outputs
    np.testing.assert_array_equal((fw_state, bw_state), (fw[-1], bw[0]))
    state, y = execute(BidirectionalSequenceRnnExt(activation="relu"), extended(2), device, outputs=2).outputs
    np.testing.assert_array_equal(state, [y[-1, 0], y[0, 1]])
    for got in (np.stack([fw, bw], axis=1), y):
        np.testing.assert_allclose(got, np.stack([FORWARD["relu"], BACKWARD["relu"]], axis=1), rtol=0, atol=1e-4)


@pytest.mark.parametrize("time_major", [True, False])
@pytest.mark.parametrize("activation", ["none", "relu1", "relu6", "tanh", "hard_sigmoid"])
def test_unidirectional_follows_the_loop(
    device: str, execute: Any, draw: Any, step: Any, activation: str, time_major: bool
) -> None:
    x, way = draw(5, 2, 3), drawn_way(draw, 2, 3, 4)
    given = x if time_major else x.swapaxes(0, 1)
    op = UnidirectionalSequenceRnn(activation=activation, time_major=time_major)
    state, y = execute(op, (given, *way), device, outputs=2).outputs
    expected_state, expected = loop(step, x, way, activation)
    np.testing.assert_allclose(y if time_major else y.swapaxes(0, 1), expected, rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(state, expected_state, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("left_out", [(2,), (3,), (4,), (2, 3), (2, 3, 4)], ids=str)
def test_biases_and_state_may_be_left_out(device: str, execute: Any, draw: Any, step: Any, left_out: tuple[int, ...]) -> None:
    x = draw(3, 2, 3)
    way = tuple(None if i in left_out else a for i, a in enumerate(drawn_way(draw, 2, 3, 4)))
    state, y = execute(UnidirectionalSequenceRnn(time_major=True), (x, *way), device, outputs=2).outputs
    expected_state, expected = loop(step, x, way, "tanh")
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(state, expected_state, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("time_major", [True, False])
@pytest.mark.parametrize("merge_outputs", [True, False])
def test_bidirectional_follows_the_loop(
    device: str, execute: Any, draw: Any, step: Any, time_major: bool, merge_outputs: bool
) -> None:
    x, forward, backward = draw(4, 3, 2), drawn_way(draw, 3, 2, 5), drawn_way(draw, 3, 2, 3)
    op = BidirectionalSequenceRnn(time_major=time_major, merge_outputs=merge_outputs)
    given = x if time_major else x.swapaxes(0, 1)
    fw_state, bw_state, *ys = execute(
        op, (given, *forward, *backward), device, outputs=3 if merge_outputs else 4, constants=(1, 2, 6, 7)
    ).outputs
    y = np.concatenate(ys, axis=2)
    expected = [loop(step, x, forward, "tanh"), loop(step, x, backward, "tanh", reverse=True)]
    np.testing.assert_allclose(fw_state, expected[0][0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(bw_state, expected[1][0], rtol=1e-5, atol=1e-5)
    both = np.concatenate([expected[0][1], expected[1][1]], axis=2)
    np.testing.assert_allclose(y if time_major else y.swapaxes(0, 1), both, rtol=1e-5, atol=1e-5)


def test_an_auxiliary_input_with_weights_adds_its_product(device: str, execute: Any, draw: Any, step: Any) -> None:
    x, aux, forward, backward = draw(3, 2, 4), draw(3, 2, 5), drawn_way(draw, 2, 4, 3), drawn_way(draw, 2, 4, 3)
    weights = draw(3, 5), draw(3, 5)
    op = BidirectionalSequenceRnn(time_major=True)
    *_, fw, bw = execute(op, (x, *forward, *backward, aux, *weights), device, outputs=4).outputs
    both = np.concatenate([x, aux], axis=2)
    for y, way, extra, reverse in ((fw, forward, weights[0], False), (bw, backward, weights[1], True)):
        joined = (np.concatenate([way[0], extra], axis=1), *way[1:])
        np.testing.assert_allclose(y, loop(step, both, joined, "tanh", reverse)[1], rtol=1e-5, atol=1e-5)


def test_an_auxiliary_input_without_weights_is_read_backwards(device: str, execute: Any, draw: Any, step: Any) -> None:
    x, aux, forward, backward = draw(3, 2, 4), draw(3, 2, 5), drawn_way(draw, 2, 4, 3), drawn_way(draw, 2, 5, 3)
    *_, fw, bw = execute(BidirectionalSequenceRnn(time_major=True), (x, *forward, *backward, aux), device, outputs=4).outputs
    np.testing.assert_allclose(fw, loop(step, x, forward, "tanh")[1], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(bw, loop(step, aux, backward, "tanh", reverse=True)[1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("optional", [True, False])
def test_ext_equals_onnx_rnn(device: str, execute: Any, draw: Any, directions: int, optional: bool) -> None:
    x, w, r = draw(4, 3, 2), draw(directions, 5, 2), draw(directions, 5, 5, spread=0.4)
    b, h = (draw(directions, 10), draw(directions, 3, 5)) if optional else (None, None)
    op = (UnidirectionalSequenceRnnExt, BidirectionalSequenceRnnExt)[directions - 1]()
    state, y = execute(op, (x, w, r, b, h), device, outputs=2).outputs
    onnx = RNN(direction=("forward", "bidirectional")[directions - 1], activations=("Tanh",) * directions)
    expected, expected_state = onnx.reference(x, w, r, b, None, h)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(state, expected_state, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("time", "batch"), [(1, 2), (0, 2), (3, 0)])
def test_short_sequences_and_batch_0(device: str, execute: Any, draw: Any, step: Any, time: int, batch: int) -> None:
    x, way = draw(time, batch, 3), drawn_way(draw, batch, 3, 4)
    *states, fw, bw = execute(BidirectionalSequenceRnn(time_major=True), (x, *way, *way), device, outputs=4).outputs
    for state, y, reverse in ((states[0], fw, False), (states[1], bw, True)):
        expected_state, expected = loop(step, x, way, "tanh", reverse)
        np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(state, expected_state, rtol=1e-5, atol=1e-5)
    state, y = execute(UnidirectionalSequenceRnn(), (x.swapaxes(0, 1), *way[:2]), device, outputs=2).outputs
    assert (state.shape, y.shape) == ((batch, 4), (batch, time, 4))


def test_states_may_be_left_out_of_the_outputs(execute: Any, draw: Any) -> None:
    x, way = draw(2, 3, 2), drawn_way(draw, 3, 2, 4)
    whole = execute(BidirectionalSequenceRnn(), (x.swapaxes(0, 1), *way, *way), outputs=4).outputs
    fewer = execute(BidirectionalSequenceRnn(), (x.swapaxes(0, 1), *way, *way), outputs=3).outputs
    for a, b in zip(whole, fewer, strict=False):
        np.testing.assert_array_equal(a, b)


def test_the_steps_are_named_after_the_cells(execute: Any) -> None:
    ran = execute(UnidirectionalSequenceRnn(activation="sigmoid", time_major=True), (X, *WAY), outputs=2)
    seen = {name for node in ran.report.nodes for name in (node.name, *node.origins)}
    assert {"unidirectional_sequence_rnn/rnn_cell/input", "unidirectional_sequence_rnn/rnn_cell_1/recurrent"} <= seen


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({0: (2, 3)}, r"'X' is float32\[2, 3\]; accepted: \[time, batch, input_size\]"),
        ({1: (4, 3)}, r"'fw_W' is float32\[4, 3\]; accepted: shape \[4, 2\]"),
        ({7: (4, 5)}, r"'bw_R' is float32\[4, 5\]; accepted: shape \[4, 4\]"),
        ({8: (1, 4)}, r"'bw_b' is float32\[1, 4\]; accepted: shape \[4\]"),
        ({5: (2, 4)}, r"'fw_h' is float32\[2, 4\]; accepted: shape \[3, 4\]"),
        ({11: (3, 3, 2)}, r"'aux' is float32\[3, 3, 2\]; accepted: 2 time steps and batch 3"),
        ({11: (2, 3, 7)}, r"'bw_W' is float32\[4, 2\]; accepted: shape \[4, 7\]"),
        ({12: (4, 2)}, "'fw_W_aux' is given without 'aux'"),
        ({11: (2, 3, 7), 13: (4, 7)}, "'bw_W_aux' is given without 'fw_W_aux'"),
        ({11: (2, 3, 7), 12: (4, 7), 13: (4, 6)}, r"'bw_W_aux' is float32\[4, 6\]; accepted: shape \[4, 7\]"),
    ],
    ids=str,
)
def test_inputs_that_do_not_fit(execute: Any, changes: dict[int, tuple[int, ...]], message: str) -> None:
    arrays: list[Array | None] = [X, *WAY, *WAY, None, None, None]
    for index, shape in changes.items():
        arrays[index] = np.zeros(shape, np.float32)
    with pytest.raises(OperatorError, match=message):
        execute(BidirectionalSequenceRnn(time_major=True), arrays, outputs=4)


@pytest.mark.parametrize("op", [UnidirectionalSequenceRnnExt(), BidirectionalSequenceRnnExt()])
def test_ext_inputs_that_do_not_fit(execute: Any, op: Any) -> None:
    directions = 2 if isinstance(op, BidirectionalSequenceRnnExt) else 1
    arrays = [X, *(np.stack([a] * directions) for a in (W, R, np.zeros(7, np.float32), H))]
    with pytest.raises(OperatorError, match=rf"'B' is float32\[{directions}, 7\]; accepted: shape \[{directions}, 8\]"):
        execute(op, arrays, outputs=2)
    with pytest.raises(OperatorError, match=rf"'W' is float32\[3, 4, 2\]; accepted: shape \[{directions}, 4, 2\]"):
        execute(op, [X, np.stack([W] * 3), *arrays[2:3]], outputs=2)


@pytest.mark.parametrize(
    "cls",
    [UnidirectionalSequenceRnn, UnidirectionalSequenceRnnExt, BidirectionalSequenceRnn, BidirectionalSequenceRnnExt],
)
def test_unknown_activations(cls: Any) -> None:
    with pytest.raises(OperatorError, match="'activation' is 'gelu'; accepted: none, relu"):
        cls(activation="gelu")


def test_merged_outputs_are_three(execute: Any) -> None:
    with pytest.raises(OperatorError, match="gave 3 output types, the node has 4 outputs"):
        execute(BidirectionalSequenceRnn(merge_outputs=True, time_major=True), (X, *WAY, *WAY), outputs=4)


def test_flops_count_the_products_of_every_step() -> None:
    types = [TensorType.of(a) for a in (X, *WAY)]
    op = UnidirectionalSequenceRnn(time_major=True)
    one = 2 * 2 * 3 * 4 * (2 + 4)
    assert op.flops(types, op.infer(*types)) == one
    both = BidirectionalSequenceRnn(time_major=True)
    doubled = [*types, *types[1:], None, None, None]
    assert both.flops(doubled, both.infer(*doubled)) == 2 * one
    stacked = [TensorType.of(a) for a in extended(2)]
    assert BidirectionalSequenceRnnExt().flops(stacked, BidirectionalSequenceRnnExt().infer(*stacked)) == 2 * one
