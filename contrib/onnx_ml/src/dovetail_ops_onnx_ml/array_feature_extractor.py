"""ArrayFeatureExtractor: columns by their numbers. https://onnx.ai/onnx/operators/onnx_aionnxml_ArrayFeatureExtractor.html"""

import numpy as np

from dovetail.op import DType, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx_ml._base import NUMBERS, Array, MachineLearningOperator

__all__ = ["ArrayFeatureExtractor"]


class ArrayFeatureExtractor(MachineLearningOperator):
    """Z = the elements of the last axis of X that Y numbers."""

    inputs = ("X: T", "Y: int64")
    outputs = ("Z: T",)
    types = {"T": NUMBERS | {DType.STRING}}

    def infer(self, X: TensorType, Y: TensorType) -> TensorType:
        """X with as many elements along the last axis as Y has; a vector becomes a matrix of one row."""
        if X.rank == 0 or Y.size == 0:
            raise ShapeError(f"input 'X' is {X}, input 'Y' is {Y}; accepted: X of rank 1 or more, Y that is not empty")
        return X.with_shape((*(X.dims[:-1] or (1,)), Y.size))

    def reference(self, X: Array, Y: Array) -> Array:
        """The elements. Raises `OperatorError` for a number out of range."""
        places = Y.reshape(-1)
        if np.maximum.reduce(places.view(np.uint64), initial=0) >= X.shape[-1]:  # negative ones are the greatest numbers
            outside = places[(places < 0) | (places >= X.shape[-1])]
            raise OperatorError(f"input 'Y' asks for element {outside[0]}; accepted: 0 to {X.shape[-1] - 1}")
        found = X.take(places, axis=-1) if X.dtype != object else X[..., places]
        return found[None] if X.ndim == 1 else found
