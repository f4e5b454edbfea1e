"""A case of an operator as a graph of one node, for the sweep in Oclgrind."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.device import Graph
from dovetail.graph import GraphBuilder
from dovetail.op import Operator
from dovetail.testing import Case


def single(case: Case, constants: tuple[int, ...]) -> tuple[Graph, list[NDArray[Any]]]:
    """A graph of one node, and the arrays for its inputs."""
    g, feeds, names = GraphBuilder(), [], []
    for index, array in enumerate(case.inputs):
        if array is not None and index not in constants:
            feeds.append(np.ascontiguousarray(array))
        names.append(_name(g, index, array, constants))
    outputs = max(1, len(case.expected)) if case.expected else len(_inferred(case.op, g, names))
    written = [f"y{i}" for i in range(outputs)]
    g.node(case.op, *names, outputs=written, name="node")
    graph = g.graph(written)
    types = dict(graph.types)
    types.update(zip(written, _inferred(case.op, g, names), strict=False))
    return graph.replace(types=types), feeds


def _name(g: GraphBuilder, index: int, array: NDArray[Any] | None, constants: tuple[int, ...]) -> str:
    if array is None:
        return ""
    return g.constant(array, name=f"x{index}") if index in constants else g.input(f"x{index}", array.dtype.name, array.shape)


def _inferred(op: Operator, g: GraphBuilder, names: Sequence[str]) -> tuple[Any, ...]:
    given = op.infer(*(g.type_of(name) if name else None for name in names))
    return given if isinstance(given, tuple) else (given,)


# --- tilings ---------------------------------------------------------------------------------------------------------------
