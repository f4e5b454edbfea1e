"""Post-op chains against float64 formulas: every algorithm, in place and not, whole and in blocks."""

import numpy as np
import pytest

from dovetail.device import Binary, DType, Eltwise, Prelu, Reason, Sum, TensorType, TypedNode
from dovetail.graph.post_ops import BINARY_ALGORITHMS, ELTWISE_ALGORITHMS
from dovetail.testing.post_ops import BINARY, FORMULAS
from dovetail_cpu_numpy import blocks, post_ops
from dovetail_ops_onnx.hard_swish import HardSwish
from dovetail_ops_onnx.split import Split
from dovetail_ops_onnx.transpose import Transpose

PARAMETERS = dict.fromkeys(FORMULAS, (0, 0)) | {
    "clip": (-0.5, 1.5),
    "elu": (0.7, 0),
    "hardsigmoid": (0.2, 0.5),
    "hardswish": (1 / 6, 0.5),
    "linear": (1.5, -0.25),
    "pow": (0.5, 3),
    "soft_relu": (1, 0),
    "swish": (1.2, 0),
}
"""Algorithm -> alpha, beta."""

OTHER_PARAMETERS = [
    ("relu", 0.1, 0),
    ("relu", 1.0, 0),
    ("relu", 2.5, 0),
    ("relu", -0.5, 0),
    ("elu", 1.0, 0),
    ("linear", 1.0, 0.5),
    ("linear", 2.0, 0),
    ("linear", 1.0, 0),
    ("pow", 1.0, 2),
    ("pow", 2.0, 1),
    ("pow", 1.0, -1),
    ("soft_relu", 2.0, 0),
    ("clip", 2.0, -1.0),
    ("clip", 0.0, np.inf),
]

ELTWISE_CASES = [*((name, alpha, beta) for name, (alpha, beta) in PARAMETERS.items()), *OTHER_PARAMETERS]


def apply(chain, src, operands=(), in_place=False):
    """The result of `bind_chain`, with temporaries that hold NaN."""
    kind = TensorType(DType.of(src.dtype), src.shape)
    scratch = [np.full(shape, np.nan, dtype) for shape, dtype in post_ops.chain_scratch(chain, kind)]
    src = src.copy()
    dst = src if in_place else np.full_like(src, np.nan)
    arrays = iter(operands)
    steps = [(p, None if isinstance(p, Eltwise) else next(arrays)) for p in chain]
    with np.errstate(all="ignore"):
        for launch in post_ops.bind_chain(steps, src, dst, scratch):
            launch()
    return dst


def test_the_formulas_are_complete():
    assert set(FORMULAS) == set(ELTWISE_ALGORITHMS)
    assert set(BINARY) == set(BINARY_ALGORITHMS)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("algorithm", "alpha", "beta"), ELTWISE_CASES)
def test_eltwise(monkeypatch, algorithm, alpha, beta, dtype):
    if algorithm in ("erf", "gelu_erf") and dtype is np.float64:
        refusal = post_ops.refuse_result(Eltwise(algorithm), TensorType(DType.FLOAT64, (3,)))
        assert refusal.reason is Reason.POST_OP
        return
    rng = np.random.default_rng(1)
    tolerance = 2e-6 if dtype is np.float32 else 1e-13
    for shape in ((), (0, 3), (1,), (5, 7), (3, 2, 11), (70, 41)):
        src = np.asarray(3 * rng.standard_normal(shape), dtype)
        src = np.asarray(np.abs(src)) if algorithm in ("log", "sqrt") else src
        for scale in (1.0, -0.75):
            post_op = Eltwise(algorithm, alpha, beta, scale)
            want = scale * FORMULAS[algorithm](src.astype(np.float64), alpha, beta)
            whole = apply([post_op], src)
            np.testing.assert_allclose(whole, want, rtol=tolerance, atol=tolerance)
            assert whole.dtype == dtype
            np.testing.assert_array_equal(apply([post_op], src, in_place=True), whole)
            with monkeypatch.context() as patch:
                patch.setattr(blocks, "BLOCK", 9)
                np.testing.assert_allclose(apply([post_op], src, in_place=True), want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("algorithm", "alpha", "beta"), ELTWISE_CASES)
def test_eltwise_of_nan_and_infinity(algorithm, alpha, beta):
    """NaN stays NaN; an infinite value gives what the formula gives where that is defined."""
    src = np.array([np.nan, np.inf, -np.inf, 0.0, 1e30, -1e30], np.float32)
    got = apply([Eltwise(algorithm, alpha, beta)], np.resize(src, 3000))
    with np.errstate(all="ignore"):
        want = FORMULAS[algorithm](np.resize(src, 3000).astype(np.float64), alpha, beta).astype(np.float32)
    assert np.isnan(got[::6]).all()
    defined = np.isfinite(want)
    if algorithm not in ("sin", "cos"):
        np.testing.assert_allclose(got[defined], want[defined], rtol=1e-5, atol=1e-6)
    infinite = np.isinf(want) & np.isinf(np.resize(src, 3000))
    np.testing.assert_array_equal(got[infinite], want[infinite])


