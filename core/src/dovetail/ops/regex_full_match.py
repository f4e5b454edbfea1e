"""RegexFullMatch: https://onnx.ai/onnx/operators/onnx__RegexFullMatch.html."""

import re

import numpy as np

from dovetail.op import DType, Operator, OperatorError, TensorType
from dovetail.ops._types import BOOL, Array


class RegexFullMatch(Operator):
    """Whether a regular expression matches the whole of each string. Python's expressions, which hold those of re2."""

    since = 20
    inputs = ("X: T1",)
    outputs = ("Y: T2",)
    types = {"T1": frozenset({DType.STRING}), "T2": BOOL}

    pattern: str | None = None

    def __post_init__(self) -> None:
        if self.pattern is None:
            raise OperatorError("attribute 'pattern' is missing; accepted: a regular expression")
        try:
            re.compile(self.pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise OperatorError(f"attribute 'pattern' is no regular expression: {error}") from error

    def infer(self, X: TensorType) -> TensorType:
        """Bools in the shape of X."""
        return X.with_dtype(DType.BOOL)

    def reference(self, X: Array) -> Array:
        """`re.fullmatch` of each."""
        found = [re.fullmatch(self.pattern or "", str(text)) is not None for text in X.reshape(-1)]
        return np.array(found, np.bool_).reshape(X.shape)
