"""Type inference and constant folding, in one walk: shapes depend on values, and values can only be computed once typed."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import DataDependentShape, OperatorError, OutOfMemory
from dovetail.graph.dtype import DType
from dovetail.graph.model import Graph, Node
from dovetail.graph.types import TensorType, as_constant
from dovetail.passes._context import node_context
from dovetail.passes.schedule import schedule

__all__ = ["FOLD_BUDGET", "check_sizes", "fold_constants", "infer_node", "run_reference"]

FOLD_BUDGET = 64 << 20
"""Bytes of new constants that one graph may get on top of four times those it has: a small file must not unfold to gigabytes."""


def fold_constants(graph: Graph, budget: int = FOLD_BUDGET, limit: int | None = None) -> Graph:
    """The graph in schedule order with the type of every value, and without the nodes whose results are known already.

    All inputs must have static types. Folded results become constants. `limit` is the greatest size in bytes that a single
    value may have. Raises `OperatorError` or `ShapeError` naming the node, and `OutOfMemory` for a value over the limit.
    """
    graph = schedule(graph)
    types, constants, kept = dict(graph.types), dict(graph.constants), []
    room = budget + 4 * sum(array.nbytes for array in constants.values())
    for node in graph.nodes:
        inputs = [types[name] if name else None for name in node.inputs]
        outputs = infer_node(node, inputs)
        _check_limit(node, outputs, limit)
        size = sum(t.nbytes for t in outputs)
        folded = _fold(node, outputs, constants) if size <= room else None
        if folded is None:
            kept.append(node)
        else:
            outputs = tuple(TensorType.of(array, known=True) for array in folded)
            constants.update(zip(node.writes, folded, strict=True))
            room -= size
        types.update(zip(node.writes, outputs, strict=True))
    return graph.replace(nodes=tuple(kept), constants=constants, types=types)


def infer_node(node: Node, inputs: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
    """The types of the outputs that are present. Raises `OperatorError` or `ShapeError` naming the node."""
    with node_context(node, inputs):
        node.op.check(inputs, len(node.outputs))
        padded = [*inputs, *[None] * (len(node.op.inputs) - len(inputs))]
        given = node.op.infer(*padded)
        outputs = given if isinstance(given, tuple) else (given,)
        exact = bool(node.op.outputs) and node.op.outputs[-1].variadic
        if len(outputs) < len(node.outputs) or (exact and len(outputs) > len(node.outputs)):
            raise OperatorError(f"infer() gave {len(outputs)} output types, the node has {len(node.outputs)} outputs")
        present = [t for name, t in zip(node.outputs, outputs, strict=False) if name]
        for t in present:
            if not t.is_static:
                raise DataDependentShape(
                    f"an output shape {t} depends on the data", hint="this version plans for shapes known from the inputs"
                )
        return tuple(present)


def check_sizes(graph: Graph, limit: int) -> None:
    """Raise `OutOfMemory` naming the node for a value of more than `limit` bytes. Needs types."""
    for node in graph.nodes:
        _check_limit(node, [graph.types[name] for name in node.writes], limit)


def _check_limit(node: Node, outputs: Sequence[TensorType], limit: int | None) -> None:
    for t in outputs:
        if limit is not None and t.nbytes > limit:
            raise OutOfMemory(
                f"node {node} asks for a tensor {t} of {t.nbytes:,} bytes; the limit is {limit:,}",
                hint="raise it with the property MEMORY_LIMIT (bytes) if the machine has that much",
            )


def _fold(node: Node, outputs: Sequence[TensorType], constants: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]] | None:
    """The outputs, if inference already knows them or all inputs are constants."""
    known = [t.value for t in outputs if t.value is not None]
    if len(known) == len(outputs):
        return [as_constant(array) for array in known]
    if node.op.is_random or node.op.subgraphs or not (node.op.has_reference() or node.op.has_composition()):
        return None
    if any(name and name not in constants for name in node.inputs):
        return None
    values = [constants[name] if name else None for name in node.inputs]
    return [as_constant(array) for array in run_reference(node, values, outputs)]


def run_reference(node: Node, values: Sequence[NDArray[Any] | None], outputs: Sequence[TensorType]) -> list[NDArray[Any]]:
    """Run the operator's reference and check what it gives against the inferred types. Returns the outputs that are present."""
    padded = [*values, *[None] * (len(node.op.inputs) - len(values))]
    with node_context(node, [None if v is None else TensorType.of(v) for v in values]), np.errstate(all="ignore"):
        given = node.op.reference(*padded)
        given = given if isinstance(given, tuple) else (given,)
        present = [np.asarray(a) for name, a in zip(node.outputs, given, strict=False) if name]
        for array, expected in zip(present, outputs, strict=True):
            if DType.of(array.dtype) is not expected.dtype or array.shape != expected.shape:
                raise OperatorError(f"reference() gave {TensorType.of(array)}, infer() says {expected}")
    return present
