"""A plan found for a convolution serves all equal ones, and no other."""

import gc
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

from dovetail import Core
from dovetail.device import TypedNode
from dovetail.graph import Graph, GraphBuilder
from dovetail_cpu_onednn import node_plans
from dovetail_cpu_onednn.binding import Onednn, Unimplemented
from dovetail_cpu_onednn.elementwise import ElementwiseKernel
from dovetail_cpu_onednn.library import library
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.gemm import Gemm
from dovetail_ops_onnx.gru import GRU
from dovetail_ops_onnx.leaky_relu import LeakyRelu
from dovetail_ops_onnx.lstm import LSTM
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.rnn import RNN


def _blocks(rng: np.random.Generator, count: int) -> Graph:
    g = GraphBuilder()
    y = g.input("x", "float32", (1, 16, 9, 7))
    for _ in range(count):
        start = y
        for _ in range(2):
            w = g.constant(rng.standard_normal((16, 16, 3, 3)) / 12, "float32", name="w")
            y = g.node(Relu(), g.node(Conv(pads=(1, 1, 1, 1)), y, w))
        y = g.node(Add(), y, start)
    return g.graph([y])


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch):
    monkeypatch.setattr(node_plans, "NODE_PLANS", node_plans.NodePlans())


def test_layers_that_are_alike_are_described_once(bench, monkeypatch):
    asked = []
    describe = Onednn.describe
    monkeypatch.setattr(Onednn, "describe", lambda self, name, *a, **k: (asked.append(name), describe(self, name, *a, **k))[1])

    def count(blocks):
        monkeypatch.setattr(node_plans, "NODE_PLANS", node_plans.NodePlans())
        asked.clear()
        bench.executable(_blocks(np.random.default_rng(0), blocks), fuse=True)
        return asked.count("convolution_forward")

    count(1)  # which blocks convolutions take on this CPU is asked once in a process
    assert 0 < count(2) == count(5)


@pytest.mark.parametrize(("channels", "most"), [(32, 1), (24, 2)])
def test_small_blocks_are_offered_where_large_ones_would_be_filled_up(bench, channels, most):
    w = np.zeros((channels, channels, 1, 1), np.float32)
    graph = bench.single(Conv(), [np.zeros((1, channels, 6, 5), np.float32), w], constants=[1])[0]
    configs = bench.device.configurations(TypedNode.of(graph.nodes[0], graph))
    offered = {c.outputs[0] for c in configs if c.outputs[0].block and c.inputs[0] == c.outputs[0]}
    assert 1 <= len(offered) <= most
    assert most == 1 or min(layout.block for layout in offered) == 8


