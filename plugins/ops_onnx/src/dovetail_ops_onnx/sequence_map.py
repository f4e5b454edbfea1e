"""SequenceMap: https://onnx.ai/onnx/operators/onnx__SequenceMap.html."""

from typing import Any

from dovetail.op import Graph, Operator, OperatorError, RunGraph
from dovetail_ops_onnx._control import check_arguments


class SequenceMap(Operator):
    """Runs the body on each element of a sequence; further sequences advance in step, tensors are the same for every element."""

    inputs = ("input_sequence", "additional_inputs*")
    outputs = ("out_sequence*",)
    since = 17
    body: Graph

    def control(self, run: RunGraph, sequence: list[Any], *others: Any) -> Any:
        """One sequence for each output of the body."""
        check_arguments(self.body, 1 + len(others), 1)
        for other in others:
            if isinstance(other, list) and len(other) != len(sequence):
                raise OperatorError(f"sequences of {len(sequence)} and {len(other)} elements; they must have the same number")
        rows = [
            run(self.body, (item, *(o[index] if isinstance(o, list) else o for o in others)))
            for index, item in enumerate(sequence)
        ]
        return tuple([row[output] for row in rows] for output in range(len(self.body.outputs)))
