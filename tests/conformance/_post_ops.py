"""Shared by the tests of post-ops: chains in the notation of oneDNN's test program, formulas, and models that grow.

The chains are those of oneDNN's own lists of test cases: `sum:scale:zero_point`, `algorithm:alpha:beta:scale`,
`binary algorithm:operand`, joined by `+`. Operands are `per_oc`
(one value for each channel), `per_tensor` (the shape of the result), `3` (the first two axes) and `common` (one value).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dovetail
from dovetail import GraphBuilder, PostOps
from dovetail.graph import Model
from dovetail.graph.post_ops import BINARY_ALGORITHMS
from dovetail.runtime import NodePlacement
from dovetail.testing.post_ops import computed
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.average_pool import AveragePool
from dovetail_ops_onnx.batch_normalization import BatchNormalization
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.conv_transpose import ConvTranspose
from dovetail_ops_onnx.gemm import Gemm
from dovetail_ops_onnx.global_average_pool import GlobalAveragePool
from dovetail_ops_onnx.instance_normalization import InstanceNormalization
from dovetail_ops_onnx.layer_normalization import LayerNormalization
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.max_pool import MaxPool
from dovetail_ops_onnx.reduce_mean import ReduceMean
from dovetail_ops_onnx.softmax import Softmax
from dovetail_ops_onnx.tanh import Tanh

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
    """The mistake in a result, with a tolerance for a float32 result of the head."""
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


def plain(b: Bench, op: Any, *inputs: str) -> str:
    return b.attach(PostOps(), op, inputs, b.head_in_float64(op, inputs))


def hidden(b: Bench, *keep: str) -> Model:
    """The model with these outputs only: an output is never overwritten, which would hide mistakes."""
    b.want = {y: b.want[y] for y in keep}
    b.heads = {y: b.heads[y] for y in keep}
    return b.model()
