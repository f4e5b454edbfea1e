"""Types of a node's outputs from those of its inputs, and the limit on their size."""

import reprlib
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from dovetail.errors import DataDependentShape, OperatorError, OutOfMemory, ShapeError
from dovetail.evaluate.context import node_context
from dovetail.graph.dtype import DType
from dovetail.graph.graph import Graph, Node, Port
from dovetail.graph.types import MAX_RANK, TensorType
from dovetail.names import shortened

__all__ = ["check_limit", "check_sizes", "counted", "infer_node", "inferred", "least_bytes", "padded"]

T = TypeVar("T")


def padded(values: Sequence[T | None], ports: Sequence[Port]) -> list[T | None]:
    """`values` with None for each port at the end that has none; a variadic port may have none at all."""
    missing = len(ports) - len(values) - (bool(ports) and ports[-1].variadic)
    return [*values, *[None] * missing] if missing > 0 else [*values]


def infer_node(node: Node, inputs: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
    """The types of the outputs that are present, with static shapes.

    Raises `OperatorError` or `ShapeError` naming the node, `DataDependentShape` for a shape that is not known.
    """
    outputs = inferred(node, inputs)
    for t in outputs:
        if not t.is_static:
            with node_context(node, inputs):
                raise DataDependentShape(
                    f"an output shape {t} depends on the data", hint="such nodes are planned when they run, not before"
                )
    return outputs


def inferred(node: Node, inputs: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
    """As `infer_node`, with shapes that may depend on the data: where that is usual, an error takes longer than the node."""
    try:
        return _inferred(node, inputs)
    except (Exception, SystemExit):
        with node_context(node, inputs):  # here, because few raise
            raise


def _inferred(node: Node, inputs: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
    op, names = node.op, node.outputs
    op.check(inputs, len(names))
    given = op.infer(*padded(inputs, op.inputs))
    outputs = given if isinstance(given, tuple) else (given,)
    exact = bool(op.outputs) and op.outputs[-1].variadic
    if len(outputs) < len(names) or (exact and len(outputs) > len(names)):
        raise OperatorError(f"infer() gave {len(outputs)} output types, the node has {len(names)} outputs")
    for t in outputs:
        if not isinstance(t, TensorType) or not isinstance(t.dtype, DType):
            hint = "return a TensorType for each output, such as X.with_shape((2, 3)), or TensorType(DType.FLOAT32, (2, 3))"
            raise OperatorError(f"infer() gave {shortened(repr(given), 200)}", hint=hint)
    op.check_inferred(inputs, outputs)
    found = []
    for name, t in zip(names, outputs, strict=False):
        if name:
            plain = t if type(t.shape) is tuple and t.is_static else _with_plain_shape(t)
            if plain.shape and len(plain.shape) > MAX_RANK:
                raise ShapeError(f"output {name!r} has {len(plain.shape)} dimensions; accepted: at most {MAX_RANK}")
            found.append(plain)
    return tuple(found)


def _with_plain_shape(t: TensorType) -> TensorType:
    """The type with NumPy's whole numbers as plain ones. Raises `OperatorError` for a shape of anything else."""
    if t.shape is None:
        return t
    hint = "write a tuple of int, such as X.with_shape((X.shape[0] // 2, 3)); None for a dimension that depends on the data"
    if type(t.shape) is not tuple:
        raise OperatorError(f"infer() gave the shape {reprlib.repr(t.shape)}", hint=hint)
    for d in t.shape:
        if not (d is None or isinstance(d, str | np.integer) or type(d) is int):
            raise OperatorError(f"infer() gave the shape {reprlib.repr(t.shape)}, with the dimension {d!r}", hint=hint)
    if any(isinstance(d, np.integer) for d in t.shape):
        return t.with_shape(tuple([int(d) if isinstance(d, np.integer) else d for d in t.shape]))
    return t


def check_sizes(graph: Graph, limit: int) -> None:
    """Raise `OutOfMemory` naming the node for a value of more than `limit` bytes. Needs types."""
    for node in graph.nodes:
        check_limit(node, [graph.types[name] for name in node.writes], limit)


def least_bytes(t: TensorType) -> int:
    """The bytes of a tensor, with axes of size 0 counted as 1: what computes an empty tensor still works along its other axes."""
    return t.nbytes or TensorType(t.dtype, tuple(d or 1 for d in t.dims)).nbytes


def counted(t: TensorType) -> str:
    """The addition to a message about `least_bytes`."""
    return "" if t.nbytes else " (with 1 for the axes of size 0)"


def check_limit(node: Node, outputs: Sequence[TensorType], limit: int | None) -> None:
    """Raise `OutOfMemory` naming the node for an output of more than `limit` bytes, `ShapeError` for dimensions below 0."""
    if limit is None:
        return
    for t in outputs:
        nbytes = t.nbytes or least_bytes(t)
        if nbytes < 0:
            hint = "raise ShapeError for such inputs"
            raise ShapeError(f"node {node}: infer() gave {t}, which has a dimension below 0", hint=hint)
        if nbytes > limit:
            raise OutOfMemory(
                f"node {node} asks for a tensor {t} of {nbytes:,} bytes{counted(t)}; the limit is {limit:,}",
                hint="raise it with the property MEMORY_LIMIT (bytes) if the machine has that much",
            )
