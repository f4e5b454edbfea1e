"""Scan: https://onnx.ai/onnx/operators/onnx__Scan.html."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dovetail.op import Graph, Operator, OperatorError, RunGraph, TensorType, TypesOf
from dovetail_ops_onnx._control import check_arguments, check_outputs, last_types, repeated_types, stacked
from dovetail_ops_onnx._types import Array


class Scan_8(Operator):
    """The batched form: axis 0 of every value is the batch, axis 1 of scanned ones the time; sequences may end early."""

    inputs = ("sequence_lens?: int64", "initial_state_and_scan_inputs*")
    outputs = ("final_state_and_scan_outputs*",)
    since = 8
    body: Graph
    num_scan_inputs: int
    directions: tuple[int, ...] = ()

    def check_outputs(self, count: int) -> None:
        """Raise `OperatorError` unless the body gives `count` values or more."""
        check_outputs(len(self.body.outputs), count)

    def control(self, run: RunGraph, lengths: Any, *values: Any) -> Any:
        """Final states, then stacked values, filled up with zeros after the end of shorter sequences."""
        count = len(values) - self.num_scan_inputs
        _check_count(count, values, self.body)
        directions = _per_value(self.directions, self.num_scan_inputs, "directions")
        given = [*(v.shape[1:] for v in values[:count]), *(v.shape[2:] for v in values[count:])]
        runs = len(values[0]) and np.all(values[count].shape[1] if lengths is None else lengths)
        one = None if runs else [np.zeros(shape, v.dtype) for shape, v in zip(given, values, strict=True)]
        types = last_types(run, self.body, count, one)
        if not len(values[0]):  # nothing runs: states are as given
            empty = [stacked([], 0, t) for t in types]
            time = values[count].shape[1]
            return (*values[:count], *(np.empty((0, time, *e.shape[1:]), e.dtype) for e in empty))
        rows = []
        for row in range(len(values[0])):
            scanned = [v[row] for v in values[count:]]
            length = scanned[0].shape[0] if lengths is None else int(lengths[row])
            cut = [_turned(v[:length], 0, d) for v, d in zip(scanned, directions, strict=True)]
            state, stacks = _scanned(run, self.body, [v[row] for v in values[:count]], cut)
            outputs = [stacked(s, 0, t) for s, t in zip(stacks, types, strict=True)]
            full = scanned[0].shape[0]
            rows.append([*state, *(np.pad(o, [(0, full - len(o)), *[(0, 0)] * (o.ndim - 1)]) for o in outputs)])
        return tuple(np.stack(column) for column in zip(*rows, strict=True))


class Scan(Operator):
    """Runs the body once for each slice of the scanned inputs, carrying states and stacking what it gives."""

    inputs = ("initial_state_and_scan_inputs*",)
    outputs = ("final_state_and_scan_outputs*",)
    since = 9
    body: Graph
    num_scan_inputs: int
    scan_input_axes: tuple[int, ...] = ()
    scan_input_directions: tuple[int, ...] = ()
    scan_output_axes: tuple[int, ...] = ()
    scan_output_directions: tuple[int, ...] = ()

    def control_types(self, types: TypesOf, *inputs: TensorType | None) -> list[TensorType | None]:
        """Those of the body, for slices of the scanned inputs."""
        count = len(inputs) - self.num_scan_inputs
        axes = _per_value(self.scan_input_axes, self.num_scan_inputs, "scan_input_axes")
        slices = [_slice(t, axis) for t, axis in zip(inputs[count:], axes, strict=True)]
        state, stacks = repeated_types(types, self.body, (), inputs[:count], [t for t, _ in slices])
        axes = _per_value(self.scan_output_axes, len(stacks), "scan_output_axes")
        return [*state, *(_stack(t, axis, slices[0][1]) for t, axis in zip(stacks, axes, strict=True))]

    def check_outputs(self, count: int) -> None:
        """Raise `OperatorError` unless the body gives `count` values or more."""
        check_outputs(len(self.body.outputs), count)

    def control(self, run: RunGraph, *values: Any) -> Any:
        """Final states, then stacked values."""
        count = len(values) - self.num_scan_inputs
        _check_count(count, values, self.body)
        axes = _per_value(self.scan_input_axes, self.num_scan_inputs, "scan_input_axes")
        ways = _per_value(self.scan_input_directions, self.num_scan_inputs, "scan_input_directions")
        scanned = [_turned(v, a, d) for v, a, d in zip(values[count:], axes, ways, strict=True)]
        if len({len(v) for v in scanned}) > 1:
            raise OperatorError(f"scan inputs have {[len(v) for v in scanned]} slices; they must have the same number")
        state, stacks = _scanned(run, self.body, list(values[:count]), scanned)
        axes = _per_value(self.scan_output_axes, len(stacks), "scan_output_axes")
        ways = _per_value(self.scan_output_directions, len(stacks), "scan_output_directions")
        slices = None if len(scanned[0]) else [np.zeros(v.shape[1:], v.dtype) for v in scanned]
        types = last_types(run, self.body, count, slices and [*values[:count], *slices])
        ordered = [s[::-1] if way else s for s, way in zip(stacks, ways, strict=True)]
        return (*state, *(stacked(s, a, t) for s, a, t in zip(ordered, axes, types, strict=True)))


def _check_count(states: int, values: Sequence[Any], body: Graph) -> None:
    if not 0 <= states < len(values) or any(v is None for v in values):
        raise OperatorError(f"num_scan_inputs does not fit {len(values)} inputs; accepted: 1 to {len(values)}, none left out")
    check_arguments(body, len(values), states)


def _per_value(given: Sequence[int], count: int, name: str) -> Sequence[int]:
    if given and len(given) != count:
        raise OperatorError(f"{name} has {len(given)} entries; accepted: {count}")
    return given or [0] * count


def _turned(value: Array, axis: int, backwards: int) -> Array:
    """The value with the scanned axis first, in the direction of the scan."""
    if not -value.ndim <= axis < value.ndim:
        raise OperatorError(f"the scanned axis is {axis}; the input has rank {value.ndim}")
    moved = np.moveaxis(value, axis, 0) if axis else value
    return moved[::-1] if backwards else moved


def _scanned(run: RunGraph, body: Graph, state: list[Any], inputs: Sequence[Array]) -> tuple[list[Any], Sequence[Any]]:
    """The states after the last slice, and for each further output its values, as a list or along axis 0 of an array."""
    if (count := len(inputs[0])) > 1:
        iterations = run.iterations(body, (), state, inputs, [True] * (len(body.outputs) - len(state)), count)
        if iterations is not None:
            for _ in range(count):
                iterations()
            return iterations.results()
    stacks: list[list[Any]] = [[] for _ in body.outputs[len(state) :]]
    for slices in zip(*inputs, strict=True):
        state = run(body, (*state, *slices))
        for stack in reversed(stacks):
            stack.append(state.pop())
    return state, stacks


def _slice(t: TensorType | None, axis: int) -> tuple[TensorType | None, int | str | None]:
    """The type of a slice, and how many there are."""
    if t is None or t.shape is None or not -len(t.shape) <= axis < len(t.shape):
        return None, None
    dims = list(t.shape)
    size = dims.pop(axis)
    return t.with_shape(tuple(dims)), size


def _stack(t: TensorType | None, axis: int, size: int | str | None) -> TensorType | None:
    """The type of so many values along a new axis."""
    if t is None or t.shape is None or not -len(t.shape) - 1 <= axis <= len(t.shape):
        return None
    at = axis if axis >= 0 else len(t.shape) + 1 + axis
    return t.with_shape((*t.shape[:at], size, *t.shape[at:]))
