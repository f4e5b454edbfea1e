"""Post-ops on every device, fused and as nodes, against the same chain in float64.

The chains are those of oneDNN's own lists of test cases, in the notation of its test program: `sum:scale:zero_point`,
`algorithm:alpha:beta:scale`, `binary algorithm:operand`, joined by `+`. The formulas below are written down apart from the
package's own. Operands are `per_oc` (one value for each channel), `per_tensor` (the shape of the result), `3` (the first two
axes) and `common` (one value).
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dovetail
from dovetail import GraphBuilder, PostOps
from dovetail.graph import Binary, Eltwise, Model, PostOp, Sum
from dovetail.graph.post_ops import BINARY_ALGORITHMS, ELTWISE_ALGORITHMS
from dovetail.ops.add import Add
from dovetail.ops.average_pool import AveragePool
from dovetail.ops.batch_normalization import BatchNormalization
from dovetail.ops.conv import Conv
from dovetail.ops.conv_transpose import ConvTranspose
from dovetail.ops.gemm import Gemm
from dovetail.ops.global_average_pool import GlobalAveragePool
from dovetail.ops.instance_normalization import InstanceNormalization
from dovetail.ops.layer_normalization import LayerNormalization
from dovetail.ops.mat_mul import MatMul
from dovetail.ops.max_pool import MaxPool
from dovetail.ops.mul import Mul
from dovetail.ops.neg import Neg
from dovetail.ops.reduce_mean import ReduceMean
from dovetail.ops.relu import Relu
from dovetail.ops.softmax import Softmax
from dovetail.ops.tanh import Tanh
from dovetail.runtime import NodePlacement

Array = NDArray[Any]

COMBINED = (
    *("sum+relu", "sum+relu:0.5", "sum+tanh:0:0:2.5", "sum+elu:0.5", "sum+abs", "sum+linear:0.5:1.5", "sum+clip:0:0.5"),
    *("sum+logistic:0:0:2.5", "sum+square", "sum+soft_relu:1", "sum+soft_relu:0.5", "sum+pow:0.5:0.33"),
    *("add:per_oc", "add:per_tensor", "add:3", "prelu:per_oc", "sum+prelu:per_oc"),
    *("sum:1.5:2+relu:0:0:2.6", "sum:0.25:1+add:per_oc+relu:0.5:0:0.75", "relu:0.5+sum"),
)
ELTWISE = (
    *("abs", "clip:-2:3", "elu:-2", "exp", "gelu_erf", "gelu_tanh", "hardsigmoid:-2:3", "hardswish:-2:3", "linear:-2:3", "log"),
    *("logistic", "mish", "pow:1:-1", "pow:1:0.5", "pow:1:1.5", "relu", "relu:-2", "round", "soft_relu:1", "soft_relu:-1"),
    *("soft_relu:-2", "square", "sqrt", "swish:-2", "tanh", "linear:1:2+linear:1:3", "linear:2:0+linear:3:0"),
)
OTHERS = (
    *("sub:per_oc", "rsub:per_tensor", "mul:common+add:per_oc", "div:per_oc", "rdiv:common", "max:per_oc", "min:per_tensor"),
    *("add:per_oc+add:per_tensor+relu", "prelu:common", "mul:per_oc+relu+mul:common+tanh", "sum+sum:0.5", "erf", "sin+cos"),
    "ceil+floor+sign",
)
CHAINS = (*COMBINED, *ELTWISE, *OTHERS)


def gelu(s: Array, inner: Array) -> Array:
    return np.asarray(0.5 * s * (1 + inner))


erf = np.vectorize(math.erf, otypes=[np.float64])

FORMULAS: dict[str, Callable[[Array, float, float], Any]] = {
    "abs": lambda s, a, b: abs(s),
    "ceil": lambda s, a, b: np.ceil(s),
    "clip": lambda s, a, b: np.minimum(b, np.maximum(a, s)),
    "cos": lambda s, a, b: np.cos(s),
    "elu": lambda s, a, b: np.where(s > 0, s, a * (np.exp(np.minimum(s, 0)) - 1)),
    "erf": lambda s, a, b: erf(s),
    "exp": lambda s, a, b: np.exp(s),
    "floor": lambda s, a, b: np.floor(s),
    "gelu_erf": lambda s, a, b: gelu(s, erf(s / math.sqrt(2))),
    "gelu_tanh": lambda s, a, b: gelu(s, np.tanh(math.sqrt(2 / math.pi) * (s + 0.044715 * s**3))),
    "hardsigmoid": lambda s, a, b: np.maximum(0, np.minimum(1, a * s + b)),
    "hardswish": lambda s, a, b: s * np.maximum(0, np.minimum(1, a * s + b)),
    "linear": lambda s, a, b: a * s + b,
    "log": lambda s, a, b: np.log(s),
    "logistic": lambda s, a, b: 1 / (1 + np.exp(-s)),
    "mish": lambda s, a, b: s * np.tanh(np.log1p(np.exp(s))),
    "pow": lambda s, a, b: a * s**b,
    "relu": lambda s, a, b: np.where(s > 0, s, a * s if a else np.where(np.isnan(s), s, 0)),
    "round": lambda s, a, b: np.rint(s),
    "sign": lambda s, a, b: np.sign(s),
    "sin": lambda s, a, b: np.sin(s),
    "soft_relu": lambda s, a, b: np.logaddexp(0, a * s) / a,
    "sqrt": lambda s, a, b: np.sqrt(s),
    "square": lambda s, a, b: s**2,
    "swish": lambda s, a, b: s / (1 + np.exp(-a * s)),
    "tanh": lambda s, a, b: np.tanh(s),
}
BINARY: dict[str, Callable[[Array, Array], Any]] = {
    "add": lambda s, o: s + o,
    "sub": lambda s, o: s - o,
    "rsub": lambda s, o: o - s,
    "mul": lambda s, o: s * o,
    "div": lambda s, o: s / o,
    "rdiv": lambda s, o: o / s,
    "max": np.maximum,
    "min": np.minimum,
}


def computed(chain: Iterable[PostOp], s: Array, operands: dict[str, Array]) -> Array:
    """The chain over float64."""
    with np.errstate(all="ignore"):
        for post_op in chain:
            if isinstance(post_op, Eltwise):
                s = post_op.scale * FORMULAS[post_op.algorithm](s, post_op.alpha, post_op.beta)
            elif isinstance(post_op, Binary):
                s = BINARY[post_op.algorithm](s, operands[post_op.operand])
            elif isinstance(post_op, Sum):
                s = s + post_op.scale * (operands[post_op.operand] - post_op.zero_point)
            else:
                s = np.where(s > 0, s, operands[post_op.operand] * s)
    return np.asarray(s, np.float64)


def test_every_algorithm_has_a_chain_and_a_formula() -> None:
    steps = {step.partition(":")[0] for chain in CHAINS for step in chain.split("+")}
    assert steps == {*ELTWISE_ALGORITHMS, *BINARY_ALGORITHMS, "sum", "prelu"}
    assert FORMULAS.keys() == ELTWISE_ALGORITHMS.keys()


# --- heads ----------------------------------------------------------------------------------------------------------------


@dataclass
class Bench:
    """A model that grows: heads with chains, their inputs in float32, and what they must give in float64."""

    rng: np.random.Generator

    def __post_init__(self) -> None:
        self.g = GraphBuilder()
        self.feeds: dict[str, Array] = {}
        self.values: dict[str, Array] = {}
        self.want: dict[str, tuple[str, PostOps, Array]] = {}
        self.heads: dict[str, str] = {}

    def input(self, *dims: int) -> str:
        name = self.g.input(f"x{len(self.feeds)}", "float32", dims)
        self.feeds[name] = self.values[name] = self.rng.standard_normal(dims).astype(np.float32)
        return name

    def constant(self, *dims: int, scale: float = 1.0) -> str:
        return self.given((scale * self.rng.standard_normal(dims)).astype(np.float32))

    def given(self, array: Array) -> str:
        name = self.g.constant(array)
        self.values[name] = array
        return name

    def operand(self, where: str, dims: Sequence[int]) -> str:
        keep = {"per_oc": (1,), "per_tensor": range(len(dims)), "3": (0, 1), "common": ()}[where]
        return self.constant(*(size if axis in keep else 1 for axis, size in enumerate(dims)))

    def chain(self, text: str, dims: Sequence[int]) -> PostOps:
        chain = PostOps()
        for step in text.split("+"):
            word, *rest = step.split(":")
            if word == "sum":
                chain.append_sum(self.input(*dims), *map(float, rest[:1]), *map(int, rest[1:]))
            elif word == "prelu":
                chain.append_prelu(self.operand(rest[0], dims))
            elif word in BINARY_ALGORITHMS:
                chain.append_binary(word, self.operand(rest[0], dims))
            else:
                chain.append_eltwise(word, *map(float, rest))
        return chain

    def add(self, text: str, op: Any, *inputs: str, **options: Any) -> str:
        """A head with the chain `text`."""
        s = self.head_in_float64(op, inputs)
        return self.attach(self.chain(text, s.shape), op, inputs, s, text, **options)

    def head_in_float64(self, op: Any, inputs: Sequence[str]) -> Array:
        with np.errstate(all="ignore"):
            found = op.reference(*(None if not n else _wide(self.values[n]) for n in inputs))
        return np.asarray(found[0] if isinstance(found, tuple) else found, np.float64)

    def attach(self, chain: PostOps, op: Any, inputs: Sequence[str], s: Array, text: str = "", **options: Any) -> str:
        name = f"{op.stem}{len(self.want)}"
        y = str(self.g.node(op, *inputs, name=name, post_ops=chain, **options))
        self.want[y] = (text, chain, s)
        self.heads[y] = name
        wide = {name: np.asarray(value, np.float64) for name, value in self.values.items()}
        self.values[y] = computed(chain, s, wide)
        return y

    def model(self) -> Model:
        return self.g.model(list(self.want))

    def check(self, core: dovetail.Core, device: str, fusion: bool) -> dict[str, NodePlacement]:
        """Compile, run, compare every output; return the placement of each head by its output (of those merged into none)."""
        with core.compile_model(self.model(), device, {"FUSION": fusion}) as compiled:
            nodes = {n.name: n for n in compiled.report().nodes}
            got = {name: array.copy() for name, array in compiled(self.feeds).items()}
        wide = {name: np.asarray(value, np.float64) for name, value in self.values.items()}
        wrong = [f"{text}: {w}" for y, (text, chain, s) in self.want.items() if (w := _wrong(got[y], chain, s, wide))]
        assert not wrong, "\n".join(wrong)
        return {y: nodes[name] for y, name in self.heads.items() if name in nodes}


def _wide(array: Array) -> Array:
    return array.astype(np.float64) if array.dtype == np.float32 else array


def _wrong(got: Array, chain: PostOps, s: Array, operands: dict[str, Array]) -> str:
    """What is wrong with a result, allowing what a float32 result of the head may do to it."""
    want = computed(chain, s, operands)
    step = 1e-6 * np.abs(np.where(np.isfinite(s), s, 0)).max(initial=0)
    near = [computed(chain, s + d, operands) for d in (step, -step)]
    with np.errstate(all="ignore"):
        # Where a rounding of the head decides between a number and none, nothing is asked.
        asked = np.logical_and.reduce([np.isnan(n) == np.isnan(want) for n in near])
        slack = np.maximum(*(np.abs(n - want) for n in near))
        close = np.abs(got - want) <= 1e-4 * np.abs(want) + 2e-6 * max(1.0, step * 1e6) + 2 * slack
    same = close | (np.isnan(got) & np.isnan(want)) | (got == want)
    assert asked.mean() > 0.95 or asked.size < 40
    at = np.flatnonzero(~(same | ~asked).reshape(-1))
    if not at.size:
        return ""
    return f"{at.size} of {got.size}, first {got.reshape(-1)[at[0]]} for {want.reshape(-1)[at[0]]}"


def conv(b: Bench, text: str, channels: int = 7, spatial: Sequence[int] = (6, 5), **options: Any) -> str:
    rank = len(spatial)
    wei = b.constant(channels, 5, *[3] * rank, scale=(5 * 3**rank) ** -0.5)
    return b.add(text, Conv(pads=(1,) * (2 * rank)), b.input(2, 5, *spatial), wei, b.constant(channels), **options)


HEADS: dict[str, Callable[[Bench, str], str]] = {
    "conv blocked": lambda b, text: conv(b, text, 32, (7, 9)),
    "conv 1-D": lambda b, text: conv(b, text, 5, (11,)),
    "conv 3-D": lambda b, text: conv(b, text, 9, (3, 4, 5)),
    "depthwise": lambda b, text: b.add(text, Conv(group=6), b.input(1, 6, 7, 5), b.constant(6, 1, 3, 3), b.constant(6)),
    "conv_transpose": lambda b, text: b.add(text, ConvTranspose(strides=(2, 2)), b.input(1, 3, 5, 4), b.constant(3, 6, 3, 3)),
    "mat_mul": lambda b, text: b.add(text, MatMul(), b.input(2, 5, 9), b.constant(9, 7)),
    "gemm": lambda b, text: b.add(text, Gemm(transB=1), b.input(3, 11), b.constant(5, 11), b.constant(5)),
    "max_pool": lambda b, text: b.add(text, MaxPool(kernel_shape=(3, 2)), b.input(1, 5, 9, 7)),
    "average_pool": lambda b, text: b.add(text, AveragePool(kernel_shape=(2, 3)), b.input(2, 3, 5, 9)),
    "global_average_pool": lambda b, text: b.add(text, GlobalAveragePool(), b.input(3, 7, 3, 5)),
    "binary": lambda b, text: b.add(text, Add(), b.input(2, 3, 5, 7), b.input(2, 3, 5, 7)),
    "eltwise": lambda b, text: b.add(text, Tanh(), b.input(2, 3, 5, 7)),
    "softmax": lambda b, text: b.add(text, Softmax(), b.input(3, 5, 17)),
    "layer_normalization": lambda b, text: b.add(text, LayerNormalization(), b.input(3, 5, 17), b.constant(17), b.constant(17)),
    "instance_normalization": lambda b, text: b.add(text, InstanceNormalization(), b.input(2, 3, 7, 5), *_channels(b, 2)),
    "batch_normalization": lambda b, text: b.add(text, BatchNormalization(), b.input(2, 3, 7, 5), *_channels(b, 3), _variance(b)),
    "reduction": lambda b, text: b.add(text, ReduceMean(), b.input(3, 5, 7, 2), b.given(np.array([2]))),
}


def _channels(b: Bench, count: int) -> list[str]:
    return [b.constant(3) for _ in range(count)]


def _variance(b: Bench) -> str:
    return b.given(np.array([0.5, 1.5, 2.0], np.float32))


def fused_or_told(b: Bench, placed: dict[str, NodePlacement]) -> None:
    """Each chain is part of its head from end to end, or the report says where it stops and why."""
    for y, node in placed.items():
        _, chain, _ = b.want[y]
        if len(node.post_ops) < len(chain):
            assert node.post_op_stop is not None, f"{node.name} with {b.want[y][0]}"
            assert node.post_op_stop[0].startswith(f"{node.name}/{len(node.post_ops)}_")
            assert node.post_op_stop[1].detail
        else:
            assert node.post_op_stop is None


def test_chains_on_a_convolution(core: dovetail.Core, device: str) -> None:
    b = Bench(np.random.default_rng(1))
    for text in COMBINED:
        conv(b, text)
    fused_or_told(b, b.check(core, device, fusion=True))


def test_eltwise_chains(core: dovetail.Core, device: str) -> None:
    """Behind an addition, whose programs are small; those below with NaN and infinity are behind convolutions."""
    b = Bench(np.random.default_rng(12))
    for text in ELTWISE:
        HEADS["binary"](b, text)
    fused_or_told(b, b.check(core, device, fusion=True))


def test_chains_as_nodes(core: dovetail.Core, device: str) -> None:
    b = Bench(np.random.default_rng(2))
    for text in COMBINED:
        conv(b, text, 3, (2, 3))
    placed = b.check(core, device, fusion=False)
    assert not any(node.post_ops for node in placed.values())


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


@pytest.mark.parametrize("head", FOUND)
def test_followers_are_merged(core: dovetail.Core, device: str, head: str) -> None:
    """Bias, activation, residual addition and scale as nodes of a model: part of the head, or the report says why not."""
    b = Bench(np.random.default_rng(13))
    s = HEADS[head](b, "linear:1:0")
    dims = b.values[s].shape
    bias, scale, residual = b.operand("per_oc", dims), b.constant(), b.input(*dims)
    y = s
    for op, *others in ((Add(), bias), (Relu(),), (Add(), residual), (Mul(), scale)):
        y = _plain(b, op, y, *others)
    _hidden(b, y)
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


# --- the destination as an input: where its memory goes -----------------------------------------------------------------------


def _plain(b: Bench, op: Any, *inputs: str) -> str:
    return b.attach(PostOps(), op, inputs, b.head_in_float64(op, inputs))


def _hidden(b: Bench, *keep: str) -> Model:
    """The model with these outputs only: an output is never overwritten, which would hide mistakes."""
    b.want = {y: b.want[y] for y in keep}
    b.heads = {y: b.heads[y] for y in keep}
    return b.model()


def _residual(b: Bench, x: str, chain: PostOps) -> str:
    op = Conv(pads=(1, 1, 1, 1))
    inputs = (x, b.constant(16, 16, 3, 3, scale=1 / 12))
    return b.attach(chain, op, inputs, b.head_in_float64(op, inputs), repr(list(chain)))


SHAPE = (2, 16, 5, 7)


@pytest.fixture(params=["sum", "binary"])
def adds(request: pytest.FixtureRequest) -> Callable[[str], PostOps]:
    """The addition of an operand, as a sum and as a binary post-op."""
    if request.param == "sum":
        return lambda operand: PostOps().append_sum(operand, 0.5)
    return lambda operand: PostOps().append_binary("add", operand)


def test_the_operand_is_read_again_later(core: dovetail.Core, device: str, adds: Callable[[str], PostOps]) -> None:
    b = Bench(np.random.default_rng(5))
    before = _plain(b, Tanh(), b.input(*SHAPE))
    first = _residual(b, b.input(*SHAPE), adds(before).append_eltwise("relu"))
    last = _plain(b, Add(), _plain(b, Neg(), first), before)
    _hidden(b, last)
    b.check(core, device, fusion=True)


def test_two_consumers_of_an_operand(core: dovetail.Core, device: str, adds: Callable[[str], PostOps]) -> None:
    b = Bench(np.random.default_rng(6))
    before, x = _plain(b, Tanh(), b.input(*SHAPE)), b.input(*SHAPE)
    one = _residual(b, x, adds(before))
    two = _residual(b, x, adds(before).append_eltwise("tanh"))
    _hidden(b, _plain(b, Add(), one, two))
    b.check(core, device, fusion=True)


def test_the_operand_is_what_the_node_reads(core: dovetail.Core, device: str, adds: Callable[[str], PostOps]) -> None:
    """conv(a) + a: a result in the memory of a would spoil the windows that are still to be read."""
    b = Bench(np.random.default_rng(7))
    before = _plain(b, Tanh(), b.input(*SHAPE))
    _hidden(b, _residual(b, before, adds(before)))
    b.check(core, device, fusion=True)


def test_one_operand_twice_in_a_chain(core: dovetail.Core, device: str, adds: Callable[[str], PostOps]) -> None:
    b = Bench(np.random.default_rng(8))
    before = _plain(b, Tanh(), b.input(*SHAPE))
    chain = PostOps((*adds(before), Eltwise("tanh"), *adds(before), Binary("mul", before)))
    _hidden(b, _residual(b, b.input(*SHAPE), chain))
    b.check(core, device, fusion=True)


def test_graph_inputs_and_constants_are_only_read(core: dovetail.Core, device: str, adds: Callable[[str], PostOps]) -> None:
    b = Bench(np.random.default_rng(9))
    x, r, c = b.input(*SHAPE), b.input(*SHAPE), b.constant(*SHAPE)
    for operand in (r, c):
        _residual(b, x, adds(operand))
    b.feeds = {name: array.copy() for name, array in b.feeds.items()}
    for array in b.feeds.values():
        array.flags.writeable = False
    with core.compile_model(b.model(), device) as compiled:
        results = [{k: v.copy() for k, v in compiled(b.feeds).items()} for _ in range(3)]
    for y in b.want:
        np.testing.assert_allclose(results[0][y], b.values[y], rtol=1e-4, atol=1e-5)
        assert all(np.array_equal(results[0][y], again[y]) for again in results[1:]), "a run spoils what the next one reads"


@pytest.mark.parametrize("dims", [(16, 1, 1), (1, 16, 5, 1), (7,), ()])
def test_operands_that_broadcast(core: dovetail.Core, device: str, adds: Callable[[str], PostOps], dims: tuple[int, ...]) -> None:
    b = Bench(np.random.default_rng(10))
    _residual(b, b.input(*SHAPE), adds(b.constant(*dims)).append_eltwise("relu"))
    b.check(core, device, fusion=True)


def test_residual_blocks_in_a_row(core: dovetail.Core, device: str) -> None:
    """Every operand dies in its sum, so that each result may take its memory over."""
    b = Bench(np.random.default_rng(11))
    value = _plain(b, Tanh(), b.input(*SHAPE))
    for _ in range(4):
        value = _residual(b, _residual(b, value, PostOps().append_eltwise("relu")), PostOps().append_sum(value))
    _hidden(b, value)
    b.check(core, device, fusion=True)


# --- NaN and infinity ---------------------------------------------------------------------------------------------------------

SPECIAL = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 100, -100, 0, -3, 0.5], np.float32)

LIMITS = {
    ("ONEDNN", "clip", "nan"),
    ("ONEDNN", "relu", "-inf"),
    ("ONEDNN", "gelu_erf", "inf"),
}
"""The cells in which a device differs from the formulas, as its package's README says, with the reason."""


