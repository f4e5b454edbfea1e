"""RegexFullMatch: https://onnx.ai/onnx/operators/onnx__RegexFullMatch.html."""

from functools import lru_cache

import numpy as np

from dovetail.op import DType, Operator, OperatorError, TensorType
from dovetail.ops._re2 import Expression
from dovetail.ops._types import BOOL, Array


class RegexFullMatch(Operator):
    """Whether a regular expression in RE2's syntax matches the whole of each string, in time in proportion to its length."""

    since = 20
    inputs = ("X: T1",)
    outputs = ("Y: T2",)
    types = {"T1": frozenset({DType.STRING}), "T2": BOOL}

    pattern: str | None = None

    def __post_init__(self) -> None:
        if self.pattern is None:
            raise OperatorError("attribute 'pattern' is missing; accepted: a regular expression")
        try:
            _compiled(self.pattern)
        except ValueError as error:
            raise OperatorError(f"attribute 'pattern' is no regular expression: {error}") from None

    def infer(self, X: TensorType) -> TensorType:
        """Bools in the shape of X."""
        return X.with_dtype(DType.BOOL)

    def reference(self, X: Array) -> Array:
        """Each string by itself."""
        expression = _compiled(self.pattern or "")
        return np.array([expression.fullmatch(str(text)) for text in X.reshape(-1)], np.bool_).reshape(X.shape)


@lru_cache(64)
def _compiled(pattern: str) -> Expression:
    return Expression(pattern)
