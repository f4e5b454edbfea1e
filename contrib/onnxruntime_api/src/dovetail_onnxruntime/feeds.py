"""Checks the inputs of a run in onnxruntime's words, and converts them to what a compiled model takes."""

from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.device import DeviceArray
from dovetail.errors import UsageError
from dovetail.op import DType, MapType, OptionalType, SequenceType, TensorType
from dovetail_onnxruntime.arguments import type_text
from dovetail_onnxruntime.exceptions import InvalidArgument, coded
from dovetail_onnxruntime.values import plain

__all__ = ["FeedReader", "result"]

_TEXTS = "USTO"
"""Kinds of NumPy types that hold strings."""
_PLAIN = frozenset({float, int, str})
_FIX = "Please fix either the inputs/outputs or the model."


class FeedReader:
    """The inputs of one model, in order; a feed may also have some of its `overridable` initializers.

    The types and shapes of the last feed that was right are not looked at again.
    """

    def __init__(self, inputs: Mapping[str, TensorType], overridable: Mapping[str, TensorType]) -> None:
        self._inputs = {**inputs, **overridable}
        self._optional = [name for name, declared in inputs.items() if isinstance(declared, OptionalType)]
        self._required = [name for name in inputs if name not in self._optional]
        self._shapes = {name: tuple(d if isinstance(d, int) else None for d in t.shape or ()) for name, t in self._inputs.items()}
        self._plain = {
            name: (t.dtype.numpy, len(shape), [(i, size) for i, size in enumerate(shape) if size is not None])
            for name, t in self._inputs.items()
            if type(t) is TensorType and t.shape is not None and t.dtype is not DType.STRING
            for shape in (self._shapes[name],)
        }
        # Arrays of strings look alike whatever objects they hold.
        self._repeatable = not self._optional and all(t.dtype is not DType.STRING for t in self._inputs.values())
        self._accepted: tuple[tuple[str, Any, tuple[int, ...]], ...] = ()

    def read(self, feed: Mapping[str, Any]) -> Mapping[str, Any]:
        """Values by name for a compiled model.

        Raises `ValueError` for missing inputs, `InvalidArgument` for unknown names, other element types, ranks and sizes,
        `RuntimeError` for objects other than arrays, as onnxruntime does.
        """
        if type(feed) is dict and len(feed) == len(self._accepted) > 0:
            for name, dtype, shape in self._accepted:
                value = feed.get(name)
                if type(value) is not np.ndarray or value.dtype != dtype or value.shape != shape:
                    break
            else:
                return feed
        if not isinstance(feed, Mapping):
            raise AttributeError(f"the inputs are a {type(feed).__name__}; accepted: a dictionary, name -> value")
        missing = [name for name in self._required if name not in feed]
        if missing:
            raise ValueError(f"Required inputs ({missing}) are missing from input feed ({list(feed.keys())}).")
        found: dict[str, Any] = {}
        for name, value in feed.items():
            if type(value) is np.ndarray and self._fits(name, value):
                found[name] = value
                continue
            declared = self._inputs.get(name)
            if declared is None:
                raise coded(InvalidArgument, f"Invalid input name: {name}")
            found[name] = self._value(name, declared, plain(value))
        if self._repeatable and all(type(value) is np.ndarray and found[name] is value for name, value in feed.items()):
            self._accepted = tuple((name, value.dtype, value.shape) for name, value in feed.items())
        for name in self._optional:
            found.setdefault(name, None)
        return found

    def _fits(self, name: str, array: NDArray[Any]) -> bool:
        """Whether the array is as declared, which is found in a fourth of the time of `_value`: decoders have many caches."""
        dtype, rank, sizes = self._plain.get(name, (None, -1, ()))
        shape = array.shape
        return len(shape) == rank and array.dtype == dtype and all(shape[axis] == size for axis, size in sizes)

    def _value(self, name: str, declared: TensorType, value: Any) -> Any:
        if type(declared) is not TensorType:
            return _container(name, declared, value)
        array = value if type(value) in (np.ndarray, DeviceArray) else _array(name, declared, value)
        if array.dtype != declared.dtype.numpy or declared.dtype is DType.STRING:
            array = _converted(name, array, declared)
        if declared.shape == () and type(array) is np.ndarray and array.size == 1:
            return array.reshape(())  # onnxruntime checks no rank where the declared one is 0, and programs give [16000]
        self._check_shape(name, declared, array)
        return array

    def _check_shape(self, name: str, declared: TensorType, array: NDArray[Any]) -> None:
        if declared.shape is None:
            return
        wanted, shape = self._shapes[name], array.shape
        if len(shape) != len(wanted):
            message = f"Invalid rank for input: {name} Got: {len(shape)} Expected: {len(wanted)} {_FIX}"
            raise coded(InvalidArgument, message)
        if shape != wanted:
            wrong = [(i, got, want) for i, (got, want) in enumerate(zip(shape, wanted, strict=True)) if want not in (None, got)]
            if wrong:
                lines = "".join(f" index: {i} Got: {got} Expected: {want}\n" for i, got, want in wrong)
                message = f"Got invalid dimensions for input: {name} for the following indices\n{lines} {_FIX}"
                raise coded(InvalidArgument, message)


