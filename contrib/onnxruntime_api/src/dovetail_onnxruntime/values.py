"""`OrtValue` and `OrtDevice`: values with onnxruntime's questions and answers, in the host's memory or kept by a device."""

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.device import DeviceArray
from dovetail.op import DType, TensorType
from dovetail_onnxruntime.absent import refuses_absent
from dovetail_onnxruntime.arguments import type_text
from dovetail_onnxruntime.noted import note

__all__ = ["OrtDevice", "OrtValue", "array_at", "element_dtype", "plain"]

_DEVICE_TYPES = ("cpu", "cuda", "cann", "dml", "webgpu", "gpu", "npu")


class OrtDevice:
    """A kind of device and a number, as `make` is given them."""

    def __init__(self, device_type: str = "cpu", device_id: int = 0) -> None:
        if device_type.lower() not in _DEVICE_TYPES:
            raise Exception(f"Unsupported device type: {device_type}")  # the class that onnxruntime raises
        self._type, self._id, self._vendor = device_type.lower(), device_id, 0

    @staticmethod
    def make(device_type: str, device_id: int = 0, vendor_id: int = -1) -> "OrtDevice":
        """The device of this kind and number. Raises `Exception` for an unknown kind, as onnxruntime does."""
        made = OrtDevice(device_type, device_id)
        made._vendor = max(int(vendor_id), 0)
        return made

    def device_type(self) -> str:
        """`cpu`, `cuda`, ..."""
        return self._type

    def device_id(self) -> int:
        """The number."""
        return self._id

    def device_vendor_id(self) -> int:
        """The number of the vendor that `make` was given; 0 for none."""
        return self._vendor

    def device_mem_type(self) -> int:
        """0, the device's own memory."""
        return 0


def _on_host(device_type: str, device_id: int = 0) -> None:
    if OrtDevice(device_type, device_id).device_type() != "cpu":
        note(f"OrtValue {device_type}", f"values for {device_type!r} stay in the host's memory; dovetail's devices copy them")


def element_dtype(element_type: Any) -> np.dtype[Any]:
    """The NumPy dtype of a NumPy type or of a number of `TensorProto.DataType`."""
    return DType.from_onnx(element_type).numpy if isinstance(element_type, int) else np.dtype(element_type)


def array_at(address: int, element_type: Any, shape: Sequence[int]) -> NDArray[Any]:
    """The array in host memory at an address, which the caller keeps alive."""
    dtype = element_dtype(element_type)
    count = int(np.prod(shape, dtype=np.int64))
    if not count:
        return np.empty(tuple(shape), dtype)
    buffer = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    return np.frombuffer(memoryview(buffer).cast("B"), dtype, count).reshape(tuple(shape))


def plain(value: Any) -> Any:
    """The content of an `OrtValue`; anything else as it is."""
    return value._value if isinstance(value, OrtValue) else value


@refuses_absent
class OrtValue:
    """A tensor (an array, shared and not copied, or one that a device keeps), a sequence, a map, or nothing."""

    def __init__(self, value: Any) -> None:
        self._value = plain(value)

    @classmethod
    def ortvalue_from_numpy(
        cls, numpy_obj: NDArray[Any], /, device_type: str = "cpu", device_id: int = 0, vendor_id: int = -1
    ) -> "OrtValue":
        """The value of an array, which is shared where it is C-contiguous."""
        _on_host(device_type, device_id)
        return cls(np.ascontiguousarray(numpy_obj) if np.ndim(numpy_obj) else np.asarray(numpy_obj))

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(cls, data: NDArray[Any], /, onnx_element_type: int) -> "OrtValue":
        """The value of an array whose bytes are read as another element type of the same size."""
        return cls(np.ascontiguousarray(data).view(element_dtype(onnx_element_type)))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls,
        shape: Sequence[int],
        element_type: Any,
        device_type: str = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
        memory_info: Any = None,
    ) -> "OrtValue":
        """A value of zeros."""
        _on_host(device_type, device_id)
        return cls(np.zeros(tuple(shape), element_dtype(element_type)))

    @classmethod
    def from_dlpack(cls, data: Any, /) -> "OrtValue":
        """The value of an object with `__dlpack__` (torch, jax, cupy on the host), whose memory is shared."""
        return cls(np.from_dlpack(data))

    def _described(self) -> Any:
        """The array, wherever it is. Raises `RuntimeError` for what is not a tensor."""
        if not self.is_tensor():
            raise RuntimeError(f"Only OrtValues that are Tensors are currently supported; this is {self.data_type()}")
        return self._value

    def _on_host(self) -> Any:
        """The value; of an array that a device keeps a copy in the host's memory."""
        return np.asarray(self._value) if isinstance(self._value, DeviceArray) else self._value

    def _tensor(self) -> NDArray[Any]:
        """The array, which is in the host's memory from now on."""
        self._value = self._on_host() if self.is_tensor() else self._described()
        array: NDArray[Any] = self._value
        return array

    def numpy(self) -> NDArray[Any]:
        """The array, a copy if a device keeps it. Raises `RuntimeError` for what is not a tensor."""
        self._described()
        array: NDArray[Any] = self._on_host()
        return array

    def data_ptr(self) -> int:
        """The address of the first element."""
        return int(self._tensor().ctypes.data)

    def device_name(self) -> str:
        """`cpu`."""
        return "cpu"

    def shape(self) -> list[int]:
        """The dimensions."""
        return list(self._described().shape)

    def element_type(self) -> int:
        """The number of the element type in `TensorProto.DataType`."""
        return _dtype(self._described()).onnx

    def tensor_size_in_bytes(self) -> int:
        """The bytes of the elements."""
        found = self._described()
        return int(np.prod(found.shape, dtype=np.int64)) * int(found.dtype.itemsize)

    def data_type(self) -> str:
        """`tensor(float)`; for a sequence the type of its first item."""
        if self.is_tensor():
            return type_text(TensorType(_dtype(self._value), None))
        if isinstance(self._value, list) and self._value:
            return f"seq({OrtValue(self._value[0]).data_type()})"
        return "map" if isinstance(self._value, dict) else "seq" if isinstance(self._value, list) else "optional"

    def has_value(self) -> bool:
        """False for an optional that is absent."""
        return self._value is not None

    def is_tensor(self) -> bool:
        """True for an array."""
        return isinstance(self._value, np.ndarray | DeviceArray)

    def is_sparse_tensor(self) -> bool:
        """False."""
        return False

    def is_tensor_sequence(self) -> bool:
        """True for a list of arrays."""
        return isinstance(self._value, list) and all(isinstance(item, np.ndarray) for item in self._value)

    def update_inplace(self, data: NDArray[Any]) -> None:
        """Copy an array of the same size and type into the memory of this one. Raises `RuntimeError` for others."""
        array, given = self._tensor(), np.asarray(data)
        if given.size != array.size or given.dtype != array.dtype:
            raise RuntimeError("The input size of numpy arrays does not match the size of the OrtValue.")
        array.reshape(-1)[:] = given.reshape(-1)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        array = self.numpy()
        return np.array(array, dtype) if copy else np.asarray(array, dtype)

    def __dlpack__(self, **options: Any) -> Any:
        return self.numpy().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)  # kDLCPU


def _dtype(array: Any) -> DType:
    return DType.STRING if array.dtype.kind in "USO" else DType.of(array.dtype)
