"""Random graphs whose nodes devices fuse, because only what no node reads, and a few other values, are outputs.

`DOVETAIL_TEST_DEVICES=OPENCL.0` names other devices than NUMPY and ONEDNN, and `DOVETAIL_SEED` changes the graphs.
"""

import os

import numpy as np
import pytest
from numpy.typing import NDArray
from random_graphs.graph import RandomGraph, written
from random_graphs.smooth import FLOAT, OPERATORS, generate_smooth, recomputed

import dovetail

GRAPHS = 150
BATCH = 30
"""Graphs of one test."""

SEED = int(os.environ.get("DOVETAIL_SEED", "0")) * GRAPHS
DEVICES = os.environ.get("DOVETAIL_TEST_DEVICES", "NUMPY,ONEDNN").split(",")
TOLERANCE = 2e-4
"""Relative to the greatest magnitude of the expected numbers and 0.1."""

CORE = dovetail.Core(config=False)


def error(got: NDArray[np.generic], want: NDArray[np.generic]) -> float:
    """The greatest error in units of the tolerance; whole numbers, such as places of a maximum, count as equal or not."""
    if got.shape != want.shape or got.dtype != want.dtype or not np.all(np.isfinite(got)):
        return np.inf
    wide = want.astype(np.float64)
    return float(np.abs(got - wide).max(initial=0) / (TOLERANCE * max(0.1, np.abs(wide).max(initial=0))))


def changes(graph: RandomGraph) -> dict[str, float]:
    """How much each value changes where the graph's inputs and constants move by a few roundings."""
    rng = np.random.default_rng(graph.seed)
    given = {**graph.inputs, **graph.constants}
    factors = {n: 1 + 1e-6 * rng.standard_normal(a.shape) for n, a in given.items() if a.dtype == FLOAT}
    moved = recomputed(graph, {n: (a * factors[n]).astype(FLOAT) if n in factors else a for n, a in given.items()})
    return {name: error(moved[name], array) for name, array in recomputed(graph, given).items()}


def differences(graph: RandomGraph, device: str) -> list[str]:
    """The outputs that differ by more than the tolerance, and by more than roundings of the inputs change them."""
    rng = np.random.default_rng(graph.seed)
    inside = [n for node in graph.nodes for n in written(node) if n not in graph.unread]
    names = [*graph.unread, *(n for n in inside if rng.random() < 0.15)]
    model = CORE.read_model(graph.model(names).SerializeToString(), format="onnx")
    with CORE.compile_model(model, device) as compiled:
        found = dict(compiled(dict(graph.inputs)).items())
    errors = {name: error(found[name], graph.values[name]) for name in names}
    if max(errors.values(), default=0) <= 1:
        return []
    least = changes(graph)
    return [f"{name}: {errors[name]:.3g} times the tolerance" for name in names if errors[name] > max(1, 10 * least[name])]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("first", range(SEED, SEED + GRAPHS, BATCH))
def test_outputs_agree_with_onnxruntime(first: int, device: str) -> None:
    found = {seed: differences(generate_smooth(seed), device) for seed in range(first, first + BATCH)}
    assert not {seed: texts for seed, texts in found.items() if texts}


def test_the_operators_of_the_graphs() -> None:
    """Each of them makes nodes, and what can be fused is there: values that one node reads."""
    graphs = [generate_smooth(seed) for seed in range(60)]
    found = {node.op_type for graph in graphs for node in graph.nodes}
    assert found <= {*OPERATORS}
    assert len(found) > 0.9 * len(OPERATORS)


def test_a_wrong_value_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = generate_smooth(3)
    assert not differences(graph, "NUMPY")
    name = next(name for name in graph.unread if graph.values[name].size and graph.values[name].dtype == FLOAT)
    monkeypatch.setitem(graph.values, name, graph.values[name] + np.float32(1))
    assert differences(graph, "NUMPY")
