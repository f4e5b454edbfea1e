"""Shared by operators that run sub-graphs."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dovetail.op import Graph, OperatorError, RunGraph, TensorType, TypesOf, one_of
from dovetail_ops_onnx._types import Array

__all__ = ["check_arguments", "check_outputs", "last_types", "repeated_types", "stacked"]


def check_arguments(body: Graph, inputs: int, outputs: int) -> None:
    """Raise `OperatorError` unless the body takes `inputs` values and gives at least `outputs`."""
    if len(body.inputs) != inputs or len(body.outputs) < outputs:
        raise OperatorError(
            f"the body takes {len(body.inputs)} and gives {len(body.outputs)} values",
            hint=f"accepted: a body that takes {inputs} and gives at least {outputs}",
        )


def check_outputs(given: int, count: int) -> None:
    """Raise `OperatorError` for a node with more outputs than the `given` ones of its sub-graph."""
    if count > given:
        raise OperatorError(
            f"the node has {count} outputs, its sub-graph gives {given}", hint=f"accepted: at most {given} outputs"
        )


def last_types(run: RunGraph, body: Graph, first: int, arguments: Sequence[Any] | None) -> Sequence[TensorType | None]:
    """The types of the body's outputs from number `first` on, for such arguments; None for each without `arguments`."""
    return [None] * len(body.outputs[first:]) if arguments is None else run.types(body, arguments)[first:]


def repeated_types(
    types: TypesOf,
    body: Graph,
    fixed: Sequence[TensorType],
    state: Sequence[TensorType | None],
    slices: Sequence[TensorType | None],
) -> tuple[list[TensorType | None], list[TensorType | None]]:
    """The types of the state after any number of iterations, and of the values to stack; sizes that change are open."""
    given, start = [one_of(t, t) for t in state], 1 if fixed else 0  # values change; a Loop has a condition in front
    found = [*types(body, (*fixed, *given, *slices))][start:]
    after = [one_of(a, b) for a, b in zip(given, found, strict=False)]
    if after != given:
        found = [*types(body, (*fixed, *after, *slices))][start:]
    return after, found[len(given) :]


def stacked(values: Sequence[Array] | Array, axis: int, kind: TensorType | None) -> Array:
    """The values along a new axis, of a list or of axis 0 of an array.

    Without values an empty array of this type, open dimensions being 0.
    """
    if isinstance(values, np.ndarray):
        return values if axis == 0 else np.moveaxis(values, 0, _checked(axis, values.ndim))
    if values:
        shapes = {v.shape for v in values}
        if len(shapes) > 1:
            raise OperatorError(f"the body gives values of different shapes to stack: {sorted(shapes)}")
        _checked(axis, values[0].ndim + 1)
        if axis == 0 and values[0].dtype.kind != "O":  # strings are objects, which may be arrays for it
            return np.array(values)  # in a third of the time of np.stack
        return np.stack(values, axis)
    dtype = np.dtype(np.float32) if kind is None else kind.dtype.numpy
    dims = [d if isinstance(d, int) else 0 for d in kind.shape or ()] if kind is not None else []
    dims.insert(axis if axis >= 0 else len(dims) + 1 + axis, 0)
    return np.empty(dims, dtype)


def _checked(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise OperatorError(f"the axis to stack along is {axis}; accepted: {-rank} to {rank - 1}")
    return axis
