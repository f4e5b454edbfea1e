"""RNN, GRU and LSTM against their references in float64: directions, layouts, states, and which outputs are requested."""

import itertools

import numpy as np
import pytest

from dovetail.device import TypedNode
from dovetail.graph import GraphBuilder
from dovetail_ops_onnx.gru import GRU
from dovetail_ops_onnx.lstm import LSTM
from dovetail_ops_onnx.rnn import RNN

CELLS = {
    "rnn": (RNN, 1, {}),
    "rnn_sigmoid": (RNN, 1, {"activations": ("Sigmoid", "Tanh")}),
    "rnn_relu": (RNN, 1, {"activations": ("Relu", "Relu")}),
    "gru": (GRU, 3, {}),
    "gru_linear": (GRU, 3, {"linear_before_reset": True}),
    "lstm": (LSTM, 4, {}),
}
T, N, C, H = 5, 3, 7, 11


def inputs(rng, gates, directions, layout, *, bias, initial, states, peephole=False):
    """All inputs by port, None where left out."""

    def some(*shape):
        return (rng.standard_normal(shape) / 2).astype(np.float32)

    state = (N, directions, H) if layout else (directions, N, H)
    return [
        some(N, T, C) if layout else some(T, N, C),
        some(directions, gates * H, C),
        some(directions, gates * H, H),
        some(directions, 2 * gates * H) if bias else None,
        np.full(N, T, np.int32) if bias else None,
        *[some(*state) if given else None for given in initial[:states]],
        *([some(directions, 3 * H)] if peephole else []),
    ]


