"""CategoryMapper: strings to numbers and back. https://onnx.ai/onnx/operators/onnx_aionnxml_CategoryMapper.html"""

import numpy as np

from dovetail.op import DType, OperatorError, TensorType
from dovetail_ops_onnx_ml._base import Array, MachineLearningOperator

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
        """Looked up one by one."""
        pairs = list(zip(self.cats_int64s, self.cats_strings, strict=True))
        if X.dtype == object:
            numbers = {text: number for number, text in pairs}
            return np.array([numbers.get(x, self.default_int64) for x in X.reshape(-1)], np.int64).reshape(X.shape)
        texts = dict(pairs)
        return np.array([texts.get(x, self.default_string) for x in X.reshape(-1).tolist()], object).reshape(X.shape)
