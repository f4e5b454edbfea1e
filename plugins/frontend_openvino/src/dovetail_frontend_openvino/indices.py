"""Arithmetic on a few numbers whose result a translation must know: axes that the file computes from constants."""

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from dovetail.errors import DovetailError
from dovetail.frontend import TensorType, UnboundOperator
from dovetail.op import Operator
from dovetail.ops.add import Add
from dovetail.ops.concat import Concat
from dovetail.ops.gather import Gather
from dovetail.ops.mul import Mul
from dovetail.ops.range import Range
from dovetail.ops.reshape import Reshape
from dovetail.ops.squeeze import Squeeze
from dovetail.ops.sub import Sub
from dovetail.ops.unsqueeze import Unsqueeze

__all__ = ["MOST", "computed", "is_arithmetic"]

MOST = 64
"""Elements of an input or a result: a tensor has no more axes. What is larger waits for the plan, which folds all constants."""

_OPERATORS: dict[str, type[Operator]] = {
    cls.op_type: cls for cls in (Add, Concat, Gather, Mul, Range, Reshape, Squeeze, Sub, Unsqueeze)
}


def is_arithmetic(op: UnboundOperator) -> bool:
    """Whether `computed` may give anything for the operator."""
    return not op.domain and op.op_type in _OPERATORS


def computed(op: UnboundOperator, inputs: Sequence[NDArray[Any]]) -> NDArray[Any] | None:
    """The result for a few integers; None where there is none, or one that is not small. The plan tells of mistakes."""
    if any(array.dtype.kind not in "iu" for array in inputs):
        return None
    try:
        made = _OPERATORS[op.op_type].from_attributes(op.raw)
        types = [TensorType.of(array, known=True) for array in inputs]
        made.check(types, 1)
        result = made.infer(*types, *[None] * (len(made.inputs) - len(types)))
        if not isinstance(result, TensorType) or result.size > MOST:
            return None
        return made.reference(*inputs)  # type: ignore[no-any-return]  # an array: it has one output
    except DovetailError:
        return None
