"""Evaluates a graph by the references of its operators, for tests that compare a graph with the one that a pass made of it."""

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from dovetail.evaluate.inference import infer_node
from dovetail.evaluate.reference import run_reference
from dovetail.graph import Graph


def evaluated(graph: Graph, feeds: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
    """The outputs. Each value has the data type that the graph gives it."""
    known = {**graph.constants, **feeds}
    for node in graph.nodes:
        given = [known[name] if name else None for name in node.inputs]
        types = [None if v is None else graph.types[n] for n, v in zip(node.inputs, given, strict=True)]
        known.update(zip(node.writes, run_reference(node, given, infer_node(node, types)), strict=True))
        for name in node.writes:
            assert known[name].dtype == graph.types[name].dtype.numpy, f"{node}: {name} is {known[name].dtype}"
    return [known[name] for name in graph.outputs]
