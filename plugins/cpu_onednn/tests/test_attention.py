"""Attention by primitives, at rows that need care, and related things: large softmaxes, reversed differences, indices."""

import numpy as np
import pytest

import dovetail
from dovetail.device import TypedNode
from dovetail.errors import InferError
from dovetail.graph import GraphBuilder
from dovetail.lru import LruCache
from dovetail_cpu_onednn import request
from dovetail_cpu_onednn.kernels import attention as kernels
from dovetail_cpu_onednn.node_plans import NODE_PLANS
from dovetail_ops_onnx.attention import Attention
from dovetail_ops_onnx.gather import Gather
from dovetail_ops_onnx.softmax import Softmax
from dovetail_ops_onnx.sub import Sub


def by_hand(q, k, v, mask=0.0):
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]) + np.asarray(mask, np.float64)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def attention(bench, inputs, op=None):
    graph = bench.single(op or Attention(), inputs)[0]
    answer = bench.device.supports(TypedNode.of(graph.nodes[0], graph))
    assert answer
    return bench.run_twice(bench.executable(graph), inputs)[0], answer.kernel


def some(rng, *dims):
    return rng.standard_normal(dims).astype(np.float32)


@pytest.mark.parametrize(("length", "size"), [(3, 2), (5, 7), (17, 16), (40, 33)])
def test_odd_sizes(bench, length, size):
    rng = np.random.default_rng(length)
    q, k, v = some(rng, 2, 3, length + 2, size), some(rng, 2, 3, length, size), some(rng, 2, 3, length, size + 1)
    got, kernel = attention(bench, (q, k, v))
    assert "ref" not in kernel
    np.testing.assert_allclose(got, by_hand(q, k, v), rtol=1e-4, atol=1e-5)
    packed = [x.transpose(0, 2, 1, 3).reshape(2, x.shape[2], -1) for x in (q, k, v)]
    mask = some(rng, 2, 1, 1, length)
    got, kernel = attention(bench, (*packed, mask), Attention(q_num_heads=3, kv_num_heads=3))
    assert "ref" not in kernel
    want = by_hand(q, k, v, mask).transpose(0, 2, 1, 3).reshape(2, length + 2, -1)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_query_that_is_no_number_spoils_its_row_only(bench, value):
    rng = np.random.default_rng(1)
    q, k, v = some(rng, 1, 2, 5, 8), some(rng, 1, 2, 20, 8), some(rng, 1, 2, 20, 4)
    want = by_hand(q, k, v)
    q[0, 1, 3, 2] = value
    got, _ = attention(bench, (q, k, v))
    assert np.isnan(got[0, 1, 3]).all()
    want[0, 1, 3] = np.nan
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_a_row_whose_keys_are_all_masked_is_zeros(bench):
    rng = np.random.default_rng(2)
    q, k, v, mask = some(rng, 2, 2, 5, 8), some(rng, 2, 2, 6, 8), some(rng, 2, 2, 6, 4), some(rng, 5, 6)
    mask[3] = -np.inf
    mask[1, 2:] = -np.inf
    got, _ = attention(bench, (q, k, v, mask))
    assert not got[:, :, 3].any()
    rows = [0, 1, 2, 4]
    np.testing.assert_allclose(got[:, :, rows], by_hand(q[:, :, rows], k, v, mask[rows]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("hidden", [False, True])
def test_the_content_of_a_constant_mask_decides_for_its_node_only(bench, hidden):
    rng = np.random.default_rng(5)
    given = (some(rng, 1, 2, 5, 8), some(rng, 1, 2, 6, 8), some(rng, 1, 2, 6, 4))
    kept, other = some(rng, 5, 6), some(rng, 5, 6)
    other[3] = -np.inf
    answers = []
    for mask in (other, kept) if hidden else (kept, other):  # nodes that are alike, whose plans are kept
        graph = bench.single(Attention(), (*given, mask), constants=[3])[0]
        answer = bench.device.supports(TypedNode.of(graph.nodes[0], graph))
        answers.append(bool(answer) and answer.kernel != "ref")
    assert answers == ([False, True] if hidden else [True, False])


@pytest.mark.parametrize("length", [3, 17])
def test_hidden_positions_of_layers_that_are_alike(bench, length):
    """Both layers run by one plan, whose constant is made for each."""
    rng = np.random.default_rng(length)
    g = GraphBuilder()
    x = g.input("x", "float32", (1, 2, length, 8))
    y = g.node(Attention(is_causal=True), x, x, x)
    graph = g.graph([g.node(Attention(is_causal=True), y, x, x)])
    data = some(rng, 1, 2, length, 8)
    mask = np.where(np.tri(length, dtype=bool), 0, -np.inf)
    (got,) = bench.run_twice(bench.executable(graph), (data,))
    want = by_hand(by_hand(data, data, data, mask), data, data, mask)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("masked", [False, True])
def test_a_plan_makes_no_numbers_for_pairs_where_none_is_hidden(bench, monkeypatch, masked):
    rng = np.random.default_rng(3)
    inputs = [some(rng, 1, 2, 9, 4), some(rng, 1, 2, 11, 4), some(rng, 1, 2, 11, 4), *([some(rng, 9, 11)] if masked else [])]
    monkeypatch.setattr(Attention, "visible", None)
    got, kernel = attention(bench, inputs)
    assert "ref" not in kernel
    np.testing.assert_allclose(got, by_hand(*inputs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("op", "inputs"),
    [
        (Attention(softcap=1.0), 3),
        (Attention(is_causal=True), 4),
        (Attention(left_window_size=0, right_window_size=0, is_causal=True), 4),
    ],
)
def test_what_the_primitives_do_not_do_is_refused(bench, op, inputs):
    rng = np.random.default_rng(3)
    given = (some(rng, 1, 2, 5, 8), some(rng, 1, 2, 6, 8), some(rng, 1, 2, 6, 4), some(rng, 5, 6))[:inputs]
    graph = bench.single(op, given)[0]
    answer = bench.device.supports(TypedNode.of(graph.nodes[0], graph))
    assert not answer or answer.kernel == "ref"


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_large_softmax_keeps_what_is_no_number(bench, value):
    rng = np.random.default_rng(4)
    x = some(rng, 3, 200, 64)
    x[1, 7, 5] = value
    (got,) = bench.run_twice(bench.executable(bench.single(Softmax(), (x,))[0]), (x,))
    wide = x.astype(np.float64)
    with np.errstate(invalid="ignore"):
        weights = np.exp(wide - wide.max(-1, keepdims=True))
    np.testing.assert_allclose(got, weights / weights.sum(-1, keepdims=True), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dims", [(), (4,), (2, 1, 4), (2, 3, 4)])
def test_a_number_less_a_value_runs_by_a_primitive(bench, dims):
    rng = np.random.default_rng(5)
    x, c = some(rng, 2, 3, 4), some(rng, *dims)
    x[0, 0, :2] = np.nan, np.inf
    graph = bench.single(Sub(), (c, x), constants=(0,))[0]
    assert bench.device.supports(TypedNode.of(graph.nodes[0], graph)).kernel.startswith("jit")
    (got,) = bench.run_twice(bench.executable(graph), (x,))
    np.testing.assert_array_equal(got, c - x)


def test_indices_that_are_out_of_range_are_an_error():
    g = GraphBuilder()
    data, at = g.input("data", "float32", (5, 3)), g.input("at", "int64", (2,))
    with dovetail.Core() as core, core.compile_model(g.model([g.node(Gather(), data, at)]), "ONEDNN") as compiled:
        x = np.arange(15, dtype=np.float32).reshape(5, 3)
        np.testing.assert_array_equal(compiled({"data": x, "at": np.array([-5, 4])})[0], x[[0, 4]])
        assert compiled.report().nodes[0].kernel == "take"
        for wrong in (5, -6):
            with pytest.raises(InferError, match=f"index {wrong} is outside axis 0 of size 5"):
                compiled({"data": x, "at": np.array([0, wrong])})


@pytest.mark.parametrize("part", [1, 4 * 7 * 5, 4 * 7 * 9 * 2, 4 * 7 * 9 * 3 * 2])
@pytest.mark.parametrize("mask", [None, (7,), (9, 7), (4, 1, 1, 7), (1, 3, 9, 7), (4, 3, 9, 7), (4, 1, 9, 1)])
@pytest.mark.parametrize("is_packed", [False, True])
def test_scores_in_parts(monkeypatch, is_packed, mask, part):
    """Of queries, heads or samples, as many as fit into `part` bytes; with inputs that the caller moves from run to run."""
    monkeypatch.setattr(kernels, "WHOLE", 0)
    monkeypatch.setattr(kernels, "PART", part)
    monkeypatch.setattr(NODE_PLANS, "_answers", LruCache(8))
    monkeypatch.setattr(request, "COPIED", 0)
    rng = np.random.default_rng(part)
    arrays = {"q": some(rng, 4, 3, 9, 5), "k": some(rng, 4, 3, 7, 5), "v": some(rng, 4, 3, 7, 6)}
    bias = 0.0 if mask is None else np.broadcast_to(some(rng, *mask), (*mask[:-1], 7)).copy()
    want = by_hand(*arrays.values(), bias)
    op = Attention()
    if is_packed:
        arrays = {name: x.transpose(0, 2, 1, 3).reshape(4, x.shape[2], -1) for name, x in arrays.items()}
        want, op = want.transpose(0, 2, 1, 3).reshape(4, 9, -1), Attention(q_num_heads=3, kv_num_heads=3)
    arrays |= {} if mask is None else {"mask": np.asarray(bias)}
    g = GraphBuilder()
    y = g.node(op, *(g.input(name, "float32", x.shape) for name, x in arrays.items()))
    compiled = dovetail.Core(config=False).compile_model(g.model([y]), "ONEDNN", {"INFERENCE_NUM_THREADS": 1})
    for _ in range(3):
        copies = {name: x.copy() for name, x in arrays.items()}
        np.testing.assert_allclose(compiled(copies)[y], want, rtol=1e-4, atol=1e-5)
    (step,) = compiled.plan(tuple(x.shape for x in arrays.values())).steps
    (prepared,) = step.executable.prepared.values()
    assert len(prepared) >= 3 * 2


@pytest.mark.parametrize("is_packed", [False, True])
def test_scores_in_parts_by_the_product_of_the_whole(monkeypatch, is_packed):
    """oneDNN has a slow product for heads with gaps between them."""

    def kernel():
        monkeypatch.setattr(NODE_PLANS, "_answers", LruCache(8))
        g = GraphBuilder()
        dims = (1, 96, 3 * 16) if is_packed else (1, 3, 96, 16)
        op = Attention(q_num_heads=3, kv_num_heads=3) if is_packed else Attention()
        y = g.node(op, *(g.input(name, "float32", dims) for name in "qkv"))
        compiled = dovetail.Core(config=False).compile_model(g.model([y]), "ONEDNN", {"INFERENCE_NUM_THREADS": 1})
        compiled({name: some(np.random.default_rng(0), *dims) for name in "qkv"})
        return compiled.report().nodes[0].kernel.split(" + ")

    whole = kernel()
    monkeypatch.setattr(kernels, "WHOLE", 0)
    monkeypatch.setattr(kernels, "PART", 4 * 40 * 96)
    assert kernel()[-len(whole) :] == whole


@pytest.mark.parametrize(
    ("constant", "causal"), [("q", False), ("q", True), ("k", False), ("k", True), ("v", False), ("v", True), ("mask", False)]
)
def test_parts_of_constants(monkeypatch, constant, causal):
    """Each part of the scores reads its own part of a constant mask or factor."""
    monkeypatch.setattr(kernels, "WHOLE", 0)
    monkeypatch.setattr(kernels, "PART", 4 * 16 * 96)
    monkeypatch.setattr(NODE_PLANS, "_answers", LruCache(8))
    rng = np.random.default_rng(12)
    given = {name: some(rng, 2, 3, 96, 8) for name in "qkv"}
    hidden = np.triu(np.full((96, 96), -np.inf), 1) if causal else 0
    if not causal:
        given["mask"] = some(rng, 2, 3, 96, 96)
    g = GraphBuilder()
    names = [g.constant(x) if name == constant else g.input(name, "float32", x.shape) for name, x in given.items()]
    compiled = dovetail.Core().compile_model(g.model([g.node(Attention(is_causal=causal), *names)]), "ONEDNN")
    (found,) = compiled({name: x for name, x in given.items() if name != constant}).values()
    assert "ref" not in compiled.report().nodes[0].kernel
    q, k, v, mask = (*given.values(), hidden)[:4]
    np.testing.assert_allclose(found, by_hand(q, k, v, mask), rtol=1e-4, atol=1e-5)


def test_threads_share_larger_parts(monkeypatch):
    monkeypatch.setattr(kernels, "WHOLE", 0)
    monkeypatch.setattr(kernels, "PART", 4 * 64 * 512)
    monkeypatch.setattr(NODE_PLANS, "_answers", LruCache(8))
    g, dims = GraphBuilder(), (1, 2, 512, 32)
    y = g.node(Attention(), *(g.input(name, "float32", dims) for name in "qkv"))
    stages = []
    for threads in (1, 3, 8):
        compiled = dovetail.Core(config=False).compile_model(g.model([y]), "ONEDNN", {"INFERENCE_NUM_THREADS": threads})
        compiled({name: some(np.random.default_rng(0), *dims) for name in "qkv"})
        (step,) = compiled.plan((dims,) * 3).steps
        (prepared,) = step.executable.prepared.values()
        stages.append(len(prepared))
    assert stages == [3 * 16, 3 * 16, 3 * 4]
