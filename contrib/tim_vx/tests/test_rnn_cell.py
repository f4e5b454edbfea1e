"""RNNCell against TIM-VX's golden numbers, a graph built by hand, and a loop in float64."""

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dovetail
from dovetail.errors import OperatorError
from dovetail.graph import DType, GraphBuilder
from dovetail.op import UnboundOperator
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.gemm import Gemm
from dovetail_ops_onnx.quantize_linear import QuantizeLinear
from dovetail_ops_onnx.tanh import Tanh
from dovetail_ops_tim_vx._activations import ACTIVATIONS
from dovetail_ops_tim_vx.cases.rnn_cell import SCALE, STATE, B, H, R, W, X, Y
from dovetail_ops_tim_vx.rnn_cell import RNNCell

pytestmark = pytest.mark.exhaustive(0.15, device="OPENCL")  # compiles programs

Array = NDArray[Any]


def test_golden_values(device: str, execute: Any) -> None:
    op = RNNCell(state_dtype=DType.UINT8, state_scale=SCALE)
    y, state = execute(op, (X, W, B, H, R), device, outputs=2).outputs
    assert (y.dtype, state.dtype) == (np.float32, np.uint8)
    np.testing.assert_allclose(y, Y, rtol=0, atol=1e-6)
    np.testing.assert_array_equal(state, STATE)


def test_the_composition_equals_the_graph_built_by_hand(device: str, execute: Any) -> None:
    g = GraphBuilder()
    names = [g.input(f"x{i}", "float32", a.shape) for i, a in enumerate((X, W, B, H, R))]
    total = g.node(Add(), g.node(Gemm(transB=True), *names[:3]), g.node(Gemm(transB=True), names[3], names[4]))
    y = g.node(Tanh(), total)
    state = g.node(QuantizeLinear(), y, g.constant(SCALE, "float32"), g.constant(0, "uint8"))
    by_hand = dovetail.Core().compile_model(g.model([y, state]), device)
    state_in = np.float32([[0.5, -0.25, 1, 0], [0.125, 2, -1, 0.75]])
    for h in (H, state_in):
        expected = list(by_hand(dict(zip(names, (X, W, B, h, R), strict=True))).values())
        op = RNNCell(state_dtype=DType.UINT8, state_scale=SCALE)
        ours = execute(op, (X, W, B, h, R), device, outputs=2).outputs
        np.testing.assert_allclose(ours[0], expected[0], rtol=0, atol=5e-7)
        assert np.max(np.abs(ours[1].astype(int) - expected[1].astype(int))) <= 1


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation_counts(device: str, execute: Any, draw: Any, activation: str, step: Any) -> None:
    arrays = (draw(3, 5, spread=2), draw(7, 5), draw(7, spread=3), draw(3, 7), draw(7, 7))
    (y,) = execute(RNNCell(activation=activation), arrays, device).outputs
    np.testing.assert_allclose(y, step(*arrays, activation=activation), rtol=1e-5, atol=1e-5)


def test_the_goldens_are_those_of_tanh_and_no_other_activation(step: Any) -> None:
    assert [a for a in ACTIVATIONS if np.allclose(step(X, W, B, H, R, a), Y, atol=1e-5)] == ["tanh"]


