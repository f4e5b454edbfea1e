"""Runs nodes by the NumPy references of their operators."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import OperatorError
from dovetail.evaluate.context import node_context
from dovetail.evaluate.inference import infer_node, padded
from dovetail.graph.dtype import DType
from dovetail.graph.graph import Node
from dovetail.graph.post_ops import Eltwise
from dovetail.graph.types import TensorType

__all__ = ["node_reference", "run_reference", "run_untyped", "with_post_ops"]


def run_reference(node: Node, values: Sequence[NDArray[Any] | None], outputs: Sequence[TensorType]) -> list[NDArray[Any]]:
    """Run the operator's reference and check what it gives against the inferred types. Returns the outputs that are present."""
    with node_context(node, (None if v is None else TensorType.of(v) for v in values)), np.errstate(all="ignore"):
        given = _given(node, values)
        present = [np.asarray(a) for name, a in zip(node.outputs, given, strict=False) if name]  # trailing ones may be left out
        for array, expected in zip(present, outputs, strict=True):
            if array.ndim == 0 and array.item() is None:
                raise OperatorError("reference() gave None", hint="return an array for each output")
            if DType.of(array.dtype) is not expected.dtype or array.shape != expected.shape:
                raise OperatorError(f"reference() gave {TensorType.of(array)}, infer() says {expected}")
    return present


def run_untyped(node: Node, values: Sequence[Any]) -> list[Any]:
    """Run the reference of an operator whose output shapes depend on data, or that takes sequences (lists), maps (dicts) or None.

    Returns the outputs that are present. Types of arrays are those that the operator accepts. Raises as `run_reference` does.
    """
    with node_context(node, (TensorType.of(v) if isinstance(v, np.ndarray) else None for v in values)), np.errstate(all="ignore"):
        given = _given(node, values)
    contained = (list, dict, type(None))
    # A node may leave out trailing outputs; too few were refused above.
    return [v if isinstance(v, contained) else np.asarray(v) for n, v in zip(node.outputs, given, strict=False) if n]


def _given(node: Node, values: Sequence[Any]) -> tuple[Any, ...]:
    """The result of the reference, at least as many outputs as the node has."""
    given = node.op.reference(*padded(values, node.op.inputs))
    given = given if isinstance(given, tuple) else (given,)
    if len(given) < len(node.outputs):
        raise OperatorError(f"reference() gave {len(given)} outputs, the node has {len(node.outputs)}")
    return given


def node_reference(node: Node, values: Sequence[NDArray[Any] | None], operands: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """The outputs that are present, by the operator's reference and its post-ops, each step rounded to its type.

    `values` are the inputs, None for those left out, `operands` what the post-ops read. Raises as `run_reference` does.
    """
    types = infer_node(node, [None if v is None else TensorType.of(v, known=True) for v in values])
    results = run_reference(node, values, types)
    return with_post_ops(node, results, dict(zip(node.operands, operands, strict=True)))


def with_post_ops(node: Node, results: Sequence[Any], values: Mapping[str, Any]) -> list[Any]:
    """The outputs of a node that are present, with its post-ops applied to the first; `values` has their operands."""
    if not node.post_ops:
        return list(results)
    from dovetail.evaluate.post_ops import apply_post_op  # here, because devices compute most of them

    first, *others = results
    with node_context(node), np.errstate(all="ignore"):
        for post_op in node.post_ops:
            first = apply_post_op(post_op, first, None if isinstance(post_op, Eltwise) else values[post_op.operand])
    return [first, *others]
