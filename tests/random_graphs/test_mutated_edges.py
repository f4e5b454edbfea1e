"""Random graphs with edges changed at random: run, or refused with an error of dovetail."""

import os
from collections import Counter

import numpy as np
import pytest
from onnx import ModelProto
from random_graphs.generator import generate

import dovetail
from dovetail.errors import DovetailError

GRAPHS = int(os.environ.get("DOVETAIL_MUTATIONS", "40"))
CHANGES = 5
"""Mutated copies of each graph."""

SEED = int(os.environ.get("DOVETAIL_SEED", "2026"))
CORE = dovetail.Core()


def _changed(model: ModelProto, rng: np.random.Generator) -> ModelProto:
    """A copy with inputs and outputs of nodes exchanged, left out, doubled or cut off."""
    copy = ModelProto.FromString(model.SerializeToString())
    names = [name for node in copy.graph.node for name in (*node.input, *node.output)]
    for _ in range(int(rng.integers(1, 4))):
        node = copy.graph.node[int(rng.integers(len(copy.graph.node)))]
        edges = node.input if rng.integers(3) else node.output
        kind = int(rng.integers(4))
        if kind == 0 and edges:
            edges[int(rng.integers(len(edges)))] = str(rng.choice(names))
        elif kind == 1 and edges:
            edges[int(rng.integers(len(edges)))] = ""
        elif kind == 2:
            edges.append(str(rng.choice(names)) if edges is node.input else f"more{rng.integers(100)}")
        elif edges:
            del edges[-1]
    return copy


@pytest.mark.filterwarnings("ignore")  # of NumPy, in the code of the peers
def test_changed_edges() -> None:
    rng = np.random.default_rng(SEED)
    unchanged = Counter[str]()
    changed = Counter[str]()
    for _ in range(GRAPHS):
        graph = generate(int(rng.integers(2**31)))
        model, feeds = graph.model(), dict(graph.inputs)
        unchanged[_outcome(model, feeds)] += 1
        changed.update(_outcome(_changed(model, rng), feeds) for _ in range(CHANGES))
    assert unchanged["foreign"] == changed["foreign"] == 0
    # Few changes leave a graph that runs, in some samples none: what is refused must be so because of the change.
    assert unchanged["ran"] > GRAPHS / 2
    assert changed["refused"] > GRAPHS


def _outcome(model: ModelProto, feeds: dict[str, np.ndarray]) -> str:
    """Anything but a DovetailError passes through; one that reports an exception of another kind is foreign."""
    try:
        with CORE.compile_model(
            CORE.read_model(model.SerializeToString(), format="onnx"), "NUMPY", {"TIME_LIMIT": 20}
        ) as compiled:
            compiled(feeds)
    except DovetailError as error:
        return "foreign" if "the operator raised" in str(error) else "refused"
    return "ran"
