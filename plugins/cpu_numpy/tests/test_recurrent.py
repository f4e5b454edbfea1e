"""RNN, GRU and LSTM against their references in float64: directions, layouts, states, parts of the time, outputs asked for."""

import itertools

import numpy as np
import pytest

from dovetail.device import TypedNode
from dovetail.graph import GraphBuilder
from dovetail_cpu_numpy.kernels import _recurrent
from dovetail_ops_onnx.gru import GRU
from dovetail_ops_onnx.lstm import LSTM
from dovetail_ops_onnx.rnn import RNN

CELLS = {
    "gru": (GRU, {}),
    "gru_linear": (GRU, {"linear_before_reset": True}),
    "lstm": (LSTM, {"activations": ("sigmoid", "tanh", "Tanh")}),
    "rnn": (RNN, {}),
    "rnn_relu": (RNN, {"activations": ("Relu",)}),
}
T, N, C, H = 5, 3, 7, 11


def arrays_of(op, *, bias=True, initial=True, time=T, batch=N, constants=None):
    """X, W, R, B, no lengths, and the initial states; None where left out."""
    rng = np.random.default_rng(time)
    gates, states = op.gates, len(op.outputs) - 1

    def some(*shape):
        return (rng.standard_normal(shape) / 2).astype(np.float32)

    d = op.directions
    state = (batch, d, H) if op.layout else (d, batch, H)
    x = some(batch, time, C) if op.layout else some(time, batch, C)
    b = some(d, 2 * gates * H) if bias else None
    return [x, some(d, gates * H, C), some(d, gates * H, H), b, None, *[some(*state) if initial else None for _ in range(states)]]


def check(bench, op, arrays, asked, constants=()):
    """Two runs in poisoned memory against the reference in float64; the kernel's name."""
    g = GraphBuilder()
    names = [
        "" if a is None else g.constant(a) if i in constants else g.input(f"x{i}", "float32", a.shape)
        for i, a in enumerate(arrays)
    ]
    outputs = [name if wanted else "" for name, wanted in zip(("y", "h", "c")[: len(op.outputs)], asked, strict=False)]
    g.node(op, *names, outputs=outputs, name="n")
    executable = bench.executable(g.graph([name for name in outputs if name]))
    found = bench.run_twice(executable, [a for i, a in enumerate(arrays) if a is not None and i not in constants])
    want = op.reference(*(a if a is None else a.astype(np.float64) for a in arrays))
    for got, expected in zip(found, [w for w, wanted in zip(want, asked, strict=False) if wanted], strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
    return executable.reports[0].kernel


def op_of(cell, direction, layout):
    cls, attributes = CELLS[cell]
    if "activations" in attributes and direction == "bidirectional":
        attributes = {"activations": attributes["activations"] * 2}
    return cls(direction=direction, layout=layout, **attributes)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("cell", CELLS)
def test_cells(bench, cell, direction):
    for layout, given in itertools.product((0, 1), (False, True)):
        op = op_of(cell, direction, layout)
        for constants in ((), (1, 2, 3)):
            assert check(bench, op, arrays_of(op, bias=given, initial=given), (True,) * 3, constants) == "steps"


@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("cell", CELLS)
def test_parts_of_the_time(bench, monkeypatch, cell, direction, layout):
    """Products of two steps at a time, of five."""
    monkeypatch.setattr(_recurrent, "BUDGET", 2 * N * 4 * H * 4)
    op = op_of(cell, direction, layout)
    assert check(bench, op, arrays_of(op), (True,) * 3) == "steps"


@pytest.mark.parametrize("asked", [(True, False, False), (False, True, False), (False, False, True), (False, True, True)])
def test_outputs_that_are_asked_for(bench, asked):
    assert check(bench, LSTM(), arrays_of(LSTM()), asked) == "steps"


@pytest.mark.parametrize(("time", "batch"), [(0, 3), (4, 0), (1, 1)])
@pytest.mark.parametrize("cell", CELLS)
def test_little_or_nothing(bench, cell, time, batch):
    op = op_of(cell, "forward", 0)
    assert check(bench, op, arrays_of(op, time=time, batch=batch), (True,) * 3) == "steps"


@pytest.mark.parametrize(
    ("op", "more"),
    [
        (LSTM(clip=0.5), {}),
        (LSTM(input_forget=True), {}),
        (LSTM(activations=("Sigmoid", "Relu", "Tanh")), {}),
        (LSTM(), {7: (1, 3 * H)}),
        (RNN(activations=("Tanh", "Relu"), direction="bidirectional"), {}),
    ],
    ids=["clip", "input_forget", "activations", "peepholes", "activations of two directions"],
)
def test_what_is_left_to_the_reference(bench, op, more):
    arrays = [*arrays_of(op), None, None]
    for index, shape in more.items():
        arrays[index] = np.full(shape, 0.25, np.float32)
    g = GraphBuilder()
    count = len(type(op).inputs)
    names = ["" if a is None else g.input(f"x{i}", a.dtype.name, a.shape) for i, a in enumerate(arrays[:count])]
    g.node(op, *names, outputs=["y"], name="n")
    graph = bench.typed(g.graph(["y"]))
    assert bench.device.supports(TypedNode.of(graph.nodes[0], graph)).kernel == "ref"


@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("cell", CELLS)
def test_lengths_that_are_known_when_it_runs(bench, cell, layout):
    """Whole sequences and others, the longest of which are computed first, in the same request."""
    op = op_of(cell, "bidirectional", layout)
    arrays = arrays_of(op)
    arrays[4] = np.full(N, T, np.int32)
    graph, feeds = bench.single(op, arrays, outputs=len(op.outputs))
    executable = bench.executable(graph)
    assert executable.reports[0].kernel == "steps"
    request = executable.create_request()
    for lengths in ((5, 5, 5), (5, 2, 4), (0, 5, 1), (5, 5, 5)):
        arrays[4] = feeds[4] = np.array(lengths, np.int32)
        want = op.reference(*(a if a.dtype == np.int32 else a.astype(np.float64) for a in arrays))
        for got, expected in zip(request.run(feeds), want, strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("lengths", [(2, 0, 5), (0, 0, 0), (3, 3, 1), (9, 1, 5)])
@pytest.mark.parametrize("asked", [(True, True, True), (False, True, True), (True, False, False)])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("cell", CELLS)
def test_several_lengths(bench, cell, direction, asked, lengths):
    for layout, bias, initial in ((0, True, False), (1, False, True)):
        op = op_of(cell, direction, layout)
        arrays = arrays_of(op, bias=bias, initial=initial)
        arrays[4] = np.array(lengths, np.int32)
        assert check(bench, op, arrays, asked, constants=(1, 4) if bias else (4,)) == "steps"
