"""Post-ops on every device, fused and as nodes, against the same chain in float64."""

import runpy
from pathlib import Path

import numpy as np
import pytest

import dovetail
from dovetail import GraphBuilder, PostOps
from dovetail.graph import Sum
from dovetail.graph.post_ops import BINARY_ALGORITHMS, ELTWISE_ALGORITHMS
from dovetail.testing.post_ops import FORMULAS
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.relu import Relu

shared = runpy.run_path(str(Path(__file__).with_name("_post_ops.py")))
Bench, conv, fused_or_told, hidden, plain = (shared[n] for n in ("Bench", "conv", "fused_or_told", "hidden", "plain"))
CHAINS, COMBINED, ELTWISE, HEADS, OTHERS = (shared[n] for n in ("CHAINS", "COMBINED", "ELTWISE", "HEADS", "OTHERS"))


def test_every_algorithm_has_a_chain_and_a_formula() -> None:
    steps = {step.partition(":")[0] for chain in CHAINS for step in chain.split("+")}
    assert steps == {*ELTWISE_ALGORITHMS, *BINARY_ALGORITHMS, "sum", "prelu"}
    assert FORMULAS.keys() == ELTWISE_ALGORITHMS.keys()


@pytest.mark.exhaustive(0.33, device="OPENCL")  # compiles programs; one of the three
def test_chains_on_a_convolution(core: dovetail.Core, device: str) -> None:
    b = Bench(np.random.default_rng(1))
    for text in COMBINED:
        conv(b, text)
    fused_or_told(b, b.check(core, device, fusion=True))


@pytest.mark.exhaustive(0.33, device="OPENCL")  # compiles programs; one of the three
def test_eltwise_chains(core: dovetail.Core, device: str) -> None:
    """Behind an addition, whose programs are small; those with NaN and infinity are behind convolutions."""
    b = Bench(np.random.default_rng(12))
    for text in ELTWISE:
        HEADS["binary"](b, text)
    fused_or_told(b, b.check(core, device, fusion=True))


@pytest.mark.exhaustive(0.33, device="OPENCL")  # compiles programs; one of the three
def test_chains_as_nodes(core: dovetail.Core, device: str) -> None:
    b = Bench(np.random.default_rng(2))
    for text in COMBINED:
        conv(b, text, 3, (2, 3))
    placed = b.check(core, device, fusion=False)
    assert not any(node.post_ops for node in placed.values())


@pytest.mark.exhaustive(0.2, device="OPENCL")
@pytest.mark.parametrize("head", HEADS)
def test_heads(core: dovetail.Core, device: str, head: str) -> None:
    """Each with chains of its own, because every program costs an OpenCL device a compilation."""
    index = list(HEADS).index(head)
    b = Bench(np.random.default_rng(index))
    for text in (*OTHERS, *COMBINED)[index :: len(HEADS)]:
        HEADS[head](b, text)
    fused_or_told(b, b.check(core, device, fusion=True))


# --- chains that the fusion pass finds in any graph ---------------------------------------------------------------------------

FOUND = ("conv blocked", "conv_transpose", "mat_mul", "gemm", "max_pool", "binary", "softmax", "layer_normalization")


@pytest.mark.exhaustive(0.2, device="OPENCL")
@pytest.mark.parametrize("head", FOUND)
def test_followers_are_merged(core: dovetail.Core, device: str, head: str) -> None:
    """Bias, activation, residual addition and scale as nodes of a model: part of the head, or the report says why not."""
    b = Bench(np.random.default_rng(13))
    s = HEADS[head](b, "linear:1:0")
    dims = b.values[s].shape
    bias, scale, residual = b.operand("per_oc", dims), b.constant(), b.input(*dims)
    y = s
    for op, *others in ((Add(), bias), (Relu(),), (Add(), residual), (Mul(), scale)):
        y = plain(b, op, y, *others)
    hidden(b, y)
    with core.compile_model(b.model(), device) as compiled:
        nodes = [n for n in compiled.report().nodes if n.op != "dovetail::Reorder"]
        got = compiled(b.feeds)[0]
        np.testing.assert_allclose(got, b.values[y], rtol=1e-4, atol=1e-5)
    merged = sum(len(n.post_ops) for n in nodes)
    assert len(nodes) + merged == 6, "every node of the model is one of the plan, or in a chain"
    assert len(nodes) == 1 or any(n.post_op_stop for n in nodes)


