"""Context of a translation: one layer, the values that it reads, its attributes, and the nodes that it makes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.frontend import Dim, DType, FormatError, UnboundOperator, printable
from dovetail_frontend_openvino.emit import ONNX_VERSION, Emitter
from dovetail_frontend_openvino.layers import Layer, Net
from dovetail_frontend_openvino.text import boolean, decimal, element_type, integer, integers, items

__all__ = ["Call", "LinkBody", "Outputs", "Table", "Value"]

_REQUIRED: Any = object()


@dataclass(frozen=True, slots=True)
class Value:
    """A value with its declared type; `dtype` and `shape` are None where the file leaves them open."""

    name: str
    dtype: DType | None
    shape: tuple[Dim, ...] | None


LinkBody = Callable[[Net, Emitter, Mapping[int, Value]], Mapping[int, Value]]
"""(body, emitter, values of its Parameters by id) -> the values of its Results by id."""

Outputs = str | tuple[str, ...]
"""Result of a translation: the value of each output port. A tuple may be shorter; a port left out has no users."""

_MOST_ELEMENTS = 2**20


class Call:
    """One layer to be translated. Errors name attribute or input; the linker adds layer and line."""

    def __init__(self, layer: Layer, inputs: tuple[Value, ...], used: frozenset[int], emitter: Emitter, link: LinkBody) -> None:
        self.layer = layer
        self.inputs = inputs
        self.used = used
        self.emitter = emitter
        self.link = link

    # --- inputs ----------------------------------------------------------------------------------------------------

    def has(self, index: int) -> bool:
        """Whether there is an input of this number."""
        return index < len(self.inputs)

    def value(self, index: int) -> Value:
        """An input. Raises `FormatError` when the layer has fewer."""
        if not self.has(index):
            raise FormatError(f"the layer has {len(self.inputs)} inputs; input {index} is missing")
        return self.inputs[index]

    def name(self, index: int) -> str:
        """The name of an input."""
        return self.value(index).name

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all inputs."""
        return tuple(value.name for value in self.inputs)

    def shape(self, index: int) -> tuple[Dim, ...]:
        """The declared shape. Raises `FormatError` when not even the rank is known."""
        found = self.value(index).shape
        if found is None:
            known = self.known(index)
            if known is not None:
                return known.shape
            raise FormatError(f"the rank of input {index} is not declared", hint="it is needed to translate this operation")
        return found

    def rank(self, index: int) -> int:
        """The declared rank."""
        return len(self.shape(index))

    def dims(self, index: int) -> tuple[int, ...]:
        """The declared shape, all of it numbers."""
        found = self.shape(index)
        sizes = tuple(d for d in found if isinstance(d, int))
        if len(sizes) < len(found):
            raise FormatError(f"the shape of input {index} is open", hint="it must be declared to translate this operation")
        return sizes

    def size(self, index: int, axis: int) -> int:
        """One declared dimension, a number."""
        found = self.shape(index)[self.axis(axis, self.rank(index))]
        if not isinstance(found, int):
            raise FormatError(
                f"dimension {axis} of input {index} is open", hint="it must be declared to translate this operation"
            )
        return found

    def dtype(self, index: int) -> DType:
        """The declared element type."""
        found = self.value(index).dtype
        if found is None:
            raise FormatError(f"the element type of input {index} is not declared")
        return found

    def known(self, index: int) -> NDArray[Any] | None:
        """The content of an input that is a constant, or None."""
        return self.emitter.known(self.name(index)) if self.has(index) else None

    def constant(self, index: int, what: str) -> NDArray[Any]:
        """The content of an input that must be a small constant."""
        found = self.known(index)
        if found is None or found.size > _MOST_ELEMENTS:
            raise FormatError(f"input {index} ({what}) is computed while the model runs", hint="accepted: a constant")
        return found

    def integers(self, index: int, what: str) -> tuple[int, ...]:
        """The integers of a constant input."""
        found = self.constant(index, what)
        if found.dtype.kind not in "iu":
            raise FormatError(f"input {index} ({what}) is {found.dtype}", hint="accepted: integers")
        return tuple(found.reshape(-1).tolist())

    def integer(self, index: int, what: str) -> int:
        """The only integer of a constant input."""
        return int(self._single(self.integers(index, what), index, what))

    def scalar(self, index: int, what: str) -> float | None:
        """The only number of a constant input, or None when it is not a constant."""
        found = self.known(index)
        return None if found is None else float(self._single(found.reshape(-1).tolist(), index, what))

    def _single(self, values: Any, index: int, what: str) -> Any:
        if len(values) != 1:
            raise FormatError(f"input {index} ({what}) has {len(values)} elements", hint="accepted: one")
        return values[0]

    def axis(self, axis: int, rank: int) -> int:
        """An axis from 0 on. Raises `FormatError` when it is out of range."""
        if not -rank <= axis < rank:
            raise FormatError(f"the axis is {axis}; accepted: {-rank} to {rank - 1}")
        return axis % rank

    def axes(self, index: int, rank: int) -> tuple[int, ...]:
        """The axes of a constant input, from 0 on, each once."""
        found = tuple(self.axis(a, rank) for a in self.integers(index, "axes"))
        if len(set(found)) < len(found):
            raise FormatError(f"input {index} (axes) has an axis twice: {found}")
        return found

    # --- attributes ------------------------------------------------------------------------------------------------

    def text_attr(self, name: str, default: str = _REQUIRED) -> str:
        """An attribute as it is written. Raises `FormatError` when it is missing and has no default."""
        found = self.layer.attributes.get(name, default)
        if found is _REQUIRED:
            raise FormatError(f"the attribute '{name}' is missing")
        return found

    def choice_attr(self, name: str, accepted: Mapping[str, str], default: str = _REQUIRED) -> str:
        """An attribute that is one of the keys; returns what stands for it."""
        given = self.text_attr(name, default)
        found = accepted.get(given.strip().lower())
        if found is None:
            raise FormatError(f"the attribute '{name}' is '{printable(given)}'", hint=f"accepted: {', '.join(accepted)}")
        return found

    def int_attr(self, name: str, default: int = _REQUIRED) -> int:
        """An attribute that is an integer."""
        return default if self._left_out(name, default) else integer(self.text_attr(name), f"the attribute '{name}'")

    def ints_attr(self, name: str, default: tuple[int, ...] = _REQUIRED) -> tuple[int, ...]:
        """An attribute that is a list of integers."""
        return default if self._left_out(name, default) else integers(self.text_attr(name), f"the attribute '{name}'")

    def float_attr(self, name: str, default: float = _REQUIRED) -> float:
        """An attribute that is a number."""
        return default if self._left_out(name, default) else decimal(self.text_attr(name), name)

    def floats_attr(self, name: str, default: tuple[float, ...] = _REQUIRED) -> tuple[float, ...]:
        """An attribute that is a list of numbers."""
        if self._left_out(name, default):
            return default
        return tuple(decimal(item, name) for item in items(self.text_attr(name)))

    def bool_attr(self, name: str, default: bool = _REQUIRED) -> bool:
        """An attribute that is `true` or `false`."""
        return default if self._left_out(name, default) else boolean(self.text_attr(name), f"the attribute '{name}'")

    def type_attr(self, name: str, default: DType = _REQUIRED) -> DType:
        """An attribute that is an element type."""
        found = default if self._left_out(name, default) else element_type(self.text_attr(name), f"the attribute '{name}'")
        if found is None:
            raise FormatError(f"the attribute '{name}' leaves the type open")
        return found

    def _left_out(self, name: str, default: Any) -> bool:
        return name not in self.layer.attributes and default is not _REQUIRED

    # --- nodes -----------------------------------------------------------------------------------------------------

    def op(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """Add a node of one output; returns its name."""
        return self.ops(op_type, 1, *inputs, **attributes)[0]

    def ops(self, op_type: str, outputs: int, *inputs: str, **attributes: Any) -> tuple[str, ...]:
        """Add a node; returns the names of its outputs."""
        return self.emitter.node(UnboundOperator("", op_type, ONNX_VERSION, attributes), inputs, outputs, self.layer.name)

    def own(self, op_type: str, outputs: int, *inputs: str, **attributes: Any) -> tuple[str, ...]:
        """Add a node of an operator of this package; returns the names of its outputs."""
        return self.emitter.node(UnboundOperator("openvino", op_type, 1, attributes), inputs, outputs, self.layer.name)

    def const(self, array: Any, dtype: DType | None = None) -> str:
        """A constant; Python integers without a type are int64."""
        given = np.asarray(array, np.int64 if dtype is None and not isinstance(array, np.ndarray) else None)
        return self.emitter.constant(given if dtype is None else given.astype(dtype.numpy), f"{self.layer.name}/constant")

    def like(self, value: Any, index: int) -> str:
        """A scalar constant of the type of an input."""
        return self.const(np.asarray(value), self.dtype(index))

    def cast(self, name: str, dtype: DType) -> str:
        """The value in another type."""
        result = self.op("Cast", name, to=dtype.onnx)
        self.emitter.casts[result] = (name, dtype)
        return result

    def index_list(self, index: int) -> str:
        """An input as a list of int64, as ONNX wants axes, sizes and pads."""
        found = self.known(index)
        if found is not None and found.dtype.kind in "iu" and found.size <= _MOST_ELEMENTS:
            return self.const(found.astype(np.int64).reshape(-1))
        name = self.name(index)
        wide = name if self.value(index).dtype is DType.INT64 else self.cast(name, DType.INT64)
        return (
            wide if self.value(index).shape is not None and self.rank(index) == 1 else self.op("Reshape", wide, self.const([-1]))
        )

    def transpose(self, name: str, perm: Any) -> str:
        """The value with its dimensions in another order; itself where that is the same."""
        order = tuple(perm)
        return name if order == tuple(range(len(order))) else self.op("Transpose", name, perm=order)


Table = Mapping[str, Callable[[Call], Outputs]]
"""Operation type -> how it is expressed in ONNX operators."""