def test_erf_is_within_1e_6_relative():
    src = np.concatenate([np.linspace(-7, 7, 100_001), np.logspace(-37, 37, 20_001)]).astype(np.float32)
    src = src[src != 0]
    got = apply([Eltwise("erf")], src)
    want = FORMULAS["erf"](src.astype(np.float64), 0, 0)
    assert np.max(np.abs(got / want - 1)) < 1e-6
    assert np.max(np.abs(got)) <= 1


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("operand_shape", [(3, 4, 5), (4, 1), (5,), (1, 1, 1), (), (3, 1, 5)])
@pytest.mark.parametrize("algorithm", BINARY)
def test_binary(algorithm, operand_shape, in_place):
    rng = np.random.default_rng(2)
    src = rng.standard_normal((3, 4, 5)).astype(np.float32)
    operand = np.asarray(rng.standard_normal(operand_shape), np.float32)
    got = apply([Binary(algorithm, "o")], src, [operand], in_place)
    np.testing.assert_allclose(got, BINARY[algorithm](src.astype(np.float64), operand.astype(np.float64)), rtol=1e-6)


@pytest.mark.parametrize("block", [7, 1 << 16])
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("operand_shape", [(3, 4, 5), (4, 1), (5,), ()])
def test_sum_and_prelu(monkeypatch, operand_shape, in_place, block):
    monkeypatch.setattr(blocks, "BLOCK", block)
    rng = np.random.default_rng(3)
    src = rng.standard_normal((3, 4, 5)).astype(np.float32)
    o = np.asarray(rng.standard_normal(operand_shape), np.float32)
    for chain, want in (
        ([Sum("o")], src + o.astype(np.float64)),
        ([Sum("o", 0.5, 3)], src + 0.5 * (o.astype(np.float64) - 3)),
        ([Prelu("o")], np.where(src > 0, src, src * o.astype(np.float64))),
    ):
        np.testing.assert_allclose(apply(chain, src, [o], in_place), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("seed", range(30))
def test_random_chains(monkeypatch, seed):
    """Up to 32 steps of every kind in any order, against the same steps in float64."""
    rng = np.random.default_rng(seed)
    if seed % 2:
        monkeypatch.setattr(blocks, "BLOCK", 13)
    shape = tuple(int(n) for n in rng.integers(1, 6, rng.integers(0, 5)))
    src = np.asarray(rng.standard_normal(shape), np.float32)
    chain, operands, want = [], [], src.astype(np.float64)
    tame = [
        n for n in FORMULAS if n not in ("exp", "log", "sqrt", "pow", "ceil", "floor", "round", "sign", "square", "soft_relu")
    ]
    for _ in range(int(rng.integers(1, 33))):
        kind = rng.integers(4)
        if kind < 2:
            name = str(rng.choice(tame))
            (alpha, beta), formula = PARAMETERS[name], FORMULAS[name]
            chain.append(Eltwise(name, alpha, beta))
            want = formula(want, alpha, beta)
            continue
        dims = [int(rng.choice([1, n])) for n in shape[rng.integers(len(shape) + 1) :]]
        operand = np.asarray(rng.standard_normal(dims), np.float32)
        operands.append(operand)
        if kind == 2:
            name = str(rng.choice(["add", "sub", "rsub", "max", "min"]))
            chain.append(Binary(name, "o"))
            want = BINARY[name](want, operand.astype(np.float64))
        else:
            chain.append(Prelu("o"))
            want = np.where(want > 0, want, want * operand.astype(np.float64))
    got = apply(chain, src, operands, in_place=seed % 3 == 0)
    scale = max(1.0, float(np.abs(want).max()))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * scale)


def refusal_of(bench, op, inputs, chain, operand=None):
    graph = bench.single(op, inputs)[0]
    if operand is not None:
        graph = bench.with_constant(graph, "o", operand)
    (node,) = graph.nodes
    typed = TypedNode.of(node, graph)
    chained = TypedNode(
        type(node)(node.name, node.op, node.inputs, node.outputs, tuple(chain)),
        typed.inputs,
        typed.outputs,
        () if operand is None else (graph.types["o"],),
    )
    return bench.device.supports(chained)


def test_chains_that_cannot_be_exact_are_refused(bench):
    half = np.zeros((2, 3), np.float16)
    single = np.zeros((2, 3), np.float32)
    relu = Eltwise("relu")
    assert refusal_of(bench, Transpose(), [single], [relu])
    for op, array, chain, operand in (
        (Transpose(), half, [relu], None),
        (Transpose(), single.astype(np.int32), [relu], None),
        (Transpose(), single.astype(np.float64), [Eltwise("erf")], None),
        (Transpose(), single, [Binary("add", "o")], half.T),
        (Transpose(), single, [Binary("add", "o")], single),
        (Transpose(), single, [Binary("add", "o")], np.zeros((1, 3, 2), np.float32)),
    ):
        refusal = refusal_of(bench, op, [array], chain, operand)
        assert not refusal
        assert refusal.reason is Reason.POST_OP, refusal
    graph = bench.single(Split(num_outputs=2), [single], outputs=2)[0]
    two = TypedNode(
        type(graph.nodes[0])("n", Split(num_outputs=2), ("x0",), ("a", "b"), (relu,)),
        (graph.types["x0"],),
        (graph.types["y0"],) * 2,
    )
    assert bench.device.supports(two).reason is Reason.POST_OP


def test_an_elementwise_operator_runs_as_its_chain(bench):
    x = np.random.default_rng(6).standard_normal((3, 5)).astype(np.float32)
    executable = bench.executable(bench.single(HardSwish(), [x])[0])
    assert executable.reports[0].kernel == "post_ops"
    (got,) = bench.run_twice(executable, [x])
    wide = x.astype(np.float64)
    np.testing.assert_allclose(got, wide * np.clip(wide / 6 + 0.5, 0, 1), rtol=1e-6, atol=1e-7)
