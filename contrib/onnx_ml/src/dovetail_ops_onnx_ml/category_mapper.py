"""CategoryMapper: strings to numbers and back. https://onnx.ai/onnx/operators/onnx_aionnxml_CategoryMapper.html"""

import numpy as np

from dovetail.op import DType, OperatorError, TensorType
from dovetail_ops_onnx_ml._base import Array, MachineLearningOperator
from dovetail_ops_onnx_ml._lookup import Lookup

__all__ = ["CategoryMapper"]


class CategoryMapper(MachineLearningOperator):
    """Each string becomes the number beside it in `cats_int64s`, each number the string; others the default."""

    inputs = ("X: T1",)
    outputs = ("Y: T2",)
    types = {"T1": frozenset({DType.STRING, DType.INT64}), "T2": frozenset({DType.STRING, DType.INT64})}
    cats_int64s: tuple[int, ...] = ()
    cats_strings: tuple[str, ...] = ()
    default_int64: int = -1
    default_string: str = "_Unused"

    def __post_init__(self) -> None:
        if len(self.cats_int64s) != len(self.cats_strings):
            counts = f"{len(self.cats_int64s)} numbers and {len(self.cats_strings)} strings"
            raise OperatorError(f"there are {counts}; accepted: as many of each")

    def infer(self, X: TensorType) -> TensorType:
        """The other type, in the shape of X."""
        return TensorType(DType.INT64 if X.dtype is DType.STRING else DType.STRING, X.dims)

    def reference(self, X: Array) -> Array:
        """Looked up; of equal categories the last counts."""
        texts, numbers = np.array(self.cats_strings[::-1], object), np.array(self.cats_int64s[::-1], np.int64)
        if X.dtype == object:
            return np.append(numbers, np.int64(self.default_int64)).take(Lookup(texts).places(X.reshape(-1))).reshape(X.shape)
        return np.append(texts, self.default_string).take(Lookup(numbers).places(X.reshape(-1))).reshape(X.shape)
