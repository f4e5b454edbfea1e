"""Primitives of nodes with little work are executed by one call: the same results, and errors that name the node."""

from dataclasses import replace

import numpy as np
import pytest

import dovetail
from dovetail.errors import InferError
from dovetail_cpu_onednn import joined_launches
from dovetail_cpu_onednn.binder import Binder
from dovetail_cpu_onednn.binding import Launch
from dovetail_cpu_onednn.request import _in_groups
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.softmax import Softmax
from dovetail_ops_onnx.tanh import Tanh

COUNT, WIDTH = 6, 8


def _model():
    """Products with Tanh, then Softmax, which looks at its data first; the input, and the result in float64."""
    rng, g = np.random.default_rng(5), dovetail.GraphBuilder()
    x = rng.standard_normal((3, WIDTH)).astype(np.float32)
    value, expected = g.input("x", "float32", x.shape), x.astype(np.float64)
    for _ in range(COUNT):
        weights = rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) / 2
        value, expected = g.node(Tanh(), g.node(MatMul(), value, g.constant(weights))), np.tanh(expected @ weights)
    exponentials = np.exp(expected - expected.max(axis=-1, keepdims=True))
    model = g.model([g.node(Softmax(), value)])
    return model, x, exponentials / exponentials.sum(axis=-1, keepdims=True)


@pytest.fixture(params=["joined", "alone"])
def way(request, monkeypatch):
    if request.param == "alone":
        monkeypatch.setattr(joined_launches, "_native", lambda: None)
    elif joined_launches._native() is None:
        pytest.skip("no machine code for this processor")
    return request.param


def _executable(model):
    """The device's executable of the model, for three rows."""
    return dovetail.Core(config=False).compile_model(model, "ONEDNN").plan(((3, WIDTH),)).steps[0].executable


def test_results_are_the_same(way):
    model, x, expected = _model()
    compiled = dovetail.Core(config=False).compile_model(model, "ONEDNN")
    bound = _executable(model).create_request()._bound
    assert len(bound.launches) > COUNT
    assert (len(bound.calls) < len(bound.launches)) is (way == "joined")
    assert bound.ends[-1] == len(bound.launches)
    for _ in range(3):
        np.testing.assert_allclose(compiled({"x": x})[0], expected, rtol=1e-5, atol=1e-7)
    request = compiled.create_infer_request()
    slices = request.trace({"x": x}).slices
    assert len({one.placed.name for one in slices if one.placed is not None}) == COUNT + 1
    np.testing.assert_allclose(request.results[0], expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("number", [0, 2, COUNT - 1])
def test_an_error_names_the_node(way, number, monkeypatch):
    model, x, _ = _model()
    compiled = dovetail.Core(config=False).compile_model(model, "ONEDNN")
    name = [p.node.node.name for p in compiled.plan(((3, WIDTH),)).steps[0].executable.placements][number]
    inner = Binder._launch

    def launch(self, placement, prepared):
        found = inner(self, placement, prepared)
        if placement.node.node.name != name:
            return found
        return Launch(lambda: 2, found.kept, found.packed[:16])  # one argument, where the primitive wants three

    monkeypatch.setattr(Binder, "_launch", launch)
    with pytest.raises(InferError, match="invalid arguments") as caught:
        compiled.create_infer_request().infer({"x": x})
    assert f"'{name}'" in str(caught.value)


def test_much_work_is_not_joined():
    """Limits of time are looked at between calls."""
    launches = [(Launch(lambda: 0, (), b"packed"), p) for p in _executable(_model()[0]).placements[:4]]
    sizes = {}
    for nanoseconds in (10_000, 40_000, 200_000):
        groups = _in_groups([(launch, replace(p, nanoseconds=nanoseconds)) for launch, p in launches])
        sizes[nanoseconds] = [len(group) for group in groups]
    assert sizes == {10_000: [4], 40_000: [2, 2], 200_000: [1, 1, 1, 1]}
    others = [(launch, replace(p, threads=1 + number // 2)) for number, (launch, p) in enumerate(launches)]
    others.insert(1, (lambda: None, launches[0][1]))
    assert [len(group) for group in _in_groups(others)] == [1, 1, 1, 2]