def check(bench, op, arrays, asked):
    """Two runs in poisoned memory against the reference in float64; the kernel's name."""
    g = GraphBuilder()
    names = [
        "" if a is None else g.constant(a, name=f"x{i}") if i in (1, 2, 3, 4, 7) else g.input(f"x{i}", "float32", a.shape)
        for i, a in enumerate(arrays)
    ]
    outputs = [name if wanted else "" for name, wanted in zip(("y", "h", "c"), asked, strict=False)]
    g.node(op, *names, outputs=outputs, name="n")
    graph = g.graph([name for name in outputs if name])
    want = op.reference(*(a if a is None or a.dtype != np.float32 else a.astype(np.float64) for a in arrays))
    executable = bench.executable(graph)
    found = bench.run_twice(executable, [a for i, a in enumerate(arrays) if f"x{i}" in graph.inputs])
    for got, expected in zip(found, [w for w, wanted in zip(want, asked, strict=False) if wanted], strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
    return executable.reports[0].kernel


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("cell", CELLS)
def test_cells(bench, cell, direction):
    cls, gates, attributes = CELLS[cell]
    rng = np.random.default_rng(gates)
    states = 2 if cls is LSTM else 1
    for layout, bias in itertools.product((0, 1), (False, True)):
        op = cls(direction=direction, layout=layout, **attributes)
        for initial in ((False, False), (True, True)):
            arrays = inputs(rng, gates, op.directions, layout, bias=bias, initial=initial, states=states)
            assert check(bench, op, arrays, (True,) * (1 + states)).startswith(cls.__name__.lower())


@pytest.mark.parametrize("asked", [(True, False, False), (False, True, False), (False, False, True), (False, True, True)])
def test_outputs_that_are_asked_for(bench, asked):
    op = LSTM(direction="bidirectional")
    arrays = inputs(np.random.default_rng(1), 4, 2, 0, bias=True, initial=(False, True), states=2, peephole=True)
    assert check(bench, op, arrays, asked).startswith("lstm")


def test_only_the_last_state_of_a_gru(bench):
    arrays = inputs(np.random.default_rng(2), 3, 1, 1, bias=True, initial=(True,), states=1)
    assert check(bench, GRU(layout=1), arrays, (False, True)).startswith("gru")


@pytest.mark.parametrize(
    ("op", "gates", "change", "word"),
    [
        (RNN(clip=0.5), 1, None, "clip"),
        (RNN(activations=("Elu", "Elu")), 1, None, "elu"),
        (GRU(activations=("HardSigmoid", "Tanh")), 3, None, "activations"),
        (LSTM(input_forget=True), 4, None, "input_forget"),
        (LSTM(), 4, np.array([5, 2, 4], np.int32), "lengths"),
    ],
)
def test_what_the_primitives_do_not_have_runs_by_the_reference(bench, op, gates, change, word):
    arrays = inputs(np.random.default_rng(3), gates, 1, 0, bias=True, initial=(), states=2 if gates == 4 else 1)
    if change is not None:
        arrays[4] = change
    graph = bench.single(op, arrays, constants=(1, 2, 3, 4))[0]
    assert bench.device.supports(TypedNode.of(graph.nodes[0], graph)).kernel == "ref"
    executable = bench.executable(graph)
    assert any(word in refusal.detail for _, refusal in executable.reports[0].refusals)
    want = op.reference(*(a if a is None or a.dtype != np.float32 else a.astype(np.float64) for a in arrays))[0]
    np.testing.assert_allclose(bench.run_twice(executable, arrays[:1])[0], want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("cell", [cell for cell in CELLS if cell != "rnn_relu"])
def test_lengths_that_are_known_when_it_runs(bench, cell):
    """The primitives run while all sequences are whole, and the reference for others; the same request does both."""
    cls, gates, attributes = CELLS[cell]
    op, states = cls(direction="bidirectional", **attributes), 2 if cls is LSTM else 1
    arrays = inputs(np.random.default_rng(4), gates, 2, 0, bias=True, initial=(True, True), states=states)
    graph, feeds = bench.single(op, arrays, constants=(1, 2, 3), outputs=1 + states)
    executable = bench.executable(graph)
    assert executable.reports[0].kernel.startswith(cls.__name__.lower())
    request, place = executable.create_request(), graph.inputs.index("x4")
    for lengths in ((5, 5, 5), (5, 2, 4), (0, 5, 1), (5, 5, 5)):
        arrays[4] = feeds[place] = np.array(lengths, np.int32)
        want = op.reference(*(a if a is None or a.dtype != np.float32 else a.astype(np.float64) for a in arrays))
        for got, expected in zip(request.run(feeds), want, strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_a_state_of_sequences_of_several_lengths(bench):
    """Of the outputs only the last state is asked for."""
    arrays = inputs(np.random.default_rng(5), 3, 1, 1, bias=True, initial=(True,), states=1)
    arrays[4] = np.array([5, 2, 4], np.int32)
    g = GraphBuilder()
    names = [g.constant(a) if i in (1, 2, 3) else g.input(f"x{i}", a.dtype.name, a.shape) for i, a in enumerate(arrays)]
    g.node(GRU(layout=1), *names, outputs=["", "h"])
    want = GRU(layout=1).reference(*(a if a.dtype != np.float32 else a.astype(np.float64) for a in arrays))[1]
    found = bench.run_twice(bench.executable(g.graph(["h"])), [a for i, a in enumerate(arrays) if i not in (1, 2, 3)])
    np.testing.assert_allclose(found[0], want, rtol=1e-5, atol=1e-5)


SPOILT = {
    "x is NaN": (0, (2, 1, 3), np.nan),
    "x is infinite": (0, (0, 0, 0), np.inf),
    "the state is NaN": (5, (1, 0, 4), np.nan),
    "the state is infinite": (5, (1, 2, 0), -np.inf),
    "W is NaN": (1, (1, 3, 2), np.nan),
    "sums overflow": (0, ..., 3e38),
}


@pytest.mark.parametrize("activations", [("Relu", "Relu"), ("Tanh", "Relu")])
@pytest.mark.parametrize("case", SPOILT)
def test_relu_keeps_nan_and_infinity(bench, case, activations):
    """The same request runs the primitives before and after."""
    op = RNN(direction="bidirectional", activations=activations)
    index, place, value = SPOILT[case]
    arrays = inputs(np.random.default_rng(6), 1, 2, 0, bias=True, initial=(True,), states=1)
    spoilt = [a.copy() for a in arrays]
    spoilt[index][place] = value
    with np.errstate(all="ignore"):
        assert not np.isfinite(op.reference(*spoilt)[0]).all()
    runs = [spoilt] if index == 1 else [arrays, spoilt, arrays]
    graph, _ = bench.single(op, runs[0], constants=(1, 2, 3, 4), outputs=2)
    executable = bench.executable(graph)
    assert executable.reports[0].kernel.startswith("rnn")
    request = executable.create_request()
    for run in runs:
        with np.errstate(all="ignore"):
            want = op.reference(*run)
        for got, expected in zip(request.run([run[0], run[5]]), want, strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("asked", "lengths", "word"), [((False, True), True, "output Y"), ((True, True), False, "lengths")])
def test_relu_whose_nan_would_not_be_seen_runs_by_the_reference(bench, asked, lengths, word):
    arrays = inputs(np.random.default_rng(7), 1, 1, 0, bias=True, initial=(), states=1)
    g = GraphBuilder()
    names = [
        g.constant(a) if i in (1, 2, 3) or (lengths and i == 4) else g.input(f"x{i}", a.dtype.name, a.shape)
        for i, a in enumerate(arrays)
    ]
    outputs = [name if wanted else "" for name, wanted in zip("yh", asked, strict=True)]
    g.node(RNN(activations=("Relu", "Relu")), *names, outputs=outputs)
    report = bench.executable(g.graph([name for name in outputs if name])).reports[0]
    assert report.kernel == "ref"
    assert any(word in refusal.detail for _, refusal in report.refusals)
