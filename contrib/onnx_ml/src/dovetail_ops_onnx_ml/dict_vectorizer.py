"""DictVectorizer: a map as a vector. https://onnx.ai/onnx/operators/onnx_aionnxml_DictVectorizer.html"""

from typing import Any

import numpy as np

from dovetail.op import DType, MapType, OperatorError, TensorType
from dovetail_ops_onnx_ml._base import Array, MachineLearningOperator, classes_of

__all__ = ["DictVectorizer"]

_TYPES: dict[type, Any] = {str: object, int: np.int64, np.int64: np.int64, np.float64: np.float64}
"""By the values; numbers of other types are float32."""


class DictVectorizer(MachineLearningOperator):
    """Y [1, words] has the map's value for each word of the vocabulary, 0 (or an empty string) where it has none."""

    inputs = ("X: T",)
    outputs = ("Y: T",)
    types = {"T": frozenset({DType.INT64, DType.FLOAT32, DType.FLOAT64, DType.STRING})}
    int64_vocabulary: tuple[int, ...] = ()
    string_vocabulary: tuple[str, ...] = ()

    def infer(self, X: TensorType) -> TensorType:
        """The type of the map's values. Raises `OperatorError` for what is not a map from such words."""
        words = classes_of(self.int64_vocabulary, self.string_vocabulary)
        if not isinstance(X, MapType) or X.keys is not DType.of(words.dtype):
            raise OperatorError(f"input 'X' is {X}; accepted: a map from {DType.of(words.dtype)}")
        return TensorType(X.dtype, (1, len(words)))

    def reference(self, X: Any) -> Array:
        """Looked up one by one. The type is that of the values; plain numbers with a fraction are float32."""
        words = classes_of(self.int64_vocabulary, self.string_vocabulary).tolist()
        kind = next((_TYPES[type(value)] for value in X.values() if type(value) in _TYPES), np.float32)
        return np.array([[X.get(word, "" if kind is object else 0) for word in words]], kind)
