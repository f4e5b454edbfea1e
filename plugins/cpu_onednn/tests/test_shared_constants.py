"""Weights are brought into the layout of a primitive once for all shapes of a model."""

import gc

import numpy as np
import pytest

import dovetail
from dovetail.graph import GraphBuilder
from dovetail_cpu_onednn import constants
from dovetail_cpu_onednn.binding import Arg
from dovetail_cpu_onednn.descriptors import plain
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.shared_constants import Constant, SharedConstants
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.conv_integer import ConvInteger
from dovetail_ops_onnx.dequantize_linear import DequantizeLinear
from dovetail_ops_onnx.gemm import Gemm
from dovetail_ops_onnx.gru import GRU
from dovetail_ops_onnx.identity import Identity
from dovetail_ops_onnx.lstm import LSTM
from dovetail_ops_onnx.mat_mul_integer import MatMulInteger
from dovetail_ops_onnx.quantize_linear import QuantizeLinear
from dovetail_ops_onnx.rnn import RNN

RNG = np.random.default_rng(5)


def some(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.fixture
def weights():
    return some(48, 48)


def _model(weights):
    """Two convolutions of kernel 1, whose weights every CPU reads in blocks; those of the second are a view of the first's."""
    g = GraphBuilder()
    y = g.node(Conv(), g.input("x", "float32", ("N", 48, 2, 3)), g.constant(weights[..., None, None]), name="first")
    return g.model([g.node(Conv(), y, g.constant(weights.T[..., None, None]), name="second")])


def _expected(x, weights):
    return np.einsum("oi,ip,nphw->nohw", weights.T, weights, x.astype(np.float64))


def _copies(compiled, rows):
    """The arrays that the two convolutions read as their weights."""
    (step,) = compiled.plan(((rows, 48, 2, 3),)).steps
    return [
        found.array for name in ("first", "second") for one in step.executable.prepared[name] for found in one.constants.values()
    ]


def test_shapes_share_what_they_read(weights):
    core = dovetail.Core(config=False)
    with core.compile_model(_model(weights), "ONEDNN") as compiled:
        first, again = _copies(compiled, 3), _copies(compiled, 5)
        assert len(first) == len(again) == 2
        assert all(a is b for a, b in zip(first, again, strict=True))
        assert not np.array_equal(first[0], first[1])
        for rows in (3, 5, 7):
            x = some(rows, 48, 2, 3)
            np.testing.assert_allclose(compiled({"x": x})[0], _expected(x, weights), rtol=1e-4, atol=1e-3)


@pytest.mark.skipif(not library().has_int8, reason="this CPU has no instructions (VNNI) for exact sums of 8-bit products")
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_shapes_share_constants_of_8_bits(dtype):
    """Of products, convolutions and their quantized forms: weights, uint8 once less 128, and what is computed of scales."""
    zero, scale = np.array(128 if dtype == np.uint8 else 0, dtype), np.float32(0.25)
    g = GraphBuilder()
    matrix, taps = (RNG.integers(100, 150, shape).astype(dtype) for shape in ((48, 48), (48, 48, 1, 1)))
    x, zeros, one = g.input("x", "uint8", ("N", 48, 2, 48)), g.constant(np.uint8(7)), g.constant(zero)
    product = g.node(MatMulInteger(), x, g.constant(matrix), zeros, one, name="product")
    sums = g.node(ConvInteger(), x, g.constant(taps), zeros, one, name="sums")
    weights = g.node(DequantizeLinear(), g.constant(taps), g.constant(scale), one)
    real = g.node(Conv(), g.node(DequantizeLinear(), x, g.constant(scale), zeros), weights, name="real")
    stored = g.node(QuantizeLinear(), real, g.constant(np.float32(2000)), zeros)
    model, seen = g.model([product, sums, stored]), []
    with dovetail.Core(config=False).compile_model(model, "ONEDNN", {"FALLBACK": False}) as compiled:
        for rows in (3, 5):
            data = RNG.integers(0, 255, (rows, 48, 2, 48)).astype(np.uint8)
            found = compiled({"x": data})
            centred, whole = data.astype(np.int64) - 7, matrix.astype(np.int64) - int(zero)
            np.testing.assert_array_equal(found[0], centred @ whole)
            np.testing.assert_array_equal(
                found[1], np.einsum("oi,nihw->nohw", taps[:, :, 0, 0].astype(np.int64) - int(zero), centred)
            )
            (step,) = compiled.plan(((rows, 48, 2, 48),)).steps
            prepared = step.executable.prepared
            seen.append(
                {(n, a): c.array for n in ("product", "sums", "real") for p in prepared[n] for a, c in p.constants.items()}
            )
    one, other = seen
    read = {name: {arg for node, arg in one if node == name} for name in ("product", "sums", "real")}
    assert read["product"] == read["sums"] == {Arg.WEIGHTS, Arg.ZERO_POINTS | Arg.SRC}
    assert {Arg.WEIGHTS, Arg.ZERO_POINTS | Arg.SRC} < read["real"]
    assert all(one[key] is other[key] for key in one.keys() | other.keys())


@pytest.mark.parametrize(("op", "gates"), [(LSTM, 4), (GRU, 3), (RNN, 1)])
def test_shapes_share_weights_of_recurrent_layers(op, gates):
    """Those of both directions, the bias, and peepholes."""
    g, hidden = GraphBuilder(), 24
    w, r, b = some(2, gates * hidden, 16), some(2, gates * hidden, hidden), some(2, 2 * gates * hidden)
    more = ["", "", "", g.constant(some(2, 3 * hidden))] if op is LSTM else []
    layer = op(hidden_size=hidden, direction="bidirectional")
    y = g.node(layer, g.input("x", "float32", ("T", 2, 16)), *map(g.constant, (w, r, b)), *more, name="layer")
    core, model, read = dovetail.Core(config=False), g.model([y]), []
    with core.compile_model(model, "ONEDNN", {"FALLBACK": False}) as compiled:
        for time in (5, 7):
            x = some(time, 2, 16)
            (want,) = core.compile_model(model, "NUMPY")({"x": x}).values()
            np.testing.assert_allclose(compiled({"x": x})[0], want, rtol=1e-4, atol=1e-5)
            (step,) = compiled.plan(((time, 2, 16),)).steps
            read.append([{a: c.array for a, c in p.constants.items()} for p in step.executable.prepared["layer"]])
    assert len(read[0]) == 2
    for one, other in zip(*read, strict=True):
        assert len(one) == 3 + bool(more)
        assert all(one[arg] is other[arg] for arg in one)


def test_another_compilation_reads_the_weights_again(weights):
    """A caller may change the arrays of a model between two compilations."""
    core, model, x = dovetail.Core(config=False), _model(weights), some(3, 48, 2, 3)
    with core.compile_model(model, "ONEDNN") as before:
        before({"x": x})
        weights *= 2
        with core.compile_model(model, "ONEDNN") as after:
            np.testing.assert_allclose(after({"x": x})[0], _expected(x, weights), rtol=1e-4, atol=1e-3)


def test_what_nobody_uses_is_forgotten(weights):
    known, src, dst = SharedConstants(), plain((48, 48)), plain((2304,))
    constant = Constant(weights, src, dst, None, some(2304))
    known.add(constant)
    assert known.find(weights, src, dst) is constant
    assert known.find(weights, src, src) is None
    assert known.find(weights.T, src, dst) is None
    assert known.find(weights.copy(), src, dst) is None
    del constant
    gc.collect()
    assert known.find(weights, src, dst) is None
    assert len(known) == 0


def test_an_array_at_the_address_of_one_that_was_freed():
    known, memory, desc = SharedConstants(), bytearray(64), plain((16,))
    one = Constant(np.frombuffer(memory, np.float32), desc, desc, None, some(16))
    known.add(one)
    assert known.find(np.frombuffer(memory, np.float32), desc, desc) is None
    assert known.find(one.source, desc, desc) is one


def test_layers_that_share_weights_read_one_copy(monkeypatch):
    """Each layer reads the weights by an Identity of its own, as PyTorch exports a layer that is called several times."""
    moves, move = [], constants.moved
    monkeypatch.setattr(constants, "moved", lambda array, *layouts: (moves.append(array.shape), move(array, *layouts))[1])
    weights, bias, x = some(160, 160) / 12, some(160), some(3, 160)
    g = GraphBuilder()
    y, w, b = g.input("x", "float32", x.shape), g.constant(weights), g.constant(bias)
    for _ in range(3):
        y = g.node(Gemm(), y, g.node(Identity(), w), g.node(Identity(), b))
    with dovetail.Core(config=False).compile_model(g.model([y]), "ONEDNN") as compiled:
        (found,) = compiled({"x": x}).values()
    expected = x.astype(np.float64)
    for _ in range(3):
        expected = expected @ weights + bias
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert moves.count(weights.shape) <= 1
