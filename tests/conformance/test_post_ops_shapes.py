"""Every way in which operands broadcast, for every operator that can take post-ops, on every device.

A case is the shape of the result, that of the operator's own second operand, and that of the post-op's operand: ranks 1 to 5,
sizes 1 to 3. A sample runs by default, chosen by `DOVETAIL_SEED`; `DOVETAIL_EXHAUSTIVE=1` runs all 390,000.
"""

import os
import runpy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dovetail
from dovetail import PostOps
from dovetail_ops_onnx.average_pool import AveragePool
from dovetail_ops_onnx.batch_normalization import BatchNormalization
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.conv_transpose import ConvTranspose
from dovetail_ops_onnx.div import Div
from dovetail_ops_onnx.gemm import Gemm
from dovetail_ops_onnx.global_average_pool import GlobalAveragePool
from dovetail_ops_onnx.group_normalization import GroupNormalization
from dovetail_ops_onnx.instance_normalization import InstanceNormalization
from dovetail_ops_onnx.layer_normalization import LayerNormalization
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.max_pool import MaxPool
from dovetail_ops_onnx.reduce_mean import ReduceMean
from dovetail_ops_onnx.resize import Resize
from dovetail_ops_onnx.softmax import Softmax
from dovetail_ops_onnx.sub import Sub
from dovetail_ops_onnx.sum import Sum
from dovetail_ops_onnx.tanh import Tanh

pytestmark = pytest.mark.exhaustive(0.13, device="OPENCL")  # compiles programs

shared = runpy.run_path(str(Path(__file__).with_name("_post_ops.py")))
Bench = shared["Bench"]

Array = NDArray[Any]
Dims = tuple[int, ...]

EXHAUSTIVE = os.environ.get("DOVETAIL_EXHAUSTIVE") == "1"
SAMPLE = 2
"""Cases of each operator and rank that run by default."""
TOGETHER = 48
"""Cases in one model."""
KINDS = ("div", "prelu", "sum")
EPSILON = 0.5


class Maker:
    """Adds one operator with a result of the wanted shape to a model."""

    def __init__(self, b: Any, dims: Dims, second: Dims) -> None:
        self.b, self.dims, self.second = b, dims, second
        self.inputs: list[str] = []

    def input(self, dims: Sequence[int]) -> Array:
        """A new input of the model, in float64."""
        name = self.b.input(*dims)
        self.inputs.append(name)
        return np.asarray(self.b.values[name], np.float64)

    def constant(self, dims: Sequence[int], low: float = -2.0) -> Array:
        """A new constant of the model, in float64."""
        array = self.b.rng.uniform(low, 2, dims).astype(np.float32)
        self.inputs.append(self.b.given(array))
        return np.asarray(array, np.float64)

    def along(self, axis: int, vector: Array) -> Array:
        """The vector as it broadcasts along an axis of the result."""
        return vector.reshape(tuple(-1 if at == axis else 1 for at in range(len(self.dims))))


Head = Callable[[Maker], tuple[Any, Array]]
"""Gives the operator, its result in float64; its inputs are those that were made."""


def _sub(m: Maker) -> tuple[Any, Array]:
    return Sub(), m.input(m.dims) - m.input(m.second)


def _sum(m: Maker) -> tuple[Any, Array]:
    return Sum(), m.input(m.dims) + m.input(m.second) + m.constant(m.second[-2:])


def _tanh(m: Maker) -> tuple[Any, Array]:
    return Tanh(), np.tanh(m.input(m.dims))


def _conv(m: Maker) -> tuple[Any, Array]:
    batch, maps, *rest = m.dims
    x, w = m.input((batch, 3, *rest)), m.constant((maps, 3, *(1 for _ in rest)))
    return Conv(), np.einsum("nc...,mc->nm...", x, w.reshape(maps, 3))


def _depthwise(m: Maker) -> tuple[Any, Array]:
    maps, ones = m.dims[1], (1,) * (len(m.dims) - 2)
    x, w = m.input(m.dims), m.constant((maps, 1, *ones))
    return Conv(group=maps), x * m.along(1, w.reshape(maps))


def _conv_transpose(m: Maker) -> tuple[Any, Array]:
    batch, maps, *rest = m.dims
    x, w = m.input((batch, 3, *rest)), m.constant((3, maps, *(1 for _ in rest)))
    return ConvTranspose(), np.einsum("nc...,cm->nm...", x, w.reshape(3, maps))


def _mat_mul(m: Maker) -> tuple[Any, Array]:
    return MatMul(), m.input((*m.dims[:-1], 2)) @ m.constant((2, m.dims[-1]))


def _mat_mul_of_stacks(m: Maker) -> tuple[Any, Array]:
    return MatMul(), m.input((*m.dims[:-1], 2)) @ m.input((*m.dims[:-2], 2, m.dims[-1]))


def _gemm(m: Maker) -> tuple[Any, Array]:
    return Gemm(), m.input((m.dims[0], 2)) @ m.constant((2, m.dims[1])) + m.constant(m.dims[1:])


