"""Sum, Mean, Max and Min of more inputs than there are letters, and than one launch takes; chains with many operands."""

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import pytest

from dovetail.device import Binary, Reason, TypedNode

pytestmark = pytest.mark.exhaustive(0.06)  # each test compiles programs

KINDS = pytest.mark.parametrize("kind", ["CPU", "GPU"])
COUNTS = pytest.mark.parametrize("count", [1, 14, 15, 16, 24, 25, 47, 48, 130])
SHAPES = [(3, 1, 37), (1, 5, 1), (37,), (3, 5, 37)]
"""Broadcast to one another, in turn."""


def arrays(rng: np.random.Generator, count: int, dtype: Any) -> list[Any]:
    return [(rng.standard_normal(SHAPES[(i + 3) % 4]) * 9).astype(dtype) for i in range(count)]


def wide(inputs: list[Any], combine: Callable[[Any, Any], Any]) -> Any:
    return reduce(combine, (np.asarray(x, np.float64) for x in inputs))


@KINDS
@COUNTS
def test_sum_and_mean(count: int, kind: str, kind_device: Callable[[str], Any], bench: Any, rng: np.random.Generator) -> None:
    inputs = arrays(rng, count, np.float32)
    expected = wide(inputs, np.add)
    for name, want in (("Sum", expected), ("Mean", expected / count)):
        found = bench.run(kind_device(kind), *bench.single(bench.op(name), inputs))[0]
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-4)


@KINDS
@COUNTS
@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.uint64])
def test_max_and_min(count: int, dtype: Any, kind: str, kind_device: Any, bench: Any, rng: np.random.Generator) -> None:
    inputs = [np.abs(x).astype(dtype) for x in arrays(rng, count, np.float32)]
    for name, combine in (("Max", np.maximum), ("Min", np.minimum)):
        found = bench.run(kind_device(kind), *bench.single(bench.op(name), inputs))[0]
        np.testing.assert_array_equal(found, reduce(combine, inputs))


@KINDS
def test_halves_are_rounded_once(kind: str, kind_device: Any, bench: Any) -> None:
    """A half has 11 bits: 2048 + 1 is 2048 in it, and 29 ones that are added one by one would be lost."""
    inputs = [np.full((130,), value, np.float16) for value in (2048, *[1] * 29)]
    found = bench.run(kind_device(kind), *bench.single(bench.op("Sum"), inputs))[0]
    np.testing.assert_array_equal(found, np.full(130, np.float16(2077)))


def test_a_chain_after_many_inputs(device: Any, bench: Any, rng: np.random.Generator) -> None:
    """The post-op is applied once, at the end of the last launch."""
    inputs, factor = arrays(rng, 50, np.float32), rng.standard_normal((1, 5, 1)).astype(np.float32)
    graph, feeds = bench.single(bench.op("Sum"), inputs, post_ops=[Binary("mul", "f")], operands={"f": factor})
    found = bench.run(device, graph, feeds)[0]
    np.testing.assert_allclose(found, wide(inputs, np.add) * factor, rtol=1e-5, atol=1e-4)


def test_nothing_to_compute(device: Any, bench: Any) -> None:
    graph, feeds = bench.single(bench.op("Sum"), [np.ones((0, 3), np.float32)] * 40)
    assert bench.run(device, graph, feeds)[0].shape == (0, 3)


@pytest.mark.parametrize("count", [64, 65])
def test_operands_of_a_chain(count: int, device: Any, bench: Any) -> None:
    """More than a kernel may have arguments for are refused, so that the fusion pass ends the chain there."""
    x, names = np.ones((2, 3), np.float32), [f"o{i}" for i in range(count)]
    post_ops, operands = [Binary("add", name) for name in names], dict.fromkeys(names, x)
    graph, feeds = bench.single(bench.op("Exp"), [0 * x], post_ops=post_ops, operands=operands)
    answer = device.supports(TypedNode.of(graph.nodes[0], graph))
    if count > 64:
        assert (answer.reason, answer.detail) == (Reason.POST_OP, "the chain has 65 operands; accepted: at most 64")
    else:
        np.testing.assert_array_equal(bench.run(device, graph, feeds)[0], x * (1 + count))
