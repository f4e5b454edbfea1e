"""Checks what a caller passes in, and makes of it arrays that devices may read."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy import ndarray
from numpy.typing import NDArray

from dovetail import _log
from dovetail.devices.device_array import DeviceArray
from dovetail.errors import InputError, did_you_mean
from dovetail.graph.dtype import DType
from dovetail.graph.model import Model
from dovetail.graph.types import ANONYMOUS, CONTAINERS, MapType, OptionalType, SequenceType, TensorType
from dovetail.names import printable, visible
from dovetail.planning.plan import Shapes

__all__ = ["InputReader", "apart"]


class InputReader:
    """The inputs of one model. Symbols (`N`) that have several sizes in a call are warned of, once for each.

    The shapes of the last call that was right are not looked at again.
    """

    def __init__(self, model: Model) -> None:
        self._names = tuple(model.inputs)
        self._types = tuple(model.inputs.values())
        self._all = tuple(model.graph.types[name] for name in model.graph.inputs)
        self._source = model.source
        self._known = (*self._names, *model.overridable)
        self._dtypes = [t.dtype.numpy for t in self._types]
        self._accepted: tuple[tuple[Any, ...], Shapes] = ((), ())
        self._warned: set[str] = set()
        self._contained = any(isinstance(t, CONTAINERS) for t in self._types)
        self._texts = tuple(i for i, t in enumerate(self._types) if t.dtype is DType.STRING)

    @property
    def static_shapes(self) -> tuple[tuple[int, ...], ...] | None:
        """The shapes of all inputs, states too, when the model leaves none open, else None."""
        return tuple(t.dims for t in self._all) if all(t.is_static for t in self._all) else None

    def read(self, inputs: Any) -> tuple[list[Any], Shapes | None]:
        """Native, aligned, C-contiguous arrays in the order of the model's inputs, copies only where they have to be; and their
        shapes, None where there are other values than arrays.

        A sequence becomes a list of such arrays, a map a dictionary of plain values, an optional may be None.
        A `DeviceArray` stays as it is.

        `inputs` is a mapping by name, a sequence in order, a single array for a model of one input, or None for a model
        without inputs. An array is a NumPy array, a list, or what exports memory by DLPack (tensors of PyTorch, JAX, CuPy) or by
        the buffer protocol. Raises `InputError` naming the input, what was received and what is accepted.
        """
        accepted, shapes = self._accepted
        if type(inputs) is dict and len(inputs) == len(accepted) > 0:
            same: list[Any] = []
            for name, shape, dtype, flags in accepted:
                one = inputs.get(name)
                if type(one) is not ndarray or one.shape != shape or one.dtype != dtype or one.flags.num != flags:
                    break
                same.append(one)
            else:
                self._check_texts(same)
                return same, shapes
        given = self._in_order(inputs)
        if self._contained:
            return [self._as_value(i, value) for i, value in enumerate(given)], None
        arrays = [self._as_array(i, value) for i, value in enumerate(given)]
        on_device = DeviceArray in map(type, arrays)
        found = () if on_device else tuple((n, a.shape, a.dtype, a.flags.num) for n, a in zip(self._names, arrays, strict=True))
        if not found or found != accepted:
            self._check(self._names, self._types, arrays)
            shapes = tuple(array.shape for array in arrays)
            self._accepted = found, shapes
        self._check_texts(arrays)
        return arrays, None if on_device else shapes

    def _in_order(self, inputs: Any) -> Sequence[Any]:
        if type(inputs) is dict or isinstance(inputs, Mapping):
            return self._by_name(inputs)
        if inputs is None:
            given: Sequence[Any] = ()
        elif isinstance(inputs, np.ndarray) or not isinstance(inputs, (list, tuple)):
            given = (inputs,)
        else:
            # One nested list is the content of a single input; otherwise a sequence holds one entry an input.
            one = len(self._names) == 1 and not (len(inputs) == 1 and hasattr(inputs[0], "__dlpack__"))
            given = (inputs,) if one else inputs
        if len(given) != len(self._names):
            raise InputError(f"{self._source} takes {len(self._names)} inputs ({self._listed()}), got {len(given)}")
        return given

    def _by_name(self, inputs: Mapping[Any, Any]) -> Sequence[Any]:
        try:
            if len(inputs) == len(self._names):
                return [inputs[name] for name in self._names]
        except KeyError:
            pass  # positions among the names, or a wrong name
        given = [self._names[k] if isinstance(k, int) and 0 <= k < len(self._names) else k for k in inputs]
        for name in given:
            if name not in self._names:
                raise InputError(f"{self._source} has no input {name!r}", hint=did_you_mean(str(name), self._known))
        for name in self._names:
            if name not in given:
                raise InputError(f"the input {name!r} of {self._source} is missing; it takes {self._listed()}")
        values = dict(zip(given, inputs.values(), strict=True))
        return [values[name] for name in self._names]

    def _as_array(self, index: int, value: Any) -> Any:
        if isinstance(value, DeviceArray):
            return value
        dtype = self._dtypes[index]
        array: NDArray[Any] = value if type(value) is np.ndarray else self._converted(index, value)
        if array.dtype is not dtype and array.dtype != dtype:
            text = array.dtype.kind in "UT"  # NumPy's StringDType, T, has no byte order to ask for
            if self._types[index].dtype is DType.STRING if text else array.dtype.newbyteorder("=") == dtype:
                array = array.astype(dtype)
        flags = array.flags
        return array if flags.c_contiguous and flags.aligned else np.array(array, order="C", copy=True)

    def _as_value(self, index: int, value: Any) -> Any:
        """The value of a model that has containers among its inputs: an array, a list, a dictionary, or None."""
        name, expected = self._names[index], self._types[index]
        if isinstance(expected, MapType):
            return _as_map(name, expected, value)
        if value is None and isinstance(expected, OptionalType):
            return None
        is_list = isinstance(value, list | tuple)
        if isinstance(expected, SequenceType) and not is_list:
            parts = "arrays" if expected.keys is None else "dictionaries"
            raise InputError(f"input {name!r} is {type(value).__name__}; accepted: a list of {parts}, {expected}")
        if isinstance(expected, SequenceType) and isinstance(expected.items, MapType):
            return [_as_map(name, expected.items, item) for item in value]
        if not is_list or not isinstance(expected, SequenceType | OptionalType):
            array = self._as_array(index, value)
            self._check_one(index, array)
            return array
        items = [self._as_array(index, item) for item in value]
        for item in items:
            self._check_one(index, item)
        return items

    def _check_one(self, index: int, array: NDArray[Any]) -> None:
        name, tensor = self._names[index], TensorType(self._types[index].dtype, self._types[index].shape)
        self._check((name,), (tensor,), (array,))
        if tensor.dtype is DType.STRING:
            _check_strings(name, tensor, array)

    def _converted(self, index: int, value: Any) -> NDArray[Any]:
        if isinstance(value, np.ndarray):
            return np.asarray(value)
        name, expected = self._names[index], self._types[index]
        try:
            array = _exported(value) if hasattr(value, "__dlpack__") else np.asarray(value)
        except BufferError as error:
            raise InputError(
                f"input {name!r} is a {type(value).__name__} that exports no memory of the CPU ({error}); accepted: {expected}",
                hint="bring it to the CPU's memory, without a gradient: with PyTorch, .detach().cpu()",
            ) from None
        except ValueError as error:
            raise InputError(
                f"input {name!r} is a {type(value).__name__} that makes no array ({error}); accepted: {expected}"
            ) from None
        if array.dtype.kind in "US" and expected.dtype is not DType.STRING:
            raise InputError(f"input {name!r} is {value!r:.60} ({type(value).__name__}); accepted: an array {expected}")
        # A list or scalar carries no data type of its own, so it takes the input's, unless digits would be lost.
        if hasattr(value, "dtype") or array.dtype == object or not np.can_cast(array.dtype, expected.dtype.numpy, "same_kind"):
            if array.dtype == object and expected.dtype is not DType.STRING:
                raise InputError(f"input {name!r} is {value!r:.60} ({type(value).__name__}); accepted: an array {expected}")
            if hasattr(value, "dtype") or expected.dtype is not DType.STRING:
                return array
        return array.astype(expected.dtype.numpy, copy=False)

    def _check(self, names: Sequence[str], types: Sequence[TensorType], arrays: Sequence[NDArray[Any]]) -> None:
        symbols: dict[str, tuple[int, str]] = {}
        for name, expected, array in zip(names, types, arrays, strict=True):
            if array.dtype != expected.dtype.numpy:
                hint = f"convert it: .astype({'str' if expected.dtype is DType.STRING else repr(expected.dtype.value)})"
                raise InputError(f"input {name!r} is {array.dtype}{list(array.shape)}; accepted: {expected}", hint=hint)
            if expected.shape is None:
                continue
            if len(expected.shape) != array.ndim:
                what = f"input {name!r} has rank {array.ndim}, shape {list(array.shape)}; accepted: {expected}"
                raise InputError(what, hint=_rearranged(array.shape, expected.shape))
            for axis, (want, got) in enumerate(zip(expected.shape, array.shape, strict=True)):
                if isinstance(want, int) and want != got:
                    what = f"input {name!r} has shape {list(array.shape)}, dimension {axis} is {got}; accepted: {expected}"
                    raise InputError(what, hint=_rearranged(array.shape, expected.shape))
                self._check_symbol(name, axis, want, got, symbols)

    def _check_texts(self, arrays: Sequence[Any]) -> None:
        """In each call: an array of objects can hold anything."""
        for index in self._texts:
            if isinstance(arrays[index], np.ndarray):
                _check_strings(self._names[index], self._types[index], arrays[index])

    def _check_symbol(self, name: str, axis: int, want: Any, got: int, symbols: dict[str, tuple[int, str]]) -> None:
        if isinstance(want, str) and want not in ANONYMOUS:
            size, first = symbols.setdefault(want, (got, name))
            if size != got and want not in self._warned:
                # Not an error: exporters give one name to dimensions that have nothing to do with each other.
                self._warned.add(want)
                what = f"input {name!r}: dimension {axis} ({want}) is {got}, but {want} is {size} in input {first!r}"
                _log.warning("%s: %s", printable(self._source), visible(what))

    def _listed(self) -> str:
        return ", ".join(f"{name}: {t}" for name, t in zip(self._names, self._types, strict=True))


def _check_strings(name: str, expected: TensorType, array: NDArray[Any]) -> None:
    if not all(issubclass(kind, str) for kind in set(map(type, array.flat))):
        wrong = next(value for value in array.flat if not isinstance(value, str))
        what = f"input {name!r} has the element {wrong!r:.60} ({type(wrong).__name__}); accepted: {expected}"
        raise InputError(what, hint="convert it: .astype(str), or bytes with .decode()")


def _rearranged(shape: Sequence[int], expected: Sequence[Any]) -> str:
    """How to make an array fit that lacks the axis of the batch, or has its channels at the other end; empty otherwise."""
    ways = {
        "one sample without a batch? array[numpy.newaxis]": (1, *shape),
        "channels last? numpy.moveaxis(array, -1, 1)": (*shape[:1], *shape[-1:], *shape[1:-1]),
        "channels first? numpy.moveaxis(array, 1, -1)": (*shape[:1], *shape[2:], *shape[1:2]),
    }
    for way, made in ways.items():
        if len(made) == len(expected) and all(
            want == got or not isinstance(want, int) for want, got in zip(expected, made, strict=True)
        ):
            return way
    return ""


def _exported(value: Any) -> NDArray[Any]:
    """The memory that a DLPack producer exports, without a copy; of another device as a copy, if it can be had.

    Raises `BufferError`.
    """
    on_cpu = value.__dlpack_device__()[0] == _DLPACK_CPU
    try:
        return np.from_dlpack(value) if on_cpu else np.from_dlpack(value, device="cpu", copy=True)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        # Data types that NumPy's DLPack lacks, and NumPy before 2.1, which copies from no device: the producer may convert.
        try:
            return np.asarray(value)
        except (RuntimeError, TypeError, ValueError):
            raise BufferError(str(error)) from None


_DLPACK_CPU = 1
"""`kDLCPU` of DLPack's device types."""


