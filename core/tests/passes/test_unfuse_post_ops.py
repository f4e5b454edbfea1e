"""Attached chains: what attaching copies and checks, the nodes that they become, and what those compute."""

import dataclasses

import numpy as np
import pytest

import dovetail
from dovetail import DType, GraphBuilder, Model, PostOps, TensorType
from dovetail.device import Accepted, Reason, Refusal, TypedNode
from dovetail.errors import DovetailError, GraphError, ShapeError, UsageError
from dovetail.graph import Binary, Eltwise, Prelu, Sum
from dovetail.graph.post_ops import BINARY_ALGORITHMS, ELTWISE_ALGORITHMS
from dovetail.graph.schedule import schedule
from dovetail.passes.constant_folding import fold_constants
from dovetail.passes.fuse_post_ops import fuse_post_ops
from dovetail.passes.unfuse_post_ops import unfuse_post_ops
from dovetail.runtime import REFERENCE_DEVICE
from dovetail_ops_onnx.if_ import If
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.tanh import Tanh


def tanh_model(post_ops: PostOps | None = None, dtype: str = "float32") -> Model:
    g = GraphBuilder()
    x, r = g.input("x", dtype, [2, 3]), g.input("r", dtype, [2, 3])
    y = g.node(Tanh(), x, name="head", outputs=["y"], post_ops=post_ops or ())
    g.node(Relu(), r, name="other", outputs=["q"])
    return g.model([y, "q"])


def test_a_container_as_in_mkl_dnn() -> None:
    chain = PostOps()
    assert len(chain) == 0
    chain.append_sum("r", 1.1, 1).append_eltwise("clip", 3.3, 4.4, 0.5).append_binary("add", "b").append_prelu("slopes")
    assert [chain.kind(i) for i in range(len(chain))] == ["sum", "eltwise", "binary", "prelu"]
    assert chain.params(0) == {"operand": "r", "scale": 1.1, "zero_point": 1}
    assert chain.params(1) == {"algorithm": "clip", "alpha": 3.3, "beta": 4.4, "scale": 0.5}
    assert chain.params(2) == {"algorithm": "add", "operand": "b"}
    assert chain.params(3) == {"operand": "slopes"}
    with pytest.raises(IndexError):
        chain.kind(4)
    with pytest.raises(UsageError, match=r"(?s)unknown eltwise algorithm 'rleu'.*Did you mean 'relu'"):
        chain.append_eltwise("rleu")


def test_at_most_32() -> None:
    chain = PostOps()
    for _ in range(32):
        chain.append_eltwise("abs")
    with pytest.raises(UsageError, match="at most 32"):
        chain.append_eltwise("abs")
    model = tanh_model(chain)
    with pytest.raises(UsageError, match="at most 32"):
        model.with_post_ops("head", PostOps().append_eltwise("relu"))


@pytest.mark.parametrize("loaded", [True, False])
def test_attaching_copies(loaded: bool) -> None:
    chain = PostOps().append_eltwise("relu")
    model = tanh_model().with_post_ops("head", chain) if loaded else tanh_model(chain)
    chain.append_eltwise("abs")
    assert model.graph.nodes[0].post_ops == (Eltwise("relu"),)


def test_attaching_to_a_node_of_a_model() -> None:
    bare = tanh_model()
    model = bare.with_post_ops("head", PostOps().append_sum("r"), {"b": [1, 2, 3]})
    model = model.with_post_ops("head", PostOps().append_binary("mul", "b"))
    assert bare.graph.nodes[0].post_ops == ()
    assert model.graph.nodes[0].post_ops == (Sum("r"), Binary("mul", "b"))
    assert model.graph.nodes[0].reads == ("x", "r", "b")
    assert model.graph.constants["b"].tolist() == [1, 2, 3]
    with pytest.raises(UsageError, match=r"(?s)no node 'haed'.*Did you mean 'head'"):
        bare.with_post_ops("haed", PostOps())
    with pytest.raises(UsageError, match="reads 's', which"):
        bare.with_post_ops("head", PostOps().append_sum("s"))
    with pytest.raises(UsageError, match="a value 'r' already"):
        bare.with_post_ops("head", PostOps(), {"r": 1.0})
    with pytest.raises(UsageError, match="not a post-op"):
        bare.with_post_ops("head", ["relu"])  # what a beginner writes


def test_a_chain_becomes_nodes() -> None:
    chain = PostOps().append_sum("r", 0.5, 2).append_eltwise("relu", 0.1).append_prelu("r").append_binary("rsub", "r")
    graph = unfuse_post_ops(tanh_model(chain).graph)
    assert [n.name for n in graph.nodes] == ["head", "head/0_sum", "head/1_relu", "head/2_prelu", "head/3_rsub", "other"]
    assert all(n.post_ops == () for n in graph.nodes)
    assert [n.origins for n in graph.nodes[:5]] == [("head",)] * 5
    assert graph.nodes[4].outputs == ("y",)
    assert [n.op.key for n in graph.nodes[1:5]] == [f"dovetail::{kind}" for kind in ("Sum", "Eltwise", "Prelu", "Binary")]
    fused = fuse_post_ops(fold_constants(graph), lambda node: Accepted("any"))
    assert fused.graph.nodes[0].post_ops == tuple(chain)
    assert fused.graph.nodes[0].origins == ("head",)


