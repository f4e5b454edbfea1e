"""OneHotEncoder: categories as unit vectors. https://onnx.ai/onnx/operators/onnx_aionnxml_OneHotEncoder.html"""

import numpy as np

from dovetail.locks import cached_property
from dovetail.op import DType, OperatorError, TensorType
from dovetail_ops_onnx_ml._base import NUMBERS, Array, MachineLearningOperator, classes_of
from dovetail_ops_onnx_ml._lookup import Lookup

__all__ = ["OneHotEncoder"]


_FEW = 100
"""Categories of which the results are kept, as a table."""


class OneHotEncoder(MachineLearningOperator):
    """Y has one more axis than X, with a 1 at the place of the category; another value is all 0, or an error without `zeros`.

    Numbers are compared as int64.
    """

    inputs = ("X: T",)
    outputs = ("Y: float32",)
    types = {"T": NUMBERS | {DType.STRING}}
    cats_int64s: tuple[int, ...] = ()
    cats_strings: tuple[str, ...] = ()
    zeros: bool = True

    def infer(self, X: TensorType) -> TensorType:
        """The shape of X and the number of categories. Raises `OperatorError` for categories of another type."""
        cats = classes_of(self.cats_int64s, self.cats_strings)
        if (X.dtype is DType.STRING) != (cats.dtype == object):
            raise OperatorError(f"input 'X' is {X}, the categories are {DType.of(cats.dtype)}; accepted: strings with strings")
        return TensorType(DType.FLOAT32, (*X.dims, len(cats)))

    def reference(self, X: Array) -> Array:
        """Looked up."""
        cats, lookup = self._cats
        x = X.reshape(-1)
        places = lookup.places(x if x.dtype == object else x.astype(np.int64, copy=False))
        if not self.zeros and np.any(places < 0):
            other = x[places < 0].tolist()[0]
            raise OperatorError(f"input 'X' has {other!r:.60}, which is not a category; accepted: {cats.tolist()[:20]}")
        if len(cats) <= _FEW:
            return self._rows.take(places, axis=0).reshape(*X.shape, len(cats))
        y = np.zeros((X.size, len(cats)), np.float32)
        known = np.flatnonzero(places >= 0)
        y[known, places[known]] = 1
        return y.reshape(*X.shape, len(cats))

    @cached_property
    def _cats(self) -> tuple[Array, Lookup]:
        cats = classes_of(self.cats_int64s, self.cats_strings)
        return cats, Lookup(cats)

    @cached_property
    def _rows(self) -> Array:
        """The results of all categories, and at the end, which is place -1, of any other value."""
        count = len(self._cats[0])
        return np.eye(count + 1, count, dtype=np.float32)
