"""ONNX's optimizers: a step for several tensors at once, each with a gradient and states.

https://onnx.ai/onnx/operators/onnx_aionnxpreviewtraining_Adam.html
"""

from typing import Any

from dovetail.op import OperatorError, TensorType
from dovetail_ops_onnx_reference.operator import ReferenceOperator

__all__ = ["GROUPS", "OptimizerOperator"]

GROUPS = {
    "Adagrad": ("tensor", "gradient", "squared gradient"),
    "Adam": ("tensor", "gradient", "momentum", "squared gradient"),
    "Momentum": ("tensor", "gradient", "momentum"),
}
"""The groups of inputs after the learning rate R and the count T; each has one input for each tensor."""


class OptimizerOperator(ReferenceOperator):
    """The outputs are the new tensors, then their new states: all groups but the gradients."""

    def infer(self, *inputs: TensorType | None, **_: Any) -> tuple[TensorType, ...]:
        """The types of tensors and states. Raises `OperatorError` where a tensor's gradient or state has another type."""
        kinds = GROUPS[self.op_type]
        rest = inputs[2:]
        given = [t for t in rest if t is not None]
        if not given or len(given) < len(rest) or len(given) % len(kinds):
            raise OperatorError(
                f"there are {len(given)} inputs after R and T; accepted: for each tensor one {', one '.join(kinds)}"
            )
        for name, scalar in zip(("R", "T"), inputs, strict=False):
            if scalar is None or scalar.rank:
                raise OperatorError(f"input {name} is {scalar or 'left out'}; accepted: a scalar")
        count = len(given) // len(kinds)
        for at, t in enumerate(given):
            tensor = given[at % count]
            if (t.dtype, t.shape) != (tensor.dtype, tensor.shape):
                raise OperatorError(f"the {kinds[at // count]} of tensor {at % count} is {t}; accepted: {tensor}, as the tensor")
        return tuple(t.with_shape(t.shape) for t in (*given[:count], *given[2 * count :]))

    def reference(self, *inputs: Any, **_: Any) -> tuple[Any, ...]:
        """The outputs by `onnx.reference`, one tensor at a time: for several, it gives float32 whatever they are."""
        count = (len(inputs) - 2) // len(GROUPS[self.op_type])
        steps = [super(OptimizerOperator, self).reference(*inputs[:2], *inputs[2 + at :: count]) for at in range(count)]
        # For one, it gives float64 where T is an array of int64.
        return tuple(
            value.astype(x.dtype) for values in zip(*steps, strict=True) for value, x in zip(values, inputs[2:], strict=False)
        )

    def _count(self, inputs: Any) -> int:
        return (len(inputs) - 2) // len(GROUPS[self.op_type]) * (len(GROUPS[self.op_type]) - 1)