def test_a_graph_without_chains_stays_the_same() -> None:
    graph = tanh_model().graph
    assert unfuse_post_ops(graph) is graph


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("condition", [True, False])
def test_chains_in_a_sub_graph(condition: bool, known: bool) -> None:
    """A branch, chosen while planning or at run time, is not read as if its nodes had no chains."""
    branches = []
    for factor in (2.0, 3.0):
        inner = GraphBuilder(outer={"x": TensorType(DType.FLOAT32, (3,))})
        chain = PostOps().append_eltwise("linear", factor, 1.0)
        branches.append(inner.graph([inner.node(Relu(), "x", name="inside", post_ops=chain)], f"times {factor}"))
    g = GraphBuilder()
    x = g.input("x", "float32", [3])
    which = g.constant(np.array(condition)) if known else g.input("which", "bool", [])
    y = g.node(If(then_branch=branches[0], else_branch=branches[1]), which, outputs=["y"])
    (node,) = unfuse_post_ops(g.graph([y])).nodes
    assert [[n.op.op_type for n in inner.nodes] for inner in node.op.subgraphs] == [["Relu", "Eltwise"]] * 2
    data = np.array([-1, 1, 2], np.float32)
    with dovetail.Core() as core, core.compile_model(g.model([y]), REFERENCE_DEVICE) as compiled:
        got = compiled({x: data} if known else {x: data, which: np.array(condition)})[0]
    np.testing.assert_allclose(got, (2 if condition else 3) * np.maximum(data, 0) + 1)


def test_names_that_are_taken() -> None:
    g = GraphBuilder()
    x = g.input("y/0_abs", "float32", [3])
    y = g.node(Relu(), x, name="y", outputs=["z"], post_ops=PostOps().append_eltwise("abs").append_eltwise("abs"))
    graph = unfuse_post_ops(g.graph([y]))
    assert [n.name for n in graph.nodes] == ["y", "y/0_abs_1", "y/1_abs"]
    assert len({value for n in graph.nodes for value in n.writes} | set(graph.inputs)) == 4


def test_the_accepted_prefix_stays_and_the_rest_says_why() -> None:
    graph = unfuse_post_ops(tanh_model(PostOps().append_eltwise("relu").append_eltwise("mish").append_eltwise("abs")).graph)

    def supports(node: TypedNode) -> Accepted | Refusal:
        mish = any(p == Eltwise("mish") for p in node.post_ops)
        return Refusal(Reason.POST_OP, "no mish") if mish else Accepted("toy")

    found = fuse_post_ops(fold_constants(graph), supports)
    assert [(n.name, n.post_ops) for n in found.graph.nodes][:2] == [
        ("head", (Eltwise("relu"),)),
        ("head/1_mish", (Eltwise("abs"),)),
    ]
    assert found.stops["head"] == ("head/1_mish", Refusal(Reason.POST_OP, "no mish"))


def test_a_cycle_through_an_operand_names_its_nodes() -> None:
    g = GraphBuilder()
    a = g.node(Tanh(), g.input("x", "float32", [2]), name="a", outputs=["u"], post_ops=PostOps().append_sum("v"))
    b = g.node(Relu(), a, name="b", outputs=["v"])
    with pytest.raises(GraphError, match=r"cycle: .*'a/0_sum'.*'b'"):
        schedule(unfuse_post_ops(g.graph([b])))


def test_a_chain_without_a_result() -> None:
    model = tanh_model(PostOps().append_eltwise("relu"))
    nodes = (dataclasses.replace(model.graph.nodes[0], outputs=("",)),)
    with pytest.raises(GraphError, match="has post-ops and no output 0"):
        unfuse_post_ops(model.graph.replace(nodes=nodes))


def test_an_operand_must_broadcast_to_the_result() -> None:
    model = tanh_model().with_post_ops("head", PostOps().append_binary("add", "b"), {"b": np.ones((4, 2, 3), np.float32)})
    with pytest.raises(ShapeError, match=r"head/0_add.*operand of the post-op is float32\[4, 2, 3\]"):
        fold_constants(unfuse_post_ops(model.graph))
    other = tanh_model().with_post_ops("head", PostOps().append_binary("add", "b"), {"b": np.ones(3, np.int64)})
    with pytest.raises(DovetailError, match="int64"):
        fold_constants(unfuse_post_ops(other.graph))


