"""ZipMap: rows of scores as maps. https://onnx.ai/onnx/operators/onnx_aionnxml_ZipMap.html"""

from itertools import repeat

from dovetail.locks import cached_property
from dovetail.op import DType, SequenceType, ShapeError, TensorType
from dovetail_ops_onnx_ml._base import Array, MachineLearningOperator, classes_of, samples

__all__ = ["ZipMap"]


class ZipMap(MachineLearningOperator):
    """For each sample a map from the labels to its scores."""

    inputs = ("X: T",)
    outputs = ("Z: T",)
    types = {"T": frozenset({DType.FLOAT32})}
    classlabels_int64s: tuple[int, ...] = ()
    classlabels_strings: tuple[str, ...] = ()

    def infer(self, X: TensorType) -> TensorType:
        """A sequence of maps. Raises `ShapeError` unless there is a score for each label."""
        if X.is_static:
            self._check(samples(X)[1])
        return SequenceType(X.dtype, None, keys=DType.STRING if self.classlabels_strings else DType.INT64)

    def reference(self, X: Array) -> list[dict[int | str, float]]:
        """Plain numbers in dictionaries."""
        self._check(X.shape[-1])
        return list(map(dict, map(zip, repeat(self._names), X.reshape(-1, X.shape[-1]).tolist())))

    def _check(self, scores: int) -> None:
        if scores != len(self._names):
            raise ShapeError(f"input 'X' has {scores} scores; accepted: a score for each of the {len(self._names)} labels")

    @cached_property
    def _names(self) -> list[int | str]:
        found: list[int | str] = classes_of(self.classlabels_int64s, self.classlabels_strings).tolist()
        return found
