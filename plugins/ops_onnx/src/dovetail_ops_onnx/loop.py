"""Loop: https://onnx.ai/onnx/operators/onnx__Loop.html."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dovetail.op import DType, Graph, Iterations, Operator, OperatorError, RunGraph, TensorType, TypesOf
from dovetail_ops_onnx._control import check_arguments, check_outputs, last_types, repeated_types, stacked
from dovetail_ops_onnx._types import Array

_TRUE, _INT64 = np.array(True), np.dtype(np.int64)


class Loop(Operator):
    """Runs the body while the iteration is below M and the condition holds; without `cond` the body's condition is ignored.

    The body takes the iteration, the condition and the carried values, and gives the condition, the carried values and the
    values that are stacked along a new first axis, one for each iteration.
    """

    inputs = ("M?: int64", "cond?: bool", "v_initial*")
    outputs = ("v_final_and_scan_outputs*",)
    body: Graph

    def control_types(self, types: TypesOf, *inputs: TensorType | None) -> list[TensorType | None]:
        """Those of the body, whose iterations are not counted."""
        fixed = (TensorType(DType.INT64, ()), TensorType(DType.BOOL, ()))
        state, stacks = repeated_types(types, self.body, fixed, inputs[2:], ())
        return [*state, *(t and TensorType(t.dtype, None if t.shape is None else (None, *t.shape)) for t in stacks)]

    def check_outputs(self, count: int) -> None:
        """Raise `OperatorError` unless the body gives `count` values or more after its condition."""
        check_outputs(len(self.body.outputs) - 1, count)

    def control(self, run: RunGraph, limit: Any = None, cond: Any = None, *carried: Any) -> Any:
        """Carried values after the last iteration, then the stacked ones."""
        state, stacks = self.iterated(run, limit, cond, carried)
        types = self._stacked_types(run, carried, stacks)
        return (*state, *(None if s is None else stacked(s, 0, t) for s, t in zip(stacks, types, strict=True)))

    def _stacked_types(self, run: RunGraph, carried: Sequence[Any], stacks: Sequence[Any]) -> Sequence[TensorType | None]:
        """The types of the values that are stacked, inferred where there are none."""
        runs = not any(isinstance(one, list) and not one for one in stacks)
        arguments = None if runs else (np.array(0, _INT64), _TRUE, *carried)
        return last_types(run, self.body, 1 + len(carried), arguments)

    def iterated(self, run: RunGraph, limit: Any, cond: Any, carried: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Carried values after the last iteration, and those of all iterations for each further output of the body.

        Those of all iterations are a list, or one array that has them along axis 0; None for those that the node has no name for.
        """
        check_arguments(self.body, 2 + len(carried), 1 + len(carried))
        end = None if limit is None else _single(limit, "M")
        going = cond is None or _single(cond, "cond")
        further = len(self.body.outputs) - 1 - len(carried)
        wanted = [*run.wanted[len(carried) :], *[False] * further][:further]
        if going and (end is None or end > 1):
            number = np.array(0, _INT64)
            iterations = run.iterations(self.body, (number, _TRUE), carried, (), wanted, end)
            if iterations is not None:
                return self._repeated(iterations, number, end, cond is None)
        state, iteration = list(carried), 0
        stacks: list[list[Any] | None] = [[] if one else None for one in wanted]
        while going and (end is None or iteration < end):
            proceeds, *state = run(self.body, (np.array(iteration, _INT64), _TRUE, *state))
            for stack in reversed(stacks):
                value = state.pop()
                if stack is not None:
                    stack.append(value)
            going = cond is None or _condition(proceeds)
            iteration += 1
        return state, stacks

    def _repeated(self, run: Iterations, number: Array, end: int | None, is_endless: bool) -> tuple[list[Any], list[Any]]:
        """As `iterated`, from the first iteration, of which there is one."""
        proceeds, iteration = run.outputs[0], 1
        run()
        if not is_endless:
            _condition(proceeds)
        while (is_endless or proceeds.item()) and (end is None or iteration < end):
            number[...] = iteration
            run()
            iteration += 1
        return run.results()


class CollectingLoop(Loop):
    """A loop whose last `lists` values are sequences, to which each iteration appends the last outputs of the body.

    Passes have it: a body that takes a sequence and gives it back copies all of it in each iteration.
    """

    domain = "dovetail"
    lists: int = 1

    def control_types(self, types: TypesOf, *inputs: TensorType | None) -> list[TensorType | None]:
        """As Loop; sequences stay what they are."""
        return [*super().control_types(types, *inputs[: -self.lists])[: -self.lists], *inputs[-self.lists :]]

    def control(self, run: RunGraph, limit: Any = None, cond: Any = None, *values: Any) -> Any:
        """As Loop; the sequences at the end."""
        carried, sequences = values[: -self.lists], values[-self.lists :]
        state, stacks = self.iterated(run, limit, cond, carried)
        types = self._stacked_types(run, carried, stacks)[: -self.lists]
        arrays = [None if s is None else stacked(s, 0, t) for s, t in zip(stacks, types, strict=False)]
        added = zip(sequences, stacks[len(arrays) :], strict=True)
        return (*state, *arrays, *(None if more is None else _joined(first, more) for first, more in added))


def _joined(first: Sequence[Any], given: Any) -> list[Any]:
    """Two sequences one after the other, the second a list or along axis 0 of an array.

    Raises `OperatorError` unless they have one data type, as SequenceInsert.
    """
    more = given if isinstance(given, list) else [given[number, ...] for number in range(len(given))]
    if first and more and first[0].dtype != more[0].dtype:
        raise OperatorError(f"the body gives {more[0].dtype}, the sequence has {first[0].dtype}; they must be the same")
    return [*first, *more]


def _condition(value: Any) -> bool:
    """The condition that the body gives. Raises `OperatorError` unless it is one boolean."""
    if value.dtype.kind != "b":
        raise OperatorError(f"the condition of the body is {value.dtype}; accepted: bool")
    return _single(value, "the condition of the body") is True


def _single(value: Any, name: str) -> Any:
    """The element of an array. Raises `OperatorError` unless there is one."""
    if value.size != 1:
        raise OperatorError(f"{name} has {value.size} elements; accepted: one")
    return value.item()
