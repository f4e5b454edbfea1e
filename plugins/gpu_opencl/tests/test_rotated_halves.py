"""Rotary embeddings written as x * c + (-x2, x1) * s: one launch on GPUs, against float64."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dovetail.device import Binary, Graph
from dovetail.graph import GraphBuilder
from dovetail.passes.constant_folding import fold_constants

DIMS = (2, 3, 5, 14)


def rotation(
    bench: Any,
    dims: tuple[int, ...] = DIMS,
    factors: tuple[tuple[int, ...], tuple[int, ...]] = ((14,), (14,)),
    *,
    dtype: str = "float32",
    split: bool = False,
    fused: str = "",
    negated: int = 1,
    kept: bool = False,
) -> Graph:
    """The graph; `fused` is the product that adds the other one, `negated` the half, `kept` makes a product an output."""
    g = GraphBuilder()
    x, half = g.input("x", dtype, dims), dims[-1] // 2
    c, s = (g.input(name, dtype, one) for name, one in zip("cs", factors, strict=True))
    if split:
        halves = g.node(bench.op("Split", axis=-1, num_outputs=2), x, outputs=2)
    else:
        bounds = [[g.constant([n], "int64") for n in (i, i + half, -1)] for i in (0, half)]
        halves = [g.node(bench.op("Slice"), x, *one) for one in bounds]
    turned = g.node(bench.op("Concat", axis=-1), g.node(bench.op("Neg"), halves[negated]), halves[1 - negated])
    if fused == "plain":
        other = g.node(bench.op("Mul"), s, turned)
        result = g.node(bench.op("Mul"), x, c, post_ops=[Binary("add", other)])
    elif fused:
        other = g.node(bench.op("Mul"), c, x)
        result = g.node(bench.op("Mul"), turned, s, post_ops=[Binary("add", other)])
    else:
        other = g.node(bench.op("Mul"), turned, s)
        result = g.node(bench.op("Add"), other, g.node(bench.op("Mul"), x, c))
    return fold_constants(g.graph([result, other] if kept else [result]))


def kinds(device: Any, graph: Graph) -> list[str]:
    return [node.op.op_type for node in device.lower(graph).nodes]


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("form", [{}, {"split": True}, {"fused": "plain"}, {"fused": "turned", "split": True}])
@pytest.mark.parametrize(
    ("dims", "factors"),
    [
        (DIMS, ((14,), (14,))),
        (DIMS, ((2, 1, 5, 14), (1, 1, 5, 14))),
        (DIMS, ((2, 3, 5, 1), (3, 1, 1))),
        ((1, 7, 1, 64), ((1, 1, 1, 64), (64,))),
        ((5, 6), ((5, 6), (6,))),
        ((0, 3, 5, 14), ((14,), (14,))),
    ],
)
def test_is_one_launch(
    dims: Any, factors: Any, form: Any, dtype: Any, kind_device: Callable[[str], Any], bench: Any, rng: np.random.Generator
) -> None:
    device, graph = kind_device("GPU"), rotation(bench, dims, factors, dtype=np.dtype(dtype).name, **form)
    assert kinds(device, graph) == ["RotatedHalves"]
    x, c, s = (rng.standard_normal(one).astype(dtype) for one in (dims, *factors))
    (found,) = bench.run(device, device.lower(graph), [x, c, s])
    one, two = np.split(x.astype(np.float64), 2, -1)
    wanted = x * c.astype(np.float64) + np.concatenate([-two, one], -1) * s
    np.testing.assert_allclose(found, wanted.astype(dtype), rtol=1e-5 if dtype == np.float32 else 2e-3, atol=1e-6)


@pytest.mark.parametrize(
    "changed",
    [
        {"negated": 0},
        {"kept": True},
        {"factors": ((14,), (4, 2, 3, 5, 14))},
        {"dims": (1, 1, 1, 1, 14)},
        {"factors": ((2, 3, 5, 14), (14,)), "dims": (1, 1, 5, 14)},
    ],
    ids=lambda changed: "-".join(changed),
)
def test_near_misses_stay(changed: dict[str, Any], kind_device: Callable[[str], Any], bench: Any) -> None:
    assert "RotatedHalves" not in kinds(kind_device("GPU"), rotation(bench, **changed))


def test_halves_that_are_read_elsewhere_are_kept(kind_device: Callable[[str], Any], bench: Any) -> None:
    """The rotation is one launch, the value that a model gives besides is made as before."""
    graph = rotation(bench)
    (turned,) = (node.writes[0] for node in graph.nodes if node.op.op_type == "Concat")
    found = kinds(kind_device("GPU"), graph.replace(outputs=(*graph.outputs, turned)))
    assert "RotatedHalves" in found
    assert "JoinedMoves" in found  # the halves, joined


def test_on_cpus_nodes_stay(kind_device: Callable[[str], Any], bench: Any) -> None:
    assert "RotatedHalves" not in kinds(kind_device("CPU"), rotation(bench))


def _pair(bench: Any, dims: tuple[int, ...], other: tuple[int, ...], factors: Any, *, read_between: bool = False) -> Graph:
    """Queries and keys that are turned by one pair of factors."""
    g = GraphBuilder()
    c, s = (g.input(name, "float32", one) for name, one in zip("cs", factors, strict=True))
    results = []
    for name, one in (("q", dims), ("k", other)):
        x = g.input(name, "float32", one)
        if read_between and results:
            x = g.node(bench.op("Add"), x, g.node(bench.op("ReduceSum"), results[0]))
        low, high = g.node(bench.op("Split", axis=-1, num_outputs=2), x, outputs=2)
        turned = g.node(bench.op("Concat", axis=-1), g.node(bench.op("Neg"), high), low)
        results.append(g.node(bench.op("Add"), g.node(bench.op("Mul"), turned, s), g.node(bench.op("Mul"), x, c)))
    return fold_constants(g.graph(results))


@pytest.mark.parametrize(
    ("dims", "other", "factors"),
    [((2, 8, 5, 14), (2, 3, 5, 14), ((5, 14), (14,))), ((1, 3, 1, 64), (1, 8, 1, 64), ((1, 1, 1, 64), (64,)))],
)
def test_queries_and_keys_are_one_launch(
    dims: Any, other: Any, factors: Any, kind_device: Callable[[str], Any], bench: Any, rng: np.random.Generator
) -> None:
    device, graph = kind_device("GPU"), _pair(bench, dims, other, factors)
    assert kinds(device, graph) == ["RotatedHalves"]
    given = {name: rng.standard_normal(graph.types[name].dims).astype(np.float32) for name in graph.inputs}
    found = bench.run(device, device.lower(graph), [*given.values()])
    for got, name in zip(found, "qk", strict=True):
        x = given[name].astype(np.float64)
        one, two = np.split(x, 2, -1)
        np.testing.assert_allclose(got, x * given["c"] + np.concatenate([-two, one], -1) * given["s"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("other", "read_between"), [((2, 3, 4, 14), False), ((2, 3, 5, 14), True)], ids=["other rows", "read between"]
)
def test_rotations_that_stay_apart(other: Any, read_between: bool, kind_device: Callable[[str], Any], bench: Any) -> None:
    graph = _pair(bench, (2, 8, 5, 14), other, ((14,), (14,)), read_between=read_between)
    assert kinds(kind_device("GPU"), graph).count("RotatedHalves") == 2
