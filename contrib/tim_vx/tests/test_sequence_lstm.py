"""BidirectionalSequenceLstm against TIM-VX's golden numbers and a loop in float64 by TFLite's equations."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dovetail.errors import OperatorError
from dovetail_ops_tim_vx.bidirectional_sequence_lstm import BidirectionalSequenceLstm
from dovetail_ops_tim_vx.cases.bidirectional_sequence_lstm import BACKWARD, FORWARD, PORTS, WAY, X, arranged, both

pytestmark = pytest.mark.exhaustive(0.1, device="OPENCL")  # compiles programs

Array = NDArray[Any]
Inputs = dict[str, Array]

FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "none": lambda v: v,
    "relu": lambda v: np.maximum(v, 0),
    "relu6": lambda v: np.clip(v, 0, 6),
    "tanh": np.tanh,
    "sigmoid": lambda v: 1 / (1 + np.exp(-v)),
    "hard_sigmoid": lambda v: np.clip(0.2 * v + 0.5, 0, 1),
}


def loop(named: Inputs, op: BidirectionalSequenceLstm, x: Array, way: str) -> tuple[Array, Array, Array]:
    """Outputs in time order and the last states for x [time, batch, size], in float64, one sample and one cell at a time."""
    p = {name[3:]: np.asarray(value, np.float64) for name, value in named.items() if name.startswith(way)}
    cells, size = p["W_f"].shape[0], p["R_f"].shape[1]
    y = np.zeros((x.shape[0], x.shape[1], size))
    last_h, last_c = np.zeros((x.shape[1], size)), np.zeros((x.shape[1], cells))
    for n in range(x.shape[1]):
        h = p["h"][n] if "h" in p else np.zeros(size)
        c = p["c"][n] if "c" in p else np.zeros(cells)
        for t in sorted(range(x.shape[0]), reverse=way == "bw"):
            h, c = one_step(p, op, x[t, n].astype(np.float64), h, c)
            y[t, n] = h
        last_h[n], last_c[n] = h, c
    return y, last_h, last_c


def one_step(p: Inputs, op: BidirectionalSequenceLstm, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
    def gate(name: str, state: Array, function: str) -> Array:
        total = p[f"W_{name}"] @ x + p[f"R_{name}"] @ h
        if f"P_{name}" in p:
            total = total + p[f"P_{name}"] * state
        if f"N_{name}" in p:
            mean = sum(total) / len(total)
            deviation = math.sqrt(sum((v - mean) ** 2 for v in total) / len(total) + 1e-8)
            total = (total - mean) / deviation * p[f"N_{name}"]
        bias = p[f"b_{name}"] + (op.forget_bias if name == "f" else 0)
        return FUNCTIONS[function](total + bias)

    f = gate("f", c, op.recurrent_activation)
    i = gate("i", c, op.recurrent_activation) if "W_i" in p else 1 - f
    new = f * c + i * gate("c", np.zeros_like(c), op.activation)
    if op.cell_clip:
        new = np.clip(new, -op.cell_clip, op.cell_clip)
    output = gate("o", new, op.recurrent_activation) * FUNCTIONS[op.activation](new)
    if "W_proj" in p:
        output = p["W_proj"] @ output + p.get("b_proj", np.zeros(len(p["W_proj"])))
        output = np.clip(output, -op.proj_clip, op.proj_clip) if op.proj_clip else output
    return output, new


def drawn(draw: Any, parts: str, batch: int = 2, size: int = 3, cells: int = 4) -> Inputs:
    """Inputs of both directions; `parts` names what is there beside the required ones."""
    named: Inputs = {}
    outputs = 5 if "projection" in parts else cells
    for way in ("fw", "bw"):
        for gate in "fco" if "cifg" in parts else "ifco":
            named |= {f"{way}_W_{gate}": draw(cells, size), f"{way}_R_{gate}": draw(cells, outputs, spread=0.5)}
            named[f"{way}_b_{gate}"] = draw(cells)
            if "peephole" in parts and gate != "c":
                named[f"{way}_P_{gate}"] = draw(cells)
            if "norm" in parts:
                named[f"{way}_N_{gate}"] = draw(cells)
        if "projection" in parts:
            named[f"{way}_W_proj"] = draw(outputs, cells)
        if "projection_bias" in parts:
            named[f"{way}_b_proj"] = draw(outputs)
        if "states" in parts:
            named |= {f"{way}_h": draw(batch, outputs), f"{way}_c": draw(batch, cells)}
    return named


def check(
    ran: Any, named: Inputs, op: BidirectionalSequenceLstm, x: Array, bw_x: Array | None = None, atol: float = 2e-5
) -> None:
    """The outputs against the loop, for x [time, batch, size]."""
    for at, (way, read) in enumerate((("fw", x), ("bw", x if bw_x is None else bw_x))):
        y, h, c = loop(named, op, read, way)
        expected = (h if not op.return_sequences else y if op.time_major else y.swapaxes(0, 1), h, c)
        for got, want in zip(ran.outputs[3 * at : 3 * at + 3], expected, strict=True):
            assert got.shape == want.shape
            np.testing.assert_allclose(got.astype(np.float64), want, rtol=0, atol=atol)


def test_golden(device: str, execute: Any) -> None:
    named = {"X": X, **both(WAY)}
    op = BidirectionalSequenceLstm(return_sequences=True)
    constants = [i for i in range(1, 56) if PORTS[i] in named]
    fw, fw_h, _, bw, bw_h, _ = execute(op, arranged(named), device, outputs=6, constants=constants).outputs
    np.testing.assert_allclose(fw[0], FORWARD, rtol=0, atol=1e-5)
    np.testing.assert_allclose(bw[0], BACKWARD, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(fw_h, fw[:, -1])
    np.testing.assert_array_equal(bw_h, bw[:, 0])


PARTS = [
    "",
    "states",
    "cifg",
    "peephole",
    "peephole states",
    "projection",
    "projection_bias states",
    "norm",
    "norm peephole states",
    "cifg peephole projection_bias norm states",
    "peephole projection_bias norm states",
]


@pytest.mark.parametrize("parts", PARTS, ids=lambda p: p.replace(" ", "-") or "plain")
def test_every_optional_part(device: str, execute: Any, draw: Any, parts: str) -> None:
    x, named = draw(4, 2, 3), drawn(draw, parts)
    op = BidirectionalSequenceLstm(time_major=True, return_sequences=True, forget_bias=0.5)
    check(execute(op, arranged({"X": x, **named}), device, outputs=6), named, op, x)


@pytest.mark.parametrize("time_major", [True, False])
@pytest.mark.parametrize("return_sequences", [True, False])
def test_layout_and_last_output_alone(device: str, execute: Any, draw: Any, time_major: bool, return_sequences: bool) -> None:
    x, named = draw(3, 2, 3), drawn(draw, "projection states")
    op = BidirectionalSequenceLstm(time_major=time_major, return_sequences=return_sequences)
    given = x if time_major else x.swapaxes(0, 1)
    check(execute(op, arranged({"X": given, **named}), device, outputs=6), named, op, x)


@pytest.mark.parametrize("activation", ["none", "relu", "relu6", "hard_sigmoid", "sigmoid"])
@pytest.mark.parametrize("recurrent", ["sigmoid", "hard_sigmoid"])
def test_activations_count(execute: Any, draw: Any, activation: str, recurrent: str) -> None:
    x, named = draw(2, 2, 3), drawn(draw, "peephole states")
    op = BidirectionalSequenceLstm(activation=activation, recurrent_activation=recurrent, time_major=True, return_sequences=True)
    check(execute(op, arranged({"X": x, **named}), outputs=6), named, op, x)


@pytest.mark.parametrize(("cell_clip", "proj_clip"), [(0.3, 0.0), (0.0, 0.2), (0.4, 0.1)])
def test_clips(device: str, execute: Any, draw: Any, cell_clip: float, proj_clip: float) -> None:
    x, named = draw(3, 2, 3, spread=2), drawn(draw, "projection_bias peephole states")
    op = BidirectionalSequenceLstm(cell_clip=cell_clip, proj_clip=proj_clip, time_major=True, return_sequences=True)
    ran = execute(op, arranged({"X": x, **named}), device, outputs=6)
    check(ran, named, op, x)
    for limit, at in ((cell_clip, 2), (proj_clip, 0)):
        assert not limit or np.max(np.abs(ran.outputs[at])) == np.float32(limit)


def test_an_auxiliary_input_with_weights(device: str, execute: Any, draw: Any) -> None:
    x, aux, named = draw(3, 2, 3), draw(3, 2, 6), drawn(draw, "states")
    extra = {f"{way}_A_{gate}": draw(4, 6) for way in ("fw", "bw") for gate in "ifco"}
    op = BidirectionalSequenceLstm(time_major=True, return_sequences=True)
    ran = execute(op, arranged({"X": x, "aux": aux, **named, **extra}), device, outputs=6)
    joined = named | {
        f"{way}_W_{g}": np.concatenate([named[f"{way}_W_{g}"], extra[f"{way}_A_{g}"]], axis=1)
        for way in ("fw", "bw")
        for g in "ifco"
    }
    check(ran, joined, op, np.concatenate([x, aux], axis=2))


def test_an_auxiliary_input_without_weights(device: str, execute: Any, draw: Any) -> None:
    x, aux, named = draw(3, 2, 3), draw(3, 2, 3), drawn(draw, "cifg")
    op = BidirectionalSequenceLstm(time_major=True, return_sequences=True)
    check(execute(op, arranged({"X": x, "aux": aux, **named}), device, outputs=6), named, op, x, aux)


@pytest.mark.parametrize(("dtype", "atol"), [("float16", 2e-2), ("bfloat16", 1e-1), ("float64", 1e-12)])
def test_other_floats(device: str, execute: Any, draw: Any, dtype: str, atol: float) -> None:
    x = draw(2, 2, 3).astype(draw(1, dtype=dtype).dtype)
    named = {name: a.astype(x.dtype) for name, a in drawn(draw, "peephole norm states").items()}
    op = BidirectionalSequenceLstm(time_major=True, return_sequences=True)
    ran = execute(op, arranged({"X": x, **named}), device, outputs=6)
    assert all(a.dtype == x.dtype for a in ran.outputs)
    check(ran, named, op, x, atol=atol)


@pytest.mark.parametrize(("time", "batch"), [(1, 2), (0, 2), (2, 0)])
@pytest.mark.parametrize("parts", ["", "states projection"])
def test_short_sequences_and_batch_0(device: str, execute: Any, draw: Any, time: int, batch: int, parts: str) -> None:
    x, named = draw(time, batch, 3), drawn(draw, parts, batch)
    op = BidirectionalSequenceLstm(time_major=True, return_sequences=True)
    check(execute(op, arranged({"X": x, **named}), device, outputs=6), named, op, x)


def test_names_in_the_report(execute: Any, draw: Any) -> None:
    x, named = draw(2, 2, 3), drawn(draw, "peephole states")
    ran = execute(BidirectionalSequenceLstm(time_major=True), arranged({"X": x, **named}), outputs=6)
    seen = {name for node in ran.report.nodes for name in (node.name, *node.origins)}
    assert {f"bidirectional_sequence_lstm/{way}/recurrent" for way in ("fw", "bw")} <= seen


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fw_W_f": (4, 2)}, r"'fw_W_f' is float32\[4, 2\]; accepted: shape \[4, 3\]"),
        ({"bw_R_o": (3, 4)}, r"'bw_R_o' is float32\[3, 4\]; accepted: shape \[4, 4\]"),
        ({"bw_b_c": (5,)}, r"'bw_b_c' is float32\[5\]"),
        ({"fw_c": (2, 3)}, r"'fw_c' is float32\[2, 3\]; accepted: shape \[2, 4\]"),
        ({"fw_W_i": None}, "'fw_R_i' is given without 'fw_W_i'"),
        ({"fw_R_i": None}, "'fw_R_f' is given without 'fw_R_i'"),
        ({"bw_P_f": (4,)}, "'bw_P_f' is given without 'bw_P_i'"),
        ({"fw_N_i": (4,)}, "'fw_N_i' is given without 'fw_N_f'"),
        ({"fw_b_proj": (4,)}, "'fw_b_proj' is given without 'fw_W_proj'"),
        ({"fw_W_proj": (5, 4)}, r"'fw_R_i' is float32\[4, 4\]; accepted: shape \[4, 5\]"),
        ({"fw_A_i": (4, 2)}, "'fw_A_i' is given without 'aux'"),
        ({"aux": (2, 2, 5)}, r"'bw_W_i' is float32\[4, 3\]; accepted: shape \[4, 5\]"),
        ({"aux": (3, 2, 3)}, "accepted: 2 time steps and batch 2"),
    ],
    ids=str,
)
def test_inputs_that_do_not_fit(execute: Any, draw: Any, changes: dict[str, tuple[int, ...] | None], message: str) -> None:
    named = {"X": draw(2, 2, 3), **drawn(draw, "states")}
    for name, shape in changes.items():
        if shape is None:
            del named[name]
        else:
            named[name] = np.zeros(shape, np.float32)
    with pytest.raises(OperatorError, match=message):
        execute(BidirectionalSequenceLstm(time_major=True), arranged(named), outputs=6)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"activation": "Tanh"}, "'activation' is 'Tanh'; accepted: none"),
        ({"recurrent_activation": "gelu"}, "'recurrent_activation' is 'gelu'"),
        ({"cell_clip": -1.0}, r"'cell_clip' is -1.0; accepted: 0 \(none\) or more"),
        ({"proj_clip": math.nan}, "'proj_clip' is nan"),
    ],
)
def test_attributes_that_do_not_fit(attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(OperatorError, match=message):
        BidirectionalSequenceLstm.from_attributes(attributes)