# The formulas of the tables in dovetail.graph.post_ops, in Python's own arithmetic over float64.
ALPHA, BETA = 0.75, 1.25
SCALAR = {
    "clip": lambda s: min(BETA, max(ALPHA, s)),
    "elu": lambda s: s if s > 0 else ALPHA * (np.exp(s) - 1),
    "gelu_tanh": lambda s: 0.5 * s * (1 + np.tanh(np.sqrt(2 / np.pi) * (s + 0.044715 * s**3))),
    "hardsigmoid": lambda s: max(0, min(1, ALPHA * s + BETA)),
    "hardswish": lambda s: s * max(0, min(1, ALPHA * s + BETA)),
    "linear": lambda s: ALPHA * s + BETA,
    "logistic": lambda s: 1 / (1 + np.exp(-s)),
    "mish": lambda s: s * np.tanh(np.log(1 + np.exp(s))),
    "pow": lambda s: ALPHA * s**BETA,
    "relu": lambda s: s if s > 0 else ALPHA * s,
    "round": lambda s: round(s),
    "soft_relu": lambda s: np.log(1 + np.exp(ALPHA * s)) / ALPHA,
    "square": lambda s: s**2,
    "swish": lambda s: s / (1 + np.exp(-ALPHA * s)),
}


def scalar(algorithm: str, s: float) -> float:
    import math

    if algorithm in ("erf", "gelu_erf"):
        return math.erf(s) if algorithm == "erf" else 0.5 * s * (1 + math.erf(s / math.sqrt(2)))
    if algorithm in SCALAR:
        return float(SCALAR[algorithm](s))
    return float(getattr(np, {"abs": "fabs"}.get(algorithm, algorithm))(s))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("algorithm", ELTWISE_ALGORITHMS)
def test_eltwise_nodes(algorithm: str, dtype: str) -> None:
    positive = algorithm in ("log", "sqrt", "pow")
    x = np.random.default_rng(len(algorithm)).uniform(0.1 if positive else -4, 4, (5, 7)).astype(dtype)
    chain = PostOps().append_eltwise(algorithm, ALPHA, BETA, 1.5)
    g = GraphBuilder()
    y = g.node(Relu(), g.constant(np.maximum(x, 0)), post_ops=chain)
    if not positive:
        y = g.node(
            Relu(),
            g.constant(np.zeros((5, 7), dtype)),
            post_ops=PostOps().append_sum(g.constant(x)).append_eltwise(*chain.params(0).values()),
        )
    got = fold_constants(unfuse_post_ops(g.graph([y]))).constants[y]
    want = [1.5 * scalar(algorithm, float(s)) for s in x.reshape(-1)]
    assert got.dtype == dtype
    np.testing.assert_allclose(got.reshape(-1), want, rtol={"float16": 2e-3, "float32": 3e-6, "float64": 1e-12}[dtype], atol=1e-6)


@pytest.mark.parametrize("algorithm", ELTWISE_ALGORITHMS)
def test_nan_stays_nan(algorithm: str) -> None:
    g = GraphBuilder()
    y = g.node(Relu(), g.constant(np.array([np.nan], np.float32)), post_ops=PostOps().append_eltwise(algorithm, 0.5, 2.0))
    assert np.isnan(fold_constants(unfuse_post_ops(g.graph([y]))).constants[y]).all()


@pytest.mark.parametrize("algorithm", BINARY_ALGORITHMS)
def test_binary_nodes(algorithm: str) -> None:
    rng = np.random.default_rng(1)
    s, o = rng.uniform(0.5, 2, (4, 3)).astype(np.float32), rng.uniform(0.5, 2, 3).astype(np.float32)
    g = GraphBuilder()
    y = g.node(Relu(), g.constant(s), post_ops=PostOps().append_binary(algorithm, g.constant(o)))
    got = fold_constants(unfuse_post_ops(g.graph([y]))).constants[y]
    formula = BINARY_ALGORITHMS[algorithm]
    names = {"s": s.astype(np.float64), "o": np.broadcast_to(o, s.shape).astype(np.float64), "max": np.maximum, "min": np.minimum}
    np.testing.assert_allclose(got, eval(formula, names), rtol=1e-6)  # the documented formula itself


def test_sum_and_prelu_nodes() -> None:
    chain = PostOps((Sum("r", 0.5, 2), Prelu("slope")))
    g = GraphBuilder()
    s = g.constant(np.array([3.0, 0.25], np.float32))
    r, slope = g.constant(np.array([4.0, -4.0], np.float32), name="r"), g.constant(np.float32(0.1), name="slope")
    assert (r, slope) == ("r", "slope")
    y = g.node(Relu(), s, post_ops=chain)
    got = fold_constants(unfuse_post_ops(g.graph([y]))).constants[y]
    np.testing.assert_allclose(got, [3 + 0.5 * 2, 0.1 * (0.25 - 3)], rtol=1e-6)