def _as_map(name: str, expected: MapType, value: Any) -> dict[Any, Any]:
    """A dictionary of `int` or `str` to strings, or numbers of the right type. Raises `InputError`."""
    if not isinstance(value, Mapping):
        raise InputError(f"input {name!r} is {type(value).__name__}; accepted: a dictionary, {expected}")
    kinds: tuple[type, ...] = (str,) if expected.keys is DType.STRING else (int, np.integer)
    for key in value:
        if not isinstance(key, kinds) or isinstance(key, bool):
            raise InputError(f"input {name!r} has the key {key!r:.60} ({type(key).__name__}); accepted: {expected}")
    keys = [key if isinstance(key, str) else int(key) for key in value]
    return dict(zip(keys, _plain(name, expected, list(value.values())), strict=True))


def _plain(name: str, expected: MapType, values: list[Any]) -> list[Any]:
    if expected.dtype is DType.STRING:
        others = (v for v in values if not isinstance(v, str))
    else:
        others = (v for v in values if np.ndim(v) or not np.can_cast(np.asarray(v).dtype, expected.dtype.numpy, "same_kind"))
    if (wrong := next(others, None)) is not None:
        raise InputError(f"input {name!r} has the value {wrong!r:.60} ({type(wrong).__name__}); accepted: {expected}")
    # Numbers keep their type, from which readers know the data type.
    return values if expected.dtype is DType.STRING else list(np.array(values, expected.dtype.numpy))


def apart(values: Sequence[Any], lent: Sequence[Any]) -> list[Any]:
    """The values, with copies of arrays whose memory may be that of `lent`: a run may write there before it has read them."""
    arrays = [one for one in lent if isinstance(one, np.ndarray)]
    return [v.copy() if isinstance(v, np.ndarray) and any(np.may_share_memory(v, one) for one in arrays) else v for v in values]