@pytest.mark.parametrize(("dtype", "rtol"), [("float16", 5e-3), ("float64", 1e-9)])
def test_other_data_types(core: dovetail.Core, device: str, dtype: str, rtol: float) -> None:
    """float16 is rounded once where the chain is fused, and after each node where it is not."""
    rng = np.random.default_rng(14)
    x, r, w, bias = (rng.uniform(0.5, 1, dims).astype(dtype) for dims in ((2, 3, 5, 7), (2, 4, 5, 7), (4, 3, 1, 1), (4, 1, 1)))
    g = GraphBuilder()
    src, prev = g.input("x", dtype, x.shape), g.input("r", dtype, r.shape)
    chain = PostOps().append_binary("sub", g.constant(bias)).append_sum(prev, 0.5, 1).append_eltwise("relu", 0.25, scale=2.0)
    y = g.node(Conv(), src, g.constant(w), post_ops=chain)
    conv64 = np.einsum("nchw,kc->nkhw", x.astype(np.float64), w.astype(np.float64)[:, :, 0, 0])
    s = conv64 - bias.astype(np.float64) + 0.5 * (r.astype(np.float64) - 1)
    for fusion in (True, False):
        with core.compile_model(g.model([y]), device, {"FUSION": fusion}) as compiled:
            got = compiled({"x": x, "r": r})[0]
        assert got.dtype == dtype
        np.testing.assert_allclose(got.astype(np.float64), 2 * np.where(s > 0, s, 0.25 * s), rtol=rtol, atol=rtol)


def test_batch_zero(core: dovetail.Core, device: str) -> None:
    g = GraphBuilder()
    x, r = g.input("x", "float32", ["N", 3, 5, 7]), g.input("r", "float32", ["N", 4, 5, 7])
    chain = PostOps().append_sum(r).append_eltwise("relu")
    y = g.node(Conv(), x, g.constant(np.ones((4, 3, 1, 1), np.float32)), post_ops=chain)
    with core.compile_model(g.model([y]), device) as compiled:
        for n in (0, 2):
            got = compiled({"x": np.ones((n, 3, 5, 7), np.float32), "r": np.full((n, 4, 5, 7), -1, np.float32)})[0]
            np.testing.assert_array_equal(got, np.full((n, 4, 5, 7), 2, np.float32))


# --- the examples of MKL-DNN's page on post-ops -----------------------------------------------------------------------------


@pytest.mark.parametrize("fusion", [True, False])
def test_the_examples_of_mkl_dnn(core: dovetail.Core, device: str, fusion: bool) -> None:
    """dst = relu(dst + conv), and dst = s_lin * (alpha * (s_sum * dst + s_tanh * tanh(s_conv * conv)) + beta)."""
    b = Bench(np.random.default_rng(3))
    residual = conv(b, "sum+relu")
    s_conv, s_tanh, s_sum, s_lin, alpha, beta = 0.75, 1.5, 0.25, 2.0, -0.5, 0.125
    illustrated = conv(b, f"linear:{s_conv}:0+tanh:0:0:{s_tanh}+sum:{s_sum}+linear:{alpha}:{beta}:{s_lin}")
    for y, formula in (
        (residual, lambda s, dst: np.maximum(dst + s, 0)),
        (illustrated, lambda s, dst: s_lin * (alpha * (s_sum * dst + s_tanh * np.tanh(s_conv * s)) + beta)),
    ):
        _, chain, s = b.want[y]
        (dst,) = (b.feeds[p.operand].astype(np.float64) for p in chain if isinstance(p, Sum))
        np.testing.assert_allclose(b.values[y], formula(s, dst), rtol=1e-12)
    placed = b.check(core, device, fusion)
    if fusion:
        assert [len(node.post_ops) for node in placed.values()] == [2, 4]


def test_depthwise_convolutions_in_a_row(core: dovetail.Core, device: str) -> None:
    """oneDNN's chains with a depthwise convolution: a node with a chain of its own, behind a 1x1 convolution with one."""
    b = Bench(np.random.default_rng(4))
    for first, stride, second in (
        ("relu", 2, "tanh"),
        ("relu", 1, "relu:0.5+add:per_oc"),
        ("linear:0.5:1.5", 1, "relu"),
    ):
        narrow = b.add(first, Conv(), b.input(1, 5, 9, 7), b.constant(8, 5, 1, 1), b.constant(8))
        depthwise = Conv(group=8, strides=(stride, stride), pads=(1, 1, 1, 1))
        b.add(second, depthwise, narrow, b.constant(8, 1, 3, 3), b.constant(8))
    b.check(core, device, fusion=True)