@pytest.mark.parametrize("given", [(True, True), (True, False), (False, True), (False, False)], ids=str)
def test_bias_and_state_may_be_left_out(device: str, execute: Any, draw: Any, given: tuple[bool, bool], step: Any) -> None:
    x, w, r = draw(2, 3), draw(4, 3), draw(4, 4)
    b = draw(4) if given[0] else None
    h = draw(2, 4) if given[1] else None
    y, state = execute(RNNCell(), (x, w, b, h, r), device, outputs=2).outputs
    np.testing.assert_allclose(y, step(x, w, b, h, r), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(state, y)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_floats(device: str, execute: Any, draw: Any, dtype: str, step: Any) -> None:
    arrays = [draw(*s, dtype=dtype) for s in ((3, 5), (2, 5), (2,), (3, 2), (2, 2))]
    y, state = execute(RNNCell(state_dtype=DType.INT8, state_scale=1 / 64), arrays, device, outputs=2).outputs
    tolerance = {"float16": 5e-3, "bfloat16": 4e-2, "float64": 1e-12}[dtype]
    np.testing.assert_allclose(y.astype(np.float64), step(*arrays), rtol=0, atol=tolerance)
    assert y.dtype == arrays[0].dtype
    # The state is made from numbers that are not rounded to y's type: of bfloat16 they differ by up to 2^-9 of 1.
    rounding = {"float16": 2**-12, "bfloat16": 2**-9, "float64": 1e-12}[dtype]
    assert np.abs(state - y.astype(np.float64) * 64).max() <= 0.5 + 64 * rounding


def test_an_8_bit_state_goes_round(device: str, execute: Any, draw: Any, step: Any) -> None:
    x, w, b, r = draw(2, 3), draw(4, 3), draw(4), draw(4, 4)
    h = np.uint8([[0, 255, 100, 99], [101, 17, 130, 240]])
    op = RNNCell(activation="none", state_scale=0.02, state_zero_point=100)
    y, state = execute(op, (x, w, b, h, r), device, outputs=2).outputs
    np.testing.assert_allclose(y, step(x, w, b, (h.astype(np.float64) - 100) * 0.02, r, "none"), rtol=1e-5, atol=1e-5)
    assert state.dtype == np.uint8
    assert np.max(np.abs(state - np.clip(np.rint(y / np.float32(0.02)) + 100, 0, 255))) <= 1


def test_rounding_is_half_to_even_and_saturates(device: str, execute: Any) -> None:
    x = np.float32([[0.5], [1.5], [2.5], [-0.5], [-7], [300]])
    one, zero = np.float32([[1]]), np.float32([[0]])
    op = RNNCell(activation="none", state_dtype=DType.UINT8, state_zero_point=1)
    _, state = execute(op, (x, one, None, None, zero), device, outputs=2).outputs
    np.testing.assert_array_equal(state[:, 0], [1, 3, 3, 1, 0, 255])


def test_a_float_state_of_another_type_is_cast(device: str, execute: Any, draw: Any, step: Any) -> None:
    arrays = [draw(2, 3), draw(4, 3), draw(4), draw(2, 4, dtype="float16"), draw(4, 4)]
    y, state = execute(RNNCell(), arrays, device, outputs=2).outputs
    assert (y.dtype, state.dtype) == (np.float32, np.float16)
    np.testing.assert_allclose(y, step(*arrays), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(state, y.astype(np.float16))


def test_batch_0(device: str, execute: Any) -> None:
    y, state = execute(RNNCell(), (X[:0], W, B, H[:0], R), device, outputs=2).outputs
    assert y.shape == state.shape == (0, 4)


def test_names_in_the_report(device: str, execute: Any) -> None:
    op = RNNCell(state_dtype=DType.UINT8, state_scale=SCALE)
    ran = execute(op, (X, W, B, H, R), device, outputs=2)
    seen = {name for node in ran.report.nodes for name in (node.name, *node.origins)}
    assert "rnn_cell/tanh" in seen or "rnn_cell/recurrent" in seen
    assert {"rnn_cell/input", "rnn_cell/state_out"} <= seen
    assert all(node.name.startswith("rnn_cell/") for node in ran.report.nodes)


def test_a_model_finds_the_pack_by_its_domain(device: str, execute: Any) -> None:
    read = UnboundOperator("tim.vx", "RNNCell", 1, {"activation": b"tanh", "state_dtype": 2, "state_scale": SCALE})
    y, state = execute(read, (X, W, B, H, R), device, outputs=2, constants=(1, 2, 4)).outputs
    np.testing.assert_allclose(y, Y, rtol=0, atol=1e-6)
    np.testing.assert_array_equal(state, STATE)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"activation": "tahn"}, "'activation' is 'tahn'; accepted: none, relu, .*Did you mean 'tanh'"),
        ({"state_scale": 0.0}, "'state_scale' is 0.0; accepted: more than 0"),
        ({"state_scale": math.nan}, "'state_scale' is nan"),
        ({"state_dtype": "int32"}, "'state_dtype' is int32; accepted: bfloat16, float16"),
    ],
)
def test_attributes_that_do_not_fit(attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(OperatorError, match=f"(?s){message}"):
        RNNCell.from_attributes(attributes)


@pytest.mark.parametrize(
    ("index", "shape", "message"),
    [
        (0, (2, 3, 1), r"'X' is float32\[2, 3, 1\]; accepted: \[batch, input_size\]"),
        (1, (4, 2), r"'W' is float32\[4, 2\]; accepted: shape \[4, 3\]"),
        (2, (3,), r"'b' is float32\[3\]; accepted: shape \[4\]"),
        (3, (1, 4), r"'h' is float32\[1, 4\]; accepted: shape \[2, 4\]"),
        (4, (4, 3), r"'R' is float32\[4, 3\]; accepted: shape \[4, 4\]"),
    ],
)
def test_shapes_that_do_not_fit(execute: Any, index: int, shape: tuple[int, ...], message: str) -> None:
    arrays = [X, W, B, H, R]
    arrays[index] = np.zeros(shape, np.float32)
    with pytest.raises(OperatorError, match=message):
        execute(RNNCell(), arrays)


def test_a_zero_point_that_does_not_fit(execute: Any) -> None:
    with pytest.raises(OperatorError, match="'state_zero_point' is -1; accepted for uint8: 0 to 255"):
        execute(RNNCell(state_dtype=DType.UINT8, state_zero_point=-1), (X, W, B, H, R))


def test_integers_are_refused(execute: Any) -> None:
    with pytest.raises(OperatorError, match="input 'X' is int32"):
        execute(RNNCell(), tuple(a.astype(np.int32) for a in (X, W, B, H, R)))
