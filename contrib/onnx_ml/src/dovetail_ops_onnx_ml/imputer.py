"""Imputer: values for those that are missing. https://onnx.ai/onnx/operators/onnx_aionnxml_Imputer.html"""

import math

import numpy as np

from dovetail.locks import cached_property
from dovetail.op import OperatorError, TensorType
from dovetail_ops_onnx_ml._base import Array, MachineLearningOperator, column, samples

__all__ = ["Imputer"]

_FEW = 1000
"""Elements from which on it pays to count what is missing."""


class Imputer(MachineLearningOperator):
    """X with `imputed_value_...`, one for all features or one for each, where it is `replaced_value_...`, which may be NaN."""

    inputs = ("X: T",)
    outputs = ("Y: T",)
    imputed_value_floats: tuple[float, ...] = ()
    imputed_value_int64s: tuple[int, ...] = ()
    replaced_value_float: float = 0.0
    replaced_value_int64: int = 0

    def infer(self, X: TensorType) -> TensorType:
        """The type of X. Raises `OperatorError` when it has no values for it."""
        kind = "int64" if X.dtype.is_integer else "float"
        given = self.imputed_value_int64s if X.dtype.is_integer else self.imputed_value_floats
        if not given:
            raise OperatorError(f"attribute 'imputed_value_{kind}s' is empty; input 'X' is {X}")
        column(given, samples(X)[1], f"imputed_value_{kind}s")
        return X.with_shape(X.dims)

    def reference(self, X: Array) -> Array:
        """Chosen element by element."""
        values, replaced = self._ints if X.dtype.kind == "i" else self._floats
        missing = np.isnan(X) if math.isnan(replaced) else np.asarray(replaced).astype(X.dtype) == X
        values = values.astype(X.dtype)
        if X.size < _FEW or np.count_nonzero(missing) > X.size // 16:
            return np.where(missing, values, X)
        y = X.copy()
        at = np.flatnonzero(missing)
        y.reshape(-1)[at] = values.take(at % values.size)
        return y

    @cached_property
    def _ints(self) -> tuple[Array, int]:
        return np.array(self.imputed_value_int64s, np.int64), self.replaced_value_int64

    @cached_property
    def _floats(self) -> tuple[Array, float]:
        return np.array(self.imputed_value_floats, np.float64), self.replaced_value_float