def _array(name: str, declared: TensorType, value: Any) -> NDArray[Any]:
    """An array of a list (which takes the input's type), of a subclass of arrays, or of another library's array."""
    if isinstance(value, list):
        try:
            return np.array(value, declared.dtype.numpy)
        except (ValueError, TypeError) as error:
            raise RuntimeError(f"Input {name!r}: the list makes no {type_text(declared)}: {error}") from error
    if isinstance(value, np.ndarray):
        return np.asarray(value)
    if isinstance(value, tuple):
        raise RuntimeError(f"Input must be a list of dictionaries or a single numpy array for input '{name}'.")
    if not isinstance(value, np.generic):
        if hasattr(value, "__dlpack__"):
            return np.from_dlpack(value)
        if hasattr(value, "__array__"):
            return np.asarray(value)
    raise RuntimeError(f"Unable to handle object of type {type(value)}")


def _converted(name: str, array: NDArray[Any], declared: TensorType) -> NDArray[Any]:
    """Strings as objects, other byte orders as the native one.

    Raises `InvalidArgument` for another element type, `RuntimeError` for one that no tensor has.
    """
    is_text = array.dtype.kind in _TEXTS
    if is_text and declared.dtype is DType.STRING:
        return _strings(array)
    if not is_text and array.dtype.newbyteorder("=") == declared.dtype.numpy:
        return array.astype(declared.dtype.numpy)
    try:
        actual = "tensor(string)" if is_text else type_text(TensorType(DType.of(array.dtype), None))
    except UsageError:
        raise RuntimeError(f"Input '{name}' is {array.dtype}; accepted: {type_text(declared)}") from None
    message = f"Unexpected input data type. Actual: ({actual}) , expected: ({type_text(declared)})"
    raise coded(InvalidArgument, message)


def _strings(array: NDArray[Any]) -> NDArray[Any]:
    """The array with `str` elements only: itself where it has no others. As in onnxruntime, other objects become their text."""
    if array.dtype.kind == "O" and set(map(type, array.flat)) <= {str}:
        return array
    found = np.empty(array.shape, object)
    found.reshape(-1)[:] = [item.decode() if isinstance(item, bytes) else str(item) for item in array.reshape(-1)]
    return found


def _container(name: str, declared: TensorType, value: Any) -> Any:
    if value is None and isinstance(declared, OptionalType):
        return None
    wanted: dict[type, tuple[type, ...]] = {MapType: (dict, list), SequenceType: (list,)}
    accepted = wanted.get(type(declared))
    if accepted is not None and not isinstance(value, accepted):
        raise RuntimeError(f"Unable to handle object of type {type(value)} for input '{name}' of type {type_text(declared)}")
    if isinstance(declared, MapType) and isinstance(value, list):
        if len(value) != 1:
            raise RuntimeError(f"Input '{name}' is one map; given: a list of {len(value)}")
        return value[0]
    return [plain(item) for item in value] if isinstance(value, list) else value


def result(value: Any) -> Any:
    """An output as onnxruntime gives it: maps with plain numbers."""
    if isinstance(value, list):
        maps = set(map(type, value)) == {dict}
        if maps and _PLAIN.issuperset(map(type, chain.from_iterable(map(dict.values, value)))):
            return value
        return [result(item) for item in value]
    if isinstance(value, dict):
        return {key: item.item() if isinstance(item, np.generic) else item for key, item in value.items()}
    return value
