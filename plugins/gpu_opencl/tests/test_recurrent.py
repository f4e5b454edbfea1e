"""RNN, GRU and LSTM as GPUs run them, where items of a work group add up rows together, against the references in float64."""

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dovetail
from dovetail.device import AbstractOperator, DeviceInfo, TypedNode
from dovetail_gpu_opencl.device import OpenCLDevice
from dovetail_gpu_opencl.kernels import _recurrent
from dovetail_ops_onnx.gru import GRU
from dovetail_ops_onnx.lstm import LSTM
from dovetail_ops_onnx.rnn import RNN

pytestmark = pytest.mark.exhaustive(0.15)  # each test compiles programs

OPERATORS = {
    "lstm": LSTM(direction="bidirectional"),
    "coupled": LSTM(direction="reverse", input_forget=True, clip=0.7),
    "batch first": LSTM(direction="bidirectional", layout=1),
    "own activations": LSTM(direction="bidirectional", activations=("Sigmoid", "Relu", "Tanh", "Sigmoid", "Tanh", "Softsign")),
    "gru": GRU(direction="bidirectional"),
    "gru before reset": GRU(direction="bidirectional", linear_before_reset=1),
    "rnn": RNN(direction="bidirectional"),
}


@pytest.mark.parametrize("kind", ["CPU", "GPU"])
@pytest.mark.parametrize(("hidden", "width", "time", "batch"), [(33, 7, 3, 3), (68, 17, 2, 1), (150, 40, 2, 2), (7, 1, 5, 18)])
@pytest.mark.parametrize("name", OPERATORS)
def test_recurrences(
    name: str,
    kind: str,
    hidden: int,
    width: int,
    time: int,
    batch: int,
    kind_device: Callable[[str], Any],
    bench: Any,
    rng: np.random.Generator,
) -> None:
    """Rows that fill no block, several blocks of rows, one item and many, sequences of different lengths, given states."""
    op = OPERATORS[name]
    arrays = _inputs(op, hidden, width, time, batch, rng)
    want = op.reference(*(a.astype(np.float64) if a is not None and a.dtype == np.float32 else a for a in arrays))
    device = kind_device(kind)
    graph, feeds = bench.single(op, arrays, (1, 2, 3), len(want))
    for found, expected in zip(bench.run(device, graph, feeds), want, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_other_numbers_of_sequences(info: DeviceInfo, bench: Any, rng: np.random.Generator) -> None:
    """A model with an open batch keeps the program of the first one, which on CPUs has loops for one sequence or four."""
    op = LSTM(direction="bidirectional")
    arrays = _inputs(op, 16, 5, 3, 1, rng)
    g = dovetail.GraphBuilder()
    weights = [g.constant(a) for a in arrays[1:4]]
    model = g.model([g.node(op, g.input("x", "float32", [3, "N", 5]), *weights)])
    with dovetail.Core(config=False) as core, core.compile_model(model, info.name) as compiled:
        for batch in (1, 9, 2, 64, 1):
            x = rng.standard_normal((3, batch, 5)).astype(np.float32)
            want = op.reference(*(a.astype(np.float64) for a in (x, *arrays[1:4])))[0]
            np.testing.assert_allclose(compiled({"x": x})[0], want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("hidden", [24, 36])
def test_hints_of_halves_read_halves(
    hidden: int, kind_device: Callable[[str], Any], bench: Any, rng: np.random.Generator
) -> None:
    """The recurrent weights alone are rounded, unless float16 does not hold them."""
    device = copy.copy(kind_device("GPU"))
    device._bound = {}
    device.caps = dataclasses.replace(device.caps, matrix="f16")
    op = LSTM(direction="bidirectional")
    for largest in (1.0, 1e5):
        arrays = _inputs(op, hidden, 9, 4, 2, rng)
        arrays[2][0, 3, 5] = largest
        wide = [a.astype(np.float64) if a.dtype == np.float32 else a for a in arrays]
        if largest == 1.0:
            wide[2] = arrays[2].astype(np.float16).astype(np.float64)
        graph, feeds = bench.single(op, arrays, (1, 2, 3), 3)
        for found, expected in zip(bench.run(device, graph, feeds), op.reference(*wide), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_large_states(kind_device: Callable[[str], Any], bench: Any, rng: np.random.Generator) -> None:
    """States that do not fit into local memory."""
    op = LSTM(direction="bidirectional")
    arrays = _inputs(op, 1100, 3, 2, 1, rng)
    want = op.reference(*(a.astype(np.float64) if a is not None and a.dtype == np.float32 else a for a in arrays))
    graph, feeds = bench.single(op, arrays, (1, 2, 3), len(want))
    for found, expected in zip(bench.run(kind_device("GPU"), graph, feeds), want, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


SHARED = {
    "lstm": LSTM(direction="bidirectional"),
    "coupled": LSTM(direction="reverse", input_forget=True, clip=0.7),
    "batch first": LSTM(direction="forward", layout=1),
    "gru": GRU(direction="forward", linear_before_reset=1),
    "rnn": RNN(direction="bidirectional"),
}


@pytest.mark.parametrize("patience", [0, 1000])
@pytest.mark.parametrize(("hidden", "batch"), [(14, 3), (66, 2)])
@pytest.mark.parametrize("name", SHARED)
def test_shared_steps(
    name: str,
    hidden: int,
    batch: int,
    patience: int,
    info: DeviceInfo,
    bench: Any,
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Several work groups a sequence: whether all of them run at once, as two do here, or not, results are right."""
    monkeypatch.setattr(_recurrent, "_PATIENCE", patience)
    own = OpenCLDevice(info).caps
    own = dataclasses.replace(own, kind="GPU", compute_capability=max(own.compute_capability, (7, 0)), compute_units=132)
    op, device = SHARED[name], OpenCLDevice(info, caps=own)
    arrays = _inputs(op, hidden, 5, 6, batch, rng)
    want = op.reference(*(a.astype(np.float64) if a is not None and a.dtype == np.float32 else a for a in arrays))
    graph, feeds = bench.single(op, arrays, (1, 2, 3), len(want))
    node = TypedNode.of(graph.nodes[0], graph)
    kernel = next(kernel for kernel in device.kernels(node) if kernel.name == "recurrent")
    entries = [launch.entry for launch in kernel.launches(node)]
    assert ("recurrent_shared" in entries) == (hidden > 32 or not isinstance(op, RNN))
    for found, expected in zip(bench.run(device, graph, feeds), want, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def _inputs(op: AbstractOperator, hidden: int, width: int, time: int, batch: int, rng: np.random.Generator) -> list[Any]:
    """X, W, R, B, lengths and the first states."""

    def drawn(*dims: int) -> NDArray[np.float32]:
        return (rng.standard_normal(dims) / dims[-1] ** 0.5).astype(np.float32)

    assert isinstance(op, LSTM | GRU | RNN)
    rows, directions = op.gates * hidden, op.directions
    first = isinstance(op, LSTM) and op.layout
    states = (batch, directions, hidden) if first else (directions, batch, hidden)
    lens = rng.integers(1, time + 1, batch).astype(np.int32)
    given = [drawn(directions, rows, width), drawn(directions, rows, hidden), drawn(directions, 2 * rows), lens, drawn(*states)]
    x = rng.standard_normal((batch, time, width) if first else (time, batch, width)).astype(np.float32)
    return [x, *given, *([drawn(*states)] if isinstance(op, LSTM) else [])]
