"""If: https://onnx.ai/onnx/operators/onnx__If.html."""

from collections.abc import Sequence
from typing import Any

from dovetail.op import Graph, Operator, OperatorError, RunGraph, TensorType, TypesOf, one_of
from dovetail_ops_onnx._control import check_outputs
from dovetail_ops_onnx._types import BOOL, Array


class If(Operator):
    """One of two sub-graphs, which take nothing but what they read from around them.

    Where the condition is known while planning, the branch takes the node's place.
    """

    inputs = ("cond: B",)
    outputs = ("outputs*",)
    types = {"B": BOOL}
    then_branch: Graph
    else_branch: Graph

    def chosen_graph(self, inputs: Sequence[Array | None]) -> Graph | None:
        """The branch that a known condition selects."""
        cond = inputs[0] if inputs else None
        if cond is None or cond.size != 1 or cond.dtype.kind != "b":
            return None
        return self.then_branch if cond.item() else self.else_branch

    def control_types(self, types: TypesOf, *_: TensorType | None) -> list[TensorType | None]:
        """Those of both branches."""
        return [one_of(*both) for both in zip(types(self.then_branch, ()), types(self.else_branch, ()), strict=False)]

    def check_outputs(self, count: int) -> None:
        """Raise `OperatorError` unless both branches give `count` values or more."""
        check_outputs(min(len(self.then_branch.outputs), len(self.else_branch.outputs)), count)

    def control(self, run: RunGraph, cond: Array, *_: Any) -> Any:
        """The outputs of the branch that `cond`, a single element, chooses."""
        if cond.size != 1:
            raise OperatorError(f"cond has {cond.size} elements; accepted: one")
        return tuple(run(self.then_branch if cond.item() else self.else_branch, ()))