def _windows(m: Maker) -> Array:
    """The elements of windows of two along each spatial axis, in the last axes."""
    axes = tuple(range(2, len(m.dims)))
    x = m.input((*m.dims[:2], *(size + 1 for size in m.dims[2:])))
    return np.lib.stride_tricks.sliding_window_view(x, (2,) * len(axes), axes)


def _max_pool(m: Maker) -> tuple[Any, Array]:
    windows = _windows(m)
    return MaxPool(kernel_shape=(2,) * (len(m.dims) - 2)), windows.max(tuple(range(len(m.dims), windows.ndim)))


def _average_pool(m: Maker) -> tuple[Any, Array]:
    windows = _windows(m)
    return AveragePool(kernel_shape=(2,) * (len(m.dims) - 2)), windows.mean(tuple(range(len(m.dims), windows.ndim)))


def _global_average_pool(m: Maker) -> tuple[Any, Array]:
    x = m.input((*m.dims[:2], *(size + 2 for size in m.dims[2:])))
    return GlobalAveragePool(), x.mean(tuple(range(2, x.ndim)), keepdims=True)


def _reduction(m: Maker) -> tuple[Any, Array]:
    """Over all axes in which the result has one element."""
    axes = tuple(axis for axis, size in enumerate(m.dims) if size == 1)
    x = m.input(tuple(4 if axis in axes else size for axis, size in enumerate(m.dims)))
    m.inputs.append(m.b.given(np.array(axes, np.int64)))
    return ReduceMean(), x.mean(axes, keepdims=True)


def _reduction_without_axis(m: Maker) -> tuple[Any, Array]:
    """Over an axis that the result lacks: the last but one."""
    axis = len(m.dims) - 1
    x = m.input((*m.dims[:axis], 4, *m.dims[axis:]))
    m.inputs.append(m.b.given(np.array([axis], np.int64)))
    return ReduceMean(keepdims=0), x.mean(axis)


def _softmax(m: Maker) -> tuple[Any, Array]:
    powers = np.exp(m.input(m.dims))
    return Softmax(axis=-1), powers / powers.sum(-1, keepdims=True)


def _normalised(x: Array, axes: tuple[int, ...]) -> Array:
    deviation = x - x.mean(axes, keepdims=True)
    return deviation / np.sqrt((deviation**2).mean(axes, keepdims=True) + EPSILON)


def _layer_normalization(m: Maker) -> tuple[Any, Array]:
    x = _normalised(m.input(m.dims), (-1,))
    return LayerNormalization(epsilon=EPSILON), x * m.constant(m.dims[-1:]) + m.constant(m.dims[-1:])


def _group_normalization(m: Maker) -> tuple[Any, Array]:
    """One group."""
    x = _normalised(m.input(m.dims), tuple(range(1, len(m.dims))))
    scale, bias = (m.along(1, m.constant(m.dims[1:2])) for _ in range(2))
    return GroupNormalization(num_groups=1, epsilon=EPSILON), x * scale + bias


def _instance_normalization(m: Maker) -> tuple[Any, Array]:
    x = _normalised(m.input(m.dims), tuple(range(2, len(m.dims))))
    scale, bias = (m.along(1, m.constant(m.dims[1:2])) for _ in range(2))
    return InstanceNormalization(epsilon=EPSILON), x * scale + bias


def _batch_normalization(m: Maker) -> tuple[Any, Array]:
    x = m.input(m.dims)
    scale, bias, mean = (m.along(1, m.constant(m.dims[1:2])) for _ in range(3))
    variance = m.along(1, m.constant(m.dims[1:2], 0.5))
    return BatchNormalization(epsilon=EPSILON), (x - mean) / np.sqrt(variance + EPSILON) * scale + bias


def _resize(m: Maker) -> tuple[Any, Array]:
    """Of single elements, which is a copy where the result has single ones too."""
    x = m.input((*m.dims[:2], *(1 for _ in m.dims[2:])))
    m.inputs += ["", "", m.b.given(np.array(m.dims, np.int64))]
    return Resize(mode="nearest"), np.broadcast_to(x, m.dims)


HEADS: dict[str, tuple[Head, range]] = {
    "sub": (_sub, range(1, 6)),
    "sum": (_sum, range(1, 6)),
    "tanh": (_tanh, range(1, 6)),
    "conv": (_conv, range(3, 6)),
    "depthwise": (_depthwise, range(3, 6)),
    "conv_transpose": (_conv_transpose, range(3, 6)),
    "mat_mul": (_mat_mul, range(2, 6)),
    "mat_mul of stacks": (_mat_mul_of_stacks, range(2, 6)),
    "gemm": (_gemm, range(2, 3)),
    "max_pool": (_max_pool, range(3, 6)),
    "average_pool": (_average_pool, range(3, 6)),
    "global_average_pool": (_global_average_pool, range(3, 6)),
    "reduction": (_reduction, range(1, 6)),
    "reduction without axis": (_reduction_without_axis, range(1, 5)),
    "softmax": (_softmax, range(1, 6)),
    "layer_normalization": (_layer_normalization, range(2, 6)),
    "group_normalization": (_group_normalization, range(3, 6)),
    "instance_normalization": (_instance_normalization, range(3, 6)),
    "batch_normalization": (_batch_normalization, range(2, 6)),
    "resize": (_resize, range(3, 6)),
}
WITH_SECOND = ("sub", "sum")
ONE_BY_ONE = ("global_average_pool",)
OVER_ONES = ("reduction",)