@pytest.mark.parametrize("op", [GRU(linear_before_reset=True), LSTM(direction="bidirectional"), RNN(direction="reverse")])
def test_recurrent_layers_that_are_alike_are_described_once(bench, monkeypatch, op):
    """Each with weights of its own; one more, of which another state of the same type is read."""
    rng, asked = np.random.default_rng(6), []
    describe = Onednn.describe
    monkeypatch.setattr(Onednn, "describe", lambda self, name, *a, **k: (asked.append(name), describe(self, name, *a, **k))[1])
    rows, states = {"GRU": 3, "LSTM": 4, "RNN": 1}[op.op_type] * 6, ["h", "c"] if op.op_type == "LSTM" else ["h"]
    arrays = [rng.standard_normal((5, 2, 6)).astype(np.float32)]
    g = GraphBuilder()
    g.input("x", "float32", arrays[0].shape)
    want, outputs = [], []
    for count, state in [(count, state) for count in range(3) for state in states]:
        w, r = (rng.standard_normal((op.directions, rows, 6)).astype(np.float32) / 2 for _ in range(2))
        names = [f"h{count}" if state == "h" else "", f"c{count}" if state == "c" else ""][: len(states)]
        g.node(op, "x", g.constant(w), g.constant(r), outputs=["", *names])
        outputs += [name for name in names if name]
        want.append(op.reference(*(a.astype(np.float64) for a in (arrays[0], w, r)))[1 + states.index(state)])
    executable = bench.executable(g.graph(outputs))
    for found, expected in zip(bench.run_twice(executable, arrays), want, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    kind = next(name for name in asked if name.endswith("forward"))
    assert asked.count(kind) <= 2 * op.directions * len(states), "in the layouts of its choice and in plain ones"


def test_products_of_like_matrices_are_described_once(bench, monkeypatch):
    rng, asked = np.random.default_rng(4), []
    describe = Onednn.describe
    monkeypatch.setattr(Onednn, "describe", lambda self, name, *a, **k: (asked.append(name), describe(self, name, *a, **k))[1])
    g = GraphBuilder()
    x = rng.standard_normal((5, 6)).astype(np.float32)
    weights = [rng.standard_normal((6, 6)).astype(np.float32) for _ in range(3)]
    y = g.input("x", "float32", x.shape)
    for w in weights:
        y = g.node(Gemm(), g.node(MatMul(), y, g.constant(w, name="w")), g.constant(w.T, name="t"))
    (found,) = bench.executable(g.graph([y])).create_request().run([x])
    expected = x.astype(np.float64)
    for w in weights:
        expected = expected @ w @ w.T
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    # The plan by which the device accepted them runs them: one for MatMul, one for Gemm.
    assert asked.count("matmul") == 2


@pytest.mark.parametrize("change", [{"strides": (2, 2)}, {"group": 4}, {"dilations": (2, 2)}, {"auto_pad": "SAME_UPPER"}])
def test_other_attributes_are_other_plans(bench, change):
    rng = np.random.default_rng(1)
    x, w = (rng.standard_normal(dims).astype(np.float32) for dims in ((2, 16, 9, 7), (16, 16, 3, 3)))
    for op in (Conv(), Conv(**change), Conv()):
        g = GraphBuilder()
        weights = np.ascontiguousarray(w[:, : 16 // op.group])
        y = g.node(op, g.input("x", "float32", x.shape), g.constant(weights, name="w"))
        (found,) = bench.executable(g.graph([y])).create_request().run([x])
        np.testing.assert_allclose(found, op.reference(x, weights), rtol=1e-4, atol=1e-4)


def test_plans_are_for_a_number_of_threads(monkeypatch):
    kept = node_plans.NodePlans()
    found = []
    for threads in (1, 2, 1, 2):
        library().plan_threads(threads)
        kept.get("question", lambda: found.append(threads) or node_plans.NodePlan(()))  # noqa: B023  # called at once
    assert found == [1, 2]


def test_refusals_are_kept_without_what_they_came_through():
    kept, calls = node_plans.NodePlans(), []

    class Weights:
        pass

    def refuse():
        weights = Weights()
        calls.append(weakref.ref(weights))
        raise Unimplemented("not here")

    for _ in range(3):
        with pytest.raises(Unimplemented, match="not here"):
            kept.get("question", refuse)
    gc.collect()
    assert [one() for one in calls] == [None]


def test_room_is_bounded(monkeypatch):
    monkeypatch.setattr(node_plans, "ROOM", 3)
    kept, found = node_plans.NodePlans(), []
    for question in (1, 2, 3, 1, 4, 1, 2):
        kept.get(question, lambda: found.append(question) or node_plans.NodePlan(()))  # noqa: B023  # called at once
    assert found == [1, 2, 3, 4, 2]


@pytest.mark.parametrize(
    ("implementation", "version", "kept"),
    [
        ("brgconv_1x1:avx512_core", (3, 2, 0), True),
        ("brgconv_strided:avx512_core", (3, 4, 2), True),
        ("brgconv_1x1:avx512_core", (3, 5, 0), False),
        ("brg:avx512_core", (3, 2, 0), False),
    ],
)
def test_plans_whose_kernels_onednn_never_frees_are_kept(implementation, version, kept, monkeypatch):
    """Made again for shapes that return, their primitives would take memory with each run."""
    monkeypatch.setattr(library(), "version", version)
    plans, made = node_plans.NodePlans(), []

    def find():
        made.append(node_plans.NodePlan((SimpleNamespace(desc=SimpleNamespace(implementation=implementation)),)))
        return made[-1]

    first = plans.get("first", find)
    for question in range(node_plans.ROOM):
        plans.get(question, lambda: node_plans.NodePlan(()))
    assert (plans.get("first", find) is first) is kept
    assert len(made) == (1 if kept else 2)


def test_kernels_that_onednn_never_frees_are_bounded(monkeypatch):
    """Shapes behind the bound run by other implementations, and give what the others do."""
    monkeypatch.setattr(node_plans, "LASTING", 2)
    monkeypatch.setattr(library(), "version", (3, 2, 0))
    monkeypatch.setattr(library(), "avoided", "")
    rng = np.random.default_rng(6)
    w, g = rng.standard_normal((32, 32, 1, 1)).astype(np.float32), GraphBuilder()
    model = g.model([g.node(Conv(), g.input("x", "float32", (1, 32, "H", 7)), g.constant(w))])
    compiled = Core().compile_model(model, "ONEDNN")
    names = []
    for rows in range(3, 12):
        x = rng.standard_normal((1, 32, rows, 7)).astype(np.float32)
        (found,) = compiled({"x": x}).values()
        want = np.einsum("oc,nchw->nohw", w[:, :, 0, 0].astype(np.float64), x)
        np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)
        names += [node.kernel for node in compiled.report().nodes]
    assert sum("brgconv" in name for name in names) <= 2
    assert all("ref" not in name for name in names)


def test_the_plan_by_which_a_node_was_accepted_runs_it(bench, monkeypatch):
    asked, plan = [], ElementwiseKernel.plan
    monkeypatch.setattr(ElementwiseKernel, "plan", lambda self, node, *how: (asked.append(node.name), plan(self, node, *how))[1])
    x = np.random.default_rng(5).standard_normal((3, 7)).astype(np.float32)
    g, slopes = GraphBuilder(), (0.25, 0.5)
    source = g.input("x", "float32", x.shape)
    graph = bench.typed(g.graph([g.node(LeakyRelu(alpha=slope), source) for slope in slopes]))
    for node in graph.nodes:
        bench.device.supports(TypedNode.of(node, graph))
    for slope, found in zip(slopes, bench.executable(graph).create_request().run([x]), strict=True):
        np.testing.assert_array_equal(found, np.where(x < 0, x * np.float32(slope), x))
    assert sorted(asked) == sorted(node.name for node in graph.nodes)
