"""Sequences of several lengths by the recurrent primitives, against the references in float64."""

import numpy as np
import pytest

import dovetail
from dovetail.graph import GraphBuilder
from dovetail_ops_onnx._recurrent import Recurrent
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.gru import GRU
from dovetail_ops_onnx.lstm import LSTM
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.rnn import RNN

RNG = np.random.default_rng(43)
TIME, BATCH, INPUTS, HIDDEN = 7, 5, 3, 4
GATES = {GRU: 3, LSTM: 4, RNN: 1}
LENGTHS = {"mixed": [7, 1, 0, 4, 6], "none": [0, 0, 0, 0, 0], "whole": [7, 7, 7, 7, 7], "short": [2, 3, 2, 1, 2]}


def some(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


class Net:
    """One recurrent node behind a Relu, whose result a second node reads afterwards, and its truth."""

    def __init__(self, op, has_initial, outputs):
        count = op.directions
        x, state = ((BATCH, TIME), (BATCH, count)) if op.layout else ((TIME, BATCH), (count, BATCH))
        rows = GATES[type(op)] * HIDDEN
        self.op, self.weights = op, (some(count, rows, INPUTS), some(count, rows, HIDDEN), some(count, 2 * rows))
        self.feeds = {"x": some(*x, INPUTS)} | ({"h": some(*state, HIDDEN)} if has_initial else {})
        g = GraphBuilder()
        relu = g.node(Relu(), g.input("x", "float32", self.feeds["x"].shape))
        given = [relu, *map(g.constant, self.weights), g.input("lengths", "int32", (BATCH,))]
        given += [g.input("h", "float32", self.feeds["h"].shape)] if has_initial else []
        g.node(op, *given, outputs=["y", "last", "cell"][: len(op.outputs)])
        self.model = g.model([*outputs, g.node(Add(), relu, relu, outputs=["twice"])])

    def truth(self, lengths):
        x, *rest = (array.astype(np.float64) for array in (np.maximum(self.feeds["x"], 0), *self.weights))
        initial = [self.feeds["h"].astype(np.float64)] if "h" in self.feeds else []
        return dict(zip(["y", "last", "cell"], self.op.reference(x, *rest, lengths, *initial), strict=False)) | {"twice": 2 * x}


@pytest.mark.parametrize("outputs", [["y"], ["last"], ["y", "last"]])
@pytest.mark.parametrize("has_initial", [False, True])
@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", GATES)
def test_all_lengths(kind, direction, layout, has_initial, outputs, monkeypatch):
    net = Net(kind(direction=direction, layout=layout), has_initial, outputs)
    truths = {name: net.truth(np.int32(lengths)) for name, lengths in LENGTHS.items()}
    monkeypatch.setattr(Recurrent, "run", lambda *_: pytest.fail("the reference ran"))
    compiled = dovetail.Core(config=False).compile_model(net.model, "ONEDNN")
    for name, lengths in LENGTHS.items():
        found = compiled({**net.feeds, "lengths": np.int32(lengths)})
        for output, value in found.items():
            np.testing.assert_allclose(value, truths[name][output], rtol=1e-4, atol=1e-5)


def test_nan_past_the_end_stays_there():
    net = Net(GRU(direction="bidirectional"), False, ["y", "last"])
    truth = net.truth(lengths := np.int32(LENGTHS["short"]))
    net.feeds["x"][3:] = np.nan
    found = dovetail.Core(config=False).compile_model(net.model, "ONEDNN")({**net.feeds, "lengths": lengths})
    for output in ("y", "last"):
        np.testing.assert_allclose(found[output], truth[output], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("outputs", [["cell"], ["y", "last", "cell"]])
def test_the_last_cell_state_is_computed_by_references(outputs):
    """The primitives keep only that of the last step."""
    net = Net(LSTM(direction="bidirectional"), True, outputs)
    compiled = dovetail.Core(config=False).compile_model(net.model, "ONEDNN")
    for lengths in map(np.int32, LENGTHS.values()):
        found, truth = compiled({**net.feeds, "lengths": lengths}), net.truth(lengths)
        for output, value in found.items():
            np.testing.assert_allclose(value, truth[output], rtol=1e-4, atol=1e-5)
