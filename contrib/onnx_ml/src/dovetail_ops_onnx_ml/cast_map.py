"""CastMap: a map from numbers as a vector. https://onnx.ai/onnx/operators/onnx_aionnxml_CastMap.html"""

from typing import Any

import numpy as np

from dovetail.op import DType, MapType, OperatorError, TensorType
from dovetail_ops_onnx_ml._base import Array, MachineLearningOperator

__all__ = ["CastMap"]

_TARGETS = {"TO_FLOAT": DType.FLOAT32, "TO_INT64": DType.INT64, "TO_STRING": DType.STRING}


class CastMap(MachineLearningOperator):
    """Y [1, n] has the map's values in the order of their keys, or in the places that these name, of `max_map` (SPARSE)."""

    inputs = ("X: T1",)
    outputs = ("Y: T2",)
    types = {"T1": frozenset({DType.FLOAT32, DType.STRING}), "T2": frozenset(_TARGETS.values())}
    cast_to: str = "TO_FLOAT"
    map_form: str = "DENSE"
    max_map: int = 1

    def __post_init__(self) -> None:
        if self.cast_to not in _TARGETS or self.map_form not in ("DENSE", "SPARSE"):
            accepted = f"{', '.join(_TARGETS)}; DENSE, SPARSE"
            raise OperatorError(f"attributes 'cast_to' {self.cast_to!r}, 'map_form' {self.map_form!r}; accepted: {accepted}")
        if self.map_form == "SPARSE" and self.max_map < 1:
            raise OperatorError(f"attribute 'max_map' is {self.max_map}; accepted: 1 or more")

    def infer(self, X: TensorType) -> TensorType:
        """The length of dense vectors is that of the map. Raises `OperatorError` for what is not a map from int64."""
        if not isinstance(X, MapType) or X.keys is not DType.INT64:
            raise OperatorError(f"input 'X' is {X}; accepted: a map from int64")
        return TensorType(_TARGETS[self.cast_to], (1, self.max_map if self.map_form == "SPARSE" else None))

    def reference(self, X: Any) -> Array:
        """Raises `OperatorError` for a key that is not an index, and a string that is not a number."""
        pairs = sorted(X.items())
        values = [self._cast(value) for _, value in pairs]
        target = _TARGETS[self.cast_to]
        if self.map_form == "DENSE":
            return np.array([values], target.numpy)
        y = np.full((1, self.max_map), "" if target is DType.STRING else 0, target.numpy)
        for (key, _), value in zip(pairs, values, strict=True):
            if not 0 <= key < self.max_map:
                raise OperatorError(f"input 'X' has the key {key}; accepted: 0 to {self.max_map - 1}")
            y[0, key] = value
        return y

    def _cast(self, value: Any) -> Any:
        if self.cast_to == "TO_STRING":
            return value if isinstance(value, str) else f"{value:f}"
        try:
            return float(value) if self.cast_to == "TO_FLOAT" else int(float(value))
        except (ValueError, OverflowError):
            raise OperatorError(f"input 'X' has the value {value!r:.60}, which is not a number") from None
