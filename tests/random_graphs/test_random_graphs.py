"""300 random graphs: each node agrees with onnxruntime, onnx.reference or float64. More: `python tests/random_graphs/run.py`.

They run on NUMPY; `DOVETAIL_TEST_DEVICES=ONEDNN` names other devices, and `DOVETAIL_SEED` changes the graphs.
"""

import os
from collections import Counter

import numpy as np
import pytest
from onnx import helper
from random_graphs.comparison import Difference, compare
from random_graphs.generator import NEWEST, OLDEST, generate, operators
from random_graphs.graph import RandomGraph, read, written

import dovetail

GRAPHS = 300
BATCH = 30
"""Graphs of one test."""

LEAST = 120
"""Operators that the graphs of one run have between them."""

SEED = int(os.environ.get("DOVETAIL_SEED", "0")) * GRAPHS
DEVICES = os.environ.get("DOVETAIL_TEST_DEVICES", "NUMPY").split(",")

CORE = dovetail.Core()


@pytest.mark.filterwarnings("ignore")  # of NumPy, in the code of the peers
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("first", range(SEED, SEED + GRAPHS, BATCH))
def test_every_node_agrees_with_a_peer(first: int, device: str) -> None:
    compared: Counter[str] = Counter()
    found: list[tuple[int, Difference]] = []
    for seed in range(first, first + BATCH):
        outcome = compare(CORE, generate(seed), device)
        compared.update(outcome.compared)
        found += [(seed, difference) for difference in outcome.differences]
    assert not found, "\n".join(f"seed {seed} {'' if d.node is None else d.node.name}: {d.text}" for seed, d in found)
    assert compared.total() > 5 * BATCH


def test_the_operators_of_the_graphs() -> None:
    assert len(operators(NEWEST)) > LEAST
    assert {generate(seed).opset for seed in range(100)} > {OLDEST, NEWEST}


def test_a_seed_gives_the_same_graph() -> None:
    first, second = generate(7), generate(7)
    assert first.model().SerializeToString() == second.model().SerializeToString()
    assert [*first.inputs] == [*second.inputs]


def _wrong_graph() -> RandomGraph:
    """Relu, whose value the generator knows, before a node that does not exist."""
    x = np.array([-1, 2], np.float32)
    nodes = (
        helper.make_node("Relu", ["x"], ["v0"], name="Relu_0"),
        helper.make_node("Einsum", ["v0"], ["v1"], name="e", equation="ab"),
    )
    return RandomGraph(0, NEWEST, nodes, {"x": x}, {}, {"x": x, "v0": np.maximum(x, 0), "v1": x})


def test_an_error_is_a_difference_of_the_node_that_it_names() -> None:
    (difference,) = compare(CORE, _wrong_graph(), "NUMPY").differences
    assert difference.node is not None
    assert difference.node.name == "e"
    assert difference.text.startswith("DT202")


def test_leaving_out_a_node_makes_its_values_inputs() -> None:
    graph = _wrong_graph()
    smaller = graph.without(graph.nodes[0])
    assert [n.name for n in smaller.nodes] == ["e"]
    assert read(smaller.nodes[0]) == ["v0"]
    assert written(smaller.nodes[0]) == ["v1"]
    np.testing.assert_array_equal(smaller.inputs["v0"], [0, 2])


def test_a_wrong_value_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.array([-1, 2], np.float32)
    node = helper.make_node("Relu", ["x"], ["v0"], name="Relu_0")
    graph = RandomGraph(0, NEWEST, (node,), {"x": x}, {}, {"x": x, "v0": np.maximum(x, 0)})
    assert not compare(CORE, graph, "NUMPY").differences
    monkeypatch.setattr("random_graphs.comparison.run", lambda *_: {"v0": np.array([0, 2.5], np.float32)})
    (difference,) = compare(CORE, graph, "NUMPY").differences
    assert "output 0 at (1,) is np.float32(2.5), expected np.float32(2.0)" in difference.text
