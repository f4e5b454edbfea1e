"""LabelEncoder: keys to values. https://onnx.ai/onnx/operators/onnx_aionnxml_LabelEncoder.html"""

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dovetail.locks import cached_property
from dovetail.op import DType, OperatorError, TensorType
from dovetail_ops_onnx_ml._base import Array, MachineLearningOperator
from dovetail_ops_onnx_ml._lookup import Lookup

__all__ = ["LabelEncoder_1", "LabelEncoder_2", "LabelEncoder_4"]

_OLD = frozenset({DType.STRING, DType.INT64, DType.FLOAT32})
_TYPES = _OLD | {DType.INT32, DType.INT16, DType.FLOAT64}


class LabelEncoder_1(MachineLearningOperator):
    """Each string becomes its place in `classes_strings`, each number the string at that place; others the default."""

    inputs = ("X: T1",)
    outputs = ("Y: T2",)
    types = {"T1": frozenset({DType.STRING, DType.INT64}), "T2": frozenset({DType.STRING, DType.INT64})}
    classes_strings: tuple[str, ...] = ()
    default_int64: int = -1
    default_string: str = "_Unused"

    def infer(self, X: TensorType) -> TensorType:
        """The other type, in the shape of X."""
        return TensorType(DType.INT64 if X.dtype is DType.STRING else DType.STRING, X.dims)

    def reference(self, X: Array) -> Array:
        """Looked up."""
        classes, x = np.array(self.classes_strings, object), X.reshape(-1)
        if X.dtype == object:
            places = Lookup(classes).places(x)
            return np.where(places < 0, self.default_int64, places).reshape(X.shape)
        places = np.where((x < 0) | (x >= classes.size), classes.size, x)
        return np.append(classes, self.default_string).take(places).reshape(X.shape)


class _Encoder(MachineLearningOperator):
    """Each key becomes the value beside it; what is not a key the default. Of equal keys the first counts; NaN is not a key."""

    inputs = ("X: T1",)
    outputs = ("Y: T2",)
    types = {"T1": _OLD, "T2": _OLD}
    keys_floats: tuple[float, ...] = ()
    keys_int64s: tuple[int, ...] = ()
    keys_strings: tuple[str, ...] = ()
    values_floats: tuple[float, ...] = ()
    values_int64s: tuple[int, ...] = ()
    values_strings: tuple[str, ...] = ()
    default_float: float = -0.0
    default_int64: int = -1
    default_string: str = "_Unused"
    _finds_nan: ClassVar[bool] = False

    def infer(self, X: TensorType) -> TensorType:
        """The type of the values, in the shape of X. Raises `OperatorError` for other keys."""
        keys, values, _ = self._pairs()
        if keys.shape != values.shape:
            raise OperatorError(f"there are {keys.size} keys and {values.size} values; accepted: as many")
        if DType.of(keys.dtype) is not X.dtype:
            raise OperatorError(f"input 'X' is {X}, the keys are {DType.of(keys.dtype)}; accepted: the same type")
        return TensorType(DType.of(values.dtype), X.dims)

    def reference(self, X: Array) -> Array:
        """Looked up."""
        lookup, values = self._lookup
        return values.take(lookup.places(X.reshape(-1))).reshape(X.shape)

    @cached_property
    def _lookup(self) -> tuple[Lookup, Array]:
        """The keys, and the values with the default at the end."""
        keys, values, default = self._pairs()
        return Lookup(keys, has_nan=self._finds_nan), np.append(values, np.array([default], values.dtype))

    def _pairs(self) -> tuple[Array, Array, Any]:
        """Keys, values, and the default."""
        return self._one("keys")[0], *self._one("values")

    def _one(self, side: str) -> tuple[Array, Any]:
        kinds: dict[str, tuple[Any, Any]] = {
            "floats": (np.float32, self.default_float),
            "int64s": (np.int64, self.default_int64),
            "strings": (object, self.default_string),
        }
        given = [(kind, value) for kind in kinds if (value := getattr(self, f"{side}_{kind}"))]
        if len(given) != 1:
            names = ", ".join(f"{side}_{kind}" for kind, _ in given) or "none"
            raise OperatorError(f"of the attributes {side}_... {names} are given; accepted: one")
        ((kind, value),) = given
        dtype, default = kinds[kind]
        return np.array(value, dtype), default


class LabelEncoder_2(_Encoder):
    """Keys and values in attributes by their types."""

    since = 2


class LabelEncoder_4(_Encoder):
    """Keys, values and default may also be tensors, and NaN may be a key."""

    since = 4
    types = {"T1": _TYPES, "T2": _TYPES}
    keys_tensor: NDArray[Any] | None = None
    values_tensor: NDArray[Any] | None = None
    default_tensor: NDArray[Any] | None = None
    _finds_nan = True

    def _one(self, side: str) -> tuple[Array, Any]:
        tensor = self.keys_tensor if side == "keys" else self.values_tensor
        if tensor is None:
            return super()._one(side)
        if self.default_tensor is not None:
            default = self.default_tensor.reshape(-1)[0]
        else:
            default = {"f": self.default_float, "i": self.default_int64}.get(tensor.dtype.kind, self.default_string)
        return tensor.reshape(-1), default
