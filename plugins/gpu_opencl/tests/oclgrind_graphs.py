"""A case of an operator as a graph of one node, and a tree of elementwise nodes, for the sweep in Oclgrind."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.device import Binary, Eltwise, Graph
from dovetail.graph import GraphBuilder
from dovetail.op import Operator
from dovetail.testing import Case, KernelBench
from dovetail_ops_onnx import find


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


def fused(dims: tuple[int, ...], reader: str) -> Graph:
    """tanh(a * s + b) * s, and what the operator `reader` makes of it along axis 2."""

    def standard(name: str) -> Operator:
        op = find(name, 24)
        assert op is not None
        return op()

    g = GraphBuilder()
    a, b, s = (g.input(name, "float32", shape) for name, shape in zip("abs", (dims, dims[1:], (dims[0], 1, 1)), strict=True))
    total = g.node(standard("Add"), g.node(standard("Mul"), a, s), b, post_ops=[Eltwise("tanh"), Binary("mul", s)])
    axis = g.constant(2, "int64") if reader == "CumSum" else g.constant([2], "int64")
    return KernelBench.typed(g.graph([g.node(standard(reader), total, axis) if reader else total]))


def _name(g: GraphBuilder, index: int, array: NDArray[Any] | None, constants: tuple[int, ...]) -> str:
    if array is None:
        return ""
    return g.constant(array, name=f"x{index}") if index in constants else g.input(f"x{index}", array.dtype.name, array.shape)


def _inferred(op: Operator, g: GraphBuilder, names: Sequence[str]) -> tuple[Any, ...]:
    given = op.infer(*(g.type_of(name) if name else None for name in names))
    return given if isinstance(given, tuple) else (given,)


# --- tilings ---------------------------------------------------------------------------------------------------------------
