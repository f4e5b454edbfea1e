"""StringNormalizer: https://onnx.ai/onnx/operators/onnx__StringNormalizer.html."""

from collections.abc import Iterable

import numpy as np

from dovetail.op import Operator, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx._types import Array

_ACTIONS = ("NONE", "LOWER", "UPPER")


class StringNormalizer(Operator):
    """The strings [C] or [1, C] without the stop words, in lower or upper case; one empty string where none is left.

    Letters change as Unicode says, whatever the `locale`.
    """

    since = 10
    inputs = ("X: string",)
    outputs = ("Y: string",)

    case_change_action: str = "NONE"
    is_case_sensitive: bool = False
    locale: str | None = None
    stopwords: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.case_change_action not in _ACTIONS:
            raise OperatorError(f"attribute 'case_change_action' is {self.case_change_action!r}; accepted: {', '.join(_ACTIONS)}")

    def infer(self, X: TensorType) -> TensorType:
        """As X; how many are left depends on the data."""
        if X.rank not in (1, 2) or (X.rank == 2 and X.dims[0] != 1):
            raise ShapeError(f"input 'X' is {X}; accepted: [C] or [1, C]")
        return X.with_shape((*X.dims[:-1], None))

    def reference(self, X: Array) -> Array:
        """The remaining words."""
        stops = set(self.stopwords or ())
        kept: Iterable[str] = map(str, X.flat)
        if stops and self.is_case_sensitive:
            kept = (text for text in kept if text not in stops)
        elif stops:
            stops = {word.casefold() for word in stops}
            kept = (text for text in kept if text.casefold() not in stops)
        if self.case_change_action != "NONE":
            kept = map(str.lower if self.case_change_action == "LOWER" else str.upper, kept)
        found = np.fromiter(kept, object)  # not by way of lists: to free one takes as long as to make it, with Python's lock
        return (found if found.size else np.array([""], object)).reshape(*X.shape[:-1], -1)
