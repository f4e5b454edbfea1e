"""Every kernel on the shipped cases of its operator, with variable and with constant parameters, and post-ops behind it."""

import dataclasses

import numpy as np
import pytest

from dovetail.device import Binary, Eltwise, Prelu, Sum, TypedNode
from dovetail.graph import GraphBuilder
from dovetail.testing import passed
from dovetail_cpu_onednn.library import library
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.sub import Sub


def variants(bench, stem):
    """(case, graph) for the cases that the device runs by a primitive."""
    found = []
    for case in bench.cases(stem):
        fixed = dataclasses.replace(case, constants=tuple(i for i, x in enumerate(case.inputs) if i and x is not None))
        for variant in (case, fixed):
            graph = bench.typed(variant.model().graph)
            answer = bench.device.supports(TypedNode.of(graph.nodes[0], graph))
            if answer and answer.kernel not in ("ref", "view"):
                found.append((variant, graph))
    return found


def test_cases(bench, stem):
    cases = variants(bench, stem)
    assert cases or (stem.endswith("_integer") and not library().has_int8), f"no case of {stem} runs by a primitive"
    for case, graph in cases:
        outputs = bench.run_twice(bench.executable(graph), [case.feeds()[n] for n in graph.inputs])
        assert not (wrong := passed(case, outputs)), f"{case.name}: {wrong}"


CHAINS = {
    "eltwise": (Eltwise("linear", 0.5, -0.25), Eltwise("tanh")),
    "clip": (Eltwise("clip", -0.5, 0.75, 1.5),),
    "row": (Eltwise("linear", 0.5, 0.25), Binary("mul", "row"), Eltwise("logistic")),
    "full": (Binary("add", "full"), Eltwise("relu")),
    "sum": (Sum("full", 0.5), Eltwise("relu", 0.1)),
    "subtract": (Binary("rsub", "full"), Binary("add", "one")),
    "prelu": (Prelu("channel"),),
}


def expected(chain, s, operands):
    """The chain in float64."""
    for step in chain:
        o = operands.get(getattr(step, "operand", ""))
        if isinstance(step, Sum):
            s = s + step.scale * o
        elif isinstance(step, Binary):
            s = {"add": s + o, "mul": s * o, "rsub": o - s}[step.algorithm]
        elif isinstance(step, Prelu):
            s = np.where(s > 0, s, o * s)
        else:
            s = step.scale * {
                "linear": lambda v, a=step.alpha, b=step.beta: a * v + b,
                "tanh": np.tanh,
                "clip": lambda v, a=step.alpha, b=step.beta: np.clip(v, a, b),
                "logistic": lambda v: 1 / (1 + np.exp(-v)),
                "relu": lambda v, a=step.alpha: np.where(v > 0, v, a * v),
            }[step.algorithm](s)
    return s


ELTWISE = ("sigmoid", "leaky_relu", "hard_sigmoid")
NOT_FUSED = {
    ("conv", "row"),
    ("conv_transpose", "row"),
    ("average_pool", "full"),
    ("average_pool", "subtract"),
}
NOT_FUSED |= {(op, c) for op in ("average_pool", "add", *ELTWISE) for c in ("sum", "prelu")} | {(op, "clip") for op in ELTWISE}
"""Chains that oneDNN does not take, gets wrong, or has only slow implementations for."""
if library().version >= (3, 12):
    NOT_FUSED.remove(("conv_transpose", "row"))  # which its binary primitive takes where data are plain


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("operator", ["conv", "mat_mul", "gemm", "average_pool", "conv_transpose", "add", *ELTWISE])
def test_post_ops(bench, operator, name):
    """A chain against the same steps in float64 on the expected result without it, and which chains are taken."""
    chain = CHAINS[name]
    rng = np.random.default_rng(11)
    accepted = 0
    for case, graph in variants(bench, operator):
        want = case.expected[0]
        if not np.isfinite(want).all() or not want.ndim:
            continue
        channel, one = ((1, want.shape[1], *(1,) * (want.ndim - 2)), (1,) * want.ndim) if want.ndim > 1 else ((1,), (1,))
        row, full, channel, one = (
            rng.standard_normal(shape).astype(np.float32) for shape in (want.shape[-1:], want.shape, channel, one)
        )
        operands = {"row": row, "full": full, "channel": channel, "one": one}
        for label, value in operands.items():
            graph = bench.with_constant(graph, label, value)
        node = dataclasses.replace(graph.nodes[0], post_ops=chain)
        graph = graph.replace(nodes=(node,))
        if not bench.device.supports(TypedNode.of(node, graph)):
            continue
        accepted += 1
        (got,) = bench.run_twice(bench.executable(graph), [case.feeds()[n] for n in graph.inputs])
        np.testing.assert_allclose(
            got, expected(chain, want.astype(np.float64), operands), rtol=2e-4, atol=2e-4, err_msg=case.name
        )
    assert bool(accepted) is ((operator, name) not in NOT_FUSED)


OUTER = [((1, 5, 1, 3), (1, 5, 4, 1)), ((7, 1), (6,)), ((2, 1, 3), (1, 4, 1)), ((0, 1), (1, 5))]


@pytest.mark.parametrize("op", [Add(), Mul(), Sub()], ids=["add", "mul", "sub"])
@pytest.mark.parametrize(("one", "other"), OUTER, ids=str)
def test_operands_that_are_both_broadcast(bench, op, one, other):
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal(one).astype(np.float32), rng.standard_normal(other).astype(np.float32)
    g = GraphBuilder()
    y = g.node(op, g.input("a", "float32", one), g.input("b", "float32", other))
    graph = bench.typed(g.graph([y]))
    assert bench.device.supports(TypedNode.of(graph.nodes[0], graph)).kernel == "ufunc"
    (got,) = bench.run_twice(bench.executable(graph), [a, b])
    wide = [x.astype(np.float64) for x in (a, b)]
    expected = {"Add": np.add, "Mul": np.multiply, "Sub": np.subtract}[op.op_type](*wide)
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-7)
