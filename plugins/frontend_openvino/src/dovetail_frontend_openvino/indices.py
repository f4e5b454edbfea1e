"""Arithmetic on a few numbers whose result a translation must know: axes that the file computes from constants."""

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from dovetail.errors import DovetailError
from dovetail.frontend import TensorType, UnboundOperator
from dovetail.op import Operator
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.concat import Concat
from dovetail_ops_onnx.gather import Gather
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.range import Range
from dovetail_ops_onnx.reshape import Reshape
from dovetail_ops_onnx.squeeze import Squeeze
from dovetail_ops_onnx.sub import Sub
from dovetail_ops_onnx.unsqueeze import Unsqueeze

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
    """The result for a few integers; None where there is none, or one that is not small. The plan reports mistakes."""
    if any(array.dtype.kind not in "iu" for array in inputs):
        return None
    try:
        made = _OPERATORS[op.op_type].from_attributes(op.raw)
        types = [TensorType.of(array, known=True) for array in inputs]
        made.check(types, 1)
        result = made.infer(*types, *[None] * (len(made.inputs) - len(types)))
        if not isinstance(result, TensorType) or result.size > MOST:
            return None
        array: NDArray[Any] = made.reference(*inputs)
        return array
    except DovetailError:
        return None
