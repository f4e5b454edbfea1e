"""FeatureVectorizer: features side by side. https://onnx.ai/onnx/operators/onnx_aionnxml_FeatureVectorizer.html"""

from typing import Any

import numpy as np

from dovetail.op import OperatorError, ShapeError, TensorType
from dovetail_ops_onnx_ml._base import Array, MachineLearningOperator

__all__ = ["FeatureVectorizer"]


class FeatureVectorizer(MachineLearningOperator):
    """The features of all inputs side by side in float32; each has as many as `inputdimensions` says, cut or filled with 0."""

    inputs = ("X*: T",)
    outputs = ("Y: float32",)
    inputdimensions: tuple[int, ...] = ()

    def infer(self, *inputs: Any) -> TensorType:
        """[samples, all features]. Raises `ShapeError` for inputs of different numbers of samples."""
        if len(inputs) != len(self.inputdimensions) or any(n < 0 for n in self.inputdimensions):
            wanted = f"accepted: a number for each of {len(inputs)} inputs"
            raise OperatorError(f"attribute 'inputdimensions' is {self.inputdimensions}; {wanted}")
        counts = {_samples(t) for t in inputs}
        if len(counts) != 1:
            raise ShapeError(f"the inputs are {', '.join(map(str, inputs))}; accepted: as many samples of each")
        return TensorType.of(np.empty(0, np.float32)).with_shape((counts.pop(), sum(self.inputdimensions)))

    def reference(self, *inputs: Any) -> Array:
        """Side by side."""
        count = _samples(TensorType.of(inputs[0]))
        y = np.zeros((count, sum(self.inputdimensions)), np.float32)
        start = 0
        for X, width in zip(inputs, self.inputdimensions, strict=True):
            flat = X.reshape(count, X.size // max(1, count))[:, :width]
            y[:, start : start + flat.shape[1]] = flat
            start += width
        return y


def _samples(t: TensorType) -> int:
    return t.dims[0] if t.rank > 1 else 1