def _special_chains() -> Iterable[Eltwise]:
    for algorithm in ELTWISE_ALGORITHMS:
        alpha, beta = {"relu": (0.0, 0.0), "hardsigmoid": (1 / 6, 0.5), "hardswish": (1 / 6, 0.5)}.get(algorithm, (0.5, 2.0))
        yield Eltwise(algorithm, alpha, beta)
    yield Eltwise("relu", 0.5)


def _limit(s: float, formula: Array) -> list[float]:
    """The values that are right: the formula's, and the limit where the formula is infinity times zero."""
    return [float(formula), *([0.0, s] if np.isinf(s) and np.isnan(formula) else [])]


def _conv_head(g: GraphBuilder, x: str, post_op: PostOp) -> str:
    weights = np.eye(len(SPECIAL), dtype=np.float32).reshape(len(SPECIAL), -1, 1, 1)
    return str(g.node(Conv(), x, g.constant(weights), g.constant(SPECIAL), post_ops=[post_op]))


def _mat_mul_head(g: GraphBuilder, x: str, post_op: PostOp) -> str:
    """The bias is a post-op, too."""
    chain = [Binary("add", g.constant(SPECIAL)), post_op]
    return str(g.node(MatMul(), x, g.constant(np.eye(len(SPECIAL), dtype=np.float32)), post_ops=chain))


