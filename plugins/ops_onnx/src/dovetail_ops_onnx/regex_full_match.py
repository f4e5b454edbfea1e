"""RegexFullMatch: https://onnx.ai/onnx/operators/onnx__RegexFullMatch.html."""

from functools import lru_cache
from typing import Any

import numpy as np

from dovetail.op import DType, Operator, OperatorError, TensorType
from dovetail_ops_onnx._types import BOOL, Array

_KNOWN = 1 << 14
"""Strings whose results are kept during a run: columns of categories hold few."""


class RegexFullMatch(Operator):
    """Whether a regular expression in RE2's syntax matches the whole of each string, in time in proportion to its length.

    RE2 itself matches: the package google-re2, which `dovetail-ops-onnx[strings]` installs. Python's `re` has another syntax, and
    takes exponential time for some patterns.
    """

    since = 20
    inputs = ("X: T1",)
    outputs = ("Y: T2",)
    types = {"T1": frozenset({DType.STRING}), "T2": BOOL}

    pattern: str | None = None

    def __post_init__(self) -> None:
        if self.pattern is None:
            raise OperatorError("attribute 'pattern' is missing; accepted: a regular expression")
        _compiled(self.pattern)

    def infer(self, X: TensorType) -> TensorType:
        """Bools in the shape of X."""
        return X.with_dtype(DType.BOOL)

    def reference(self, X: Array) -> Array:
        """Each string by itself, unless an equal one has been seen."""
        expression = _compiled(self.pattern or "")

        @lru_cache(_KNOWN)
        def matches(text: Any) -> bool:
            # Bytes: in strings the package counts the characters up to the match, which takes three times as long.
            return expression.fullmatch(str(text).encode()) is not None

        return np.fromiter(map(matches, X.flat), np.bool_, X.size).reshape(X.shape)


@lru_cache(64)
def _compiled(pattern: str) -> Any:
    try:
        import re2  # here, because no other operator needs it
    except ImportError:
        raise OperatorError(
            "RegexFullMatch needs the package google-re2, which is not installed", hint="pip install 'dovetail-ops-onnx[strings]'"
        ) from None
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options=options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        said = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else reason
        raise OperatorError(f"attribute 'pattern' is not a regular expression of RE2: {str(said)[:200]}") from None
