"""StringSplit: https://onnx.ai/onnx/operators/onnx__StringSplit.html."""

import numpy as np

from dovetail.op import DType, Operator, OperatorError, TensorType
from dovetail_ops_onnx._types import Array


class StringSplit(Operator):
    """The parts of each string between delimiters, in a new last axis that is filled up with `""`; and how many there are.

    Without a delimiter, or with `""`, strings are split at runs of white space. At most `maxsplit` times, if it is given.
    """

    since = 20
    inputs = ("X: T1",)
    outputs = ("Y: T2", "Z: T3")
    types = {"T1": frozenset({DType.STRING}), "T2": frozenset({DType.STRING}), "T3": frozenset({DType.INT64})}

    delimiter: str | None = None
    maxsplit: int | None = None

    def __post_init__(self) -> None:
        if self.maxsplit is not None and self.maxsplit < 0:
            raise OperatorError(f"attribute 'maxsplit' is {self.maxsplit}; accepted: 0 or more")

    def infer(self, X: TensorType) -> tuple[TensorType, TensorType]:
        """The shape of X, for the parts with an axis more; whose length depends on the data."""
        return X.with_shape((*X.dims, None)), TensorType(DType.INT64, X.dims)

    def reference(self, X: Array) -> tuple[Array, Array]:
        """`str.split` of each."""
        parts = [
            str(text).split(self.delimiter or None, -1 if self.maxsplit is None else self.maxsplit) for text in X.reshape(-1)
        ]
        counts = np.array([len(row) for row in parts], np.int64)
        y = np.full((len(parts), max(counts, default=0)), "", object)
        for row, given in zip(y, parts, strict=True):
            row[: len(given)] = given
        return y.reshape(*X.shape, y.shape[1]), counts.reshape(X.shape)
