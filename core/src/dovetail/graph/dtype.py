"""Element types, with ONNX's numbers and NumPy's names."""

import enum
import functools
from typing import Any

import numpy as np

from dovetail.errors import UsageError, did_you_mean
from dovetail.locks import cached_property

__all__ = ["DType"]


class DType(enum.Enum):
    """An element type; the value is its NumPy or ml_dtypes name. `onnx` is its number in ONNX's TensorProto.DataType."""

    FLOAT32 = "float32"
    UINT8 = "uint8"
    INT8 = "int8"
    UINT16 = "uint16"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    STRING = "string"
    BOOL = "bool"
    FLOAT16 = "float16"
    FLOAT64 = "float64"
    UINT32 = "uint32"
    UINT64 = "uint64"
    COMPLEX64 = "complex64"
    COMPLEX128 = "complex128"
    BFLOAT16 = "bfloat16"
    FLOAT8_E4M3FN = "float8_e4m3fn"
    FLOAT8_E4M3FNUZ = "float8_e4m3fnuz"
    FLOAT8_E5M2 = "float8_e5m2"
    FLOAT8_E5M2FNUZ = "float8_e5m2fnuz"
    UINT4 = "uint4"
    INT4 = "int4"
    FLOAT4_E2M1 = "float4_e2m1fn"
    FLOAT8_E8M0 = "float8_e8m0fnu"
    UINT2 = "uint2"
    INT2 = "int2"
    FLOAT6_E2M3 = "float6_e2m3fn"
    FLOAT6_E3M2 = "float6_e3m2fn"

    def __repr__(self) -> str:
        return f"DType.{self.name}"

    def __str__(self) -> str:
        return self.value

    # Enum's own __hash__ is a Python function that hashes the name; members are singletons, so identity is right and cheaper.
    __hash__ = object.__hash__

    @cached_property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype of one element. Strings are `object`. Raises `UsageError` when ml_dtypes is needed and missing."""
        if self is DType.STRING:
            return np.dtype(object)
        try:
            plain: np.dtype[Any] = np.dtype(self.value)
        except TypeError:
            return _ml_dtype(self.value)
        return plain

    @cached_property
    def onnx(self) -> int:
        """The number of this type in ONNX's TensorProto.DataType."""
        return list(DType).index(self) + 1

    @cached_property
    def itemsize(self) -> int:
        """Bytes of one element in memory (packed types of 2, 4 and 6 bits take one byte each here)."""
        return self.numpy.itemsize

    @cached_property
    def is_float(self) -> bool:
        """True for real floating-point types of any width."""
        return self.value.startswith(("float", "bfloat"))

    @cached_property
    def is_integer(self) -> bool:
        """True for signed and unsigned integers, not for bool."""
        return self.value.startswith(("int", "uint"))

    @property
    def is_signed(self) -> bool:
        """True for signed integers and floating point."""
        return not self.value.startswith("uint") and self not in (DType.BOOL, DType.STRING)

    @staticmethod
    def of(value: "DType | np.dtype[Any] | type | str") -> "DType":
        """The DType of a NumPy dtype, a scalar type, a name, or a DType. Raises `UsageError` for anything else."""
        if isinstance(value, DType):
            return value
        if isinstance(value, str):
            return DType._named(value)
        try:
            dtype = np.dtype(value)
        except TypeError:
            message = f"a data type was expected, not {type(value).__name__}"
            raise UsageError(message, hint="a name such as 'float32', a NumPy dtype or scalar type, or a DType") from None
        return _of_numpy(dtype)

    @staticmethod
    def _named(name: str) -> "DType":
        if name in ("object", "str"):
            return DType.STRING
        try:
            return DType(name)
        except ValueError:
            raise UsageError(f"unknown data type {name!r}", hint=did_you_mean(name, (d.value for d in DType))) from None

    @staticmethod
    def from_onnx(number: int) -> "DType":
        """The DType of ONNX's TensorProto.DataType `number`. Raises `UsageError` for an unknown number."""
        if 1 <= number <= len(_IN_ONNX):
            return _IN_ONNX[number - 1]
        raise UsageError(f"unknown ONNX data type number {number}", hint=f"known: 1 to {len(_IN_ONNX)}")


_IN_ONNX = tuple(DType)


@functools.lru_cache(maxsize=256)  # NumPy puts the name of a data type together again each time
def _of_numpy(dtype: np.dtype[Any]) -> DType:
    return DType.STRING if dtype.kind in "USTO" else DType._named(dtype.name)


def _ml_dtype(name: str) -> np.dtype[Any]:
    try:
        import ml_dtypes
    except ImportError:
        raise UsageError(f"data type {name} needs the package ml_dtypes", hint="pip install ml_dtypes") from None
    found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return found