@dataclass(frozen=True)
class Case:
    """The shapes of a result, of the operator's second operand and of the post-op's operand; `kind` is the post-op."""

    dims: Dims
    second: Dims
    operand: Dims
    kind: str

    def add(self, b: Any, head: Head) -> None:
        """Attach the operator and its post-op to the model."""
        maker = Maker(b, self.dims, self.second)
        op, value = head(maker)
        assert value.shape == self.dims
        array = b.rng.uniform(0.5, 2, self.operand).astype(np.float32)
        # As a constant for one half of the cases: devices may prepare it.
        name = b.given(array) if sum(self.operand) % 2 else self._fed(b, array)
        chain = PostOps()
        if self.kind == "sum":
            chain.append_sum(name, 0.5)
        elif self.kind == "prelu":
            chain.append_prelu(name)
        else:
            chain.append_binary(self.kind, name)
        b.attach(chain, op, maker.inputs, value, str(self))

    @staticmethod
    def _fed(b: Any, array: Array) -> str:
        name = b.input(*array.shape)
        b.feeds[name] = b.values[name] = array
        return str(name)


def _broadcasts(dims: Dims) -> Iterator[Dims]:
    """All shapes of the same rank that broadcast to these."""
    return product(*((1,) if size == 1 else (1, size) for size in dims))


def _cases(name: str, rank: int) -> list[Case]:
    sizes = [(1, 2, 3)] * 2 + [(1,) if name in ONE_BY_ONE else (1, 2, 3)] * 3
    found = []
    for dims in product(*sizes[:rank]):
        if name in OVER_ONES and 1 not in dims:
            continue
        seconds = [*_broadcasts(dims)] if name in WITH_SECOND else [dims]
        for second, operand, kind in product(seconds, _broadcasts(dims), KINDS):
            if kind != "sum" or operand == dims:
                found.append(Case(dims, second, operand, kind))
    return found


def _shorter(case: Case) -> Case:
    """The same with an operand without its leading ones."""
    first = next((at for at, size in enumerate(case.operand) if size > 1), len(case.operand))
    return Case(case.dims, case.second, case.operand[first:], case.kind)


def _chosen(name: str, rank: int, rng: np.random.Generator) -> list[Case]:
    cases = _cases(name, rank)
    if EXHAUSTIVE:
        return cases
    picked = [cases[at] for at in rng.choice(len(cases), min(SAMPLE, len(cases)), replace=False)]
    return [_shorter(case) if case.kind != "sum" and at % 2 else case for at, case in enumerate(picked)]


@pytest.mark.parametrize("name", HEADS)
def test_operands_of_all_shapes(core: dovetail.Core, device: str, name: str) -> None:
    head, ranks = HEADS[name]
    rng = np.random.default_rng([int(os.environ.get("DOVETAIL_SEED", "0")), sum(map(ord, name))])
    cases = [case for rank in ranks for case in _chosen(name, rank, rng)]
    assert cases
    for start in range(0, len(cases), TOGETHER):
        b = Bench(rng)
        for case in cases[start : start + TOGETHER]:
            case.add(b, head)
        b.check(core, device, fusion=True)


@pytest.mark.parametrize("name", ["sub", "sum", "group_normalization", "resize"])
@pytest.mark.parametrize("rank", [3, 4])
def test_one_element_in_each_channel(core: dovetail.Core, device: str, name: str, rank: int) -> None:
    """A number for each channel, where the channels of one item are adjacent."""
    b = Bench(np.random.default_rng(rank))
    rest = (1,) * (rank - 2)
    for batch, channels, operand in product((1, 3), (2, 17), ("channel", "item", "both")):
        dims = {"channel": (1, channels), "item": (batch, 1), "both": (batch, channels)}[operand]
        for second in {(1, channels, *rest), (batch, channels, *rest), (1, 1, *rest)}:
            Case((batch, channels, *rest), second, (*dims, *rest), "div").add(b, HEADS[name][0])
    b.check(core, device, fusion=True)


def test_a_quotient_of_each_channel(core: dovetail.Core, device: str) -> None:
    """By hand: (0 1 2 / 3 4 5 minus 1) divided by 1 2 4."""
    g = dovetail.GraphBuilder()
    a, c = g.input("a", "float32", (2, 3, 1, 1)), g.input("c", "float32", (1, 3, 1, 1))
    y = g.node(Div(), g.node(Sub(), a, g.constant(np.float32(1))), c)
    x, divisor = np.arange(6, dtype=np.float32).reshape(2, 3, 1, 1), np.float32([1, 2, 4]).reshape(1, 3, 1, 1)
    with core.compile_model(g.model([y]), device) as compiled:
        assert compiled({"a": x, "c": divisor})[y].ravel().tolist() == [-1, 0, 0.25, 2, 1.5, 1]