@pytest.mark.parametrize("head", [_conv_head, _mat_mul_head])
def test_nan_and_infinity_in_fused_chains(core: dovetail.Core, device: str, head: Callable[..., str]) -> None:
    some = ("relu", "clip", "gelu_erf", "tanh", "logistic")
    chains = [p for p in _special_chains() if head is _conv_head or p.algorithm in some]
    dims = (1, len(SPECIAL), 2, 3) if head is _conv_head else (2, len(SPECIAL))
    found = set()
    for start in range(0, len(chains), 7):
        g = GraphBuilder()
        x = g.input("x", "float32", dims)
        outputs = [head(g, x, post_op) for post_op in chains[start : start + 7]]
        with core.compile_model(g.model(outputs), device) as compiled:
            results = compiled([np.zeros(dims, np.float32)])
            for post_op, y in zip(chains[start:], outputs, strict=False):
                rows = np.moveaxis(results[y].astype(np.float64), 1, 0)
                found |= {(device, post_op.algorithm, f"{s:g}") for s in _wrong_cells(post_op, rows)}
    assert found == {limit for limit in LIMITS if limit[0] == device}


def _wrong_cells(post_op: Eltwise, rows: Array) -> Iterable[float]:
    """The values of SPECIAL for which the result, one row for each, is none of the right ones."""
    for s, row in zip(SPECIAL, rows, strict=True):
        with np.errstate(over="ignore"):
            formula = computed([post_op], np.asarray(s, np.float64), {}).astype(np.float32)
        if not any(np.allclose(row, r, rtol=1e-4, atol=1e-5, equal_nan=True) for r in _limit(float(s), formula)):
            yield float(s)
