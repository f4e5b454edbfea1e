"""Operator attributes: the types they may have, and reading them from a model file."""

import dataclasses
import operator
import reprlib
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass, fields_of
from dovetail.errors import OperatorError, UsageError, did_you_mean
from dovetail.graph.dtype import DType
from dovetail.graph.graph import Graph


class AttributeText(str):
    """An attribute of a format that writes values as text and does not say of which type they are, such as XML.

    Where it is read it becomes what the operator declares: `"1,2"` a tuple of numbers, `"true"` a bool.
    """

    __slots__ = ()

    def read(self, type_name: str) -> Any:
        """The value as an attribute of this type. Raises `ValueError` for other text."""
        if type_name.startswith("tuple["):
            inner = type_name.removeprefix("tuple[").partition(",")[0]
            return tuple(AttributeText(item.strip()).read(inner) for item in self.split(",")) if self.strip() else ()
        if type_name in ("int", "float"):
            return {"int": int, "float": float}[type_name](self)
        if type_name == "bool":
            return {"true": True, "1": True, "false": False, "0": False}.get(self.strip().lower(), self)
        return str(self)


@dataclass(frozen=True, slots=True)
class AttributeSpec:
    """One attribute: name, how its type reads, whether it is required, its default, and whether None means "left out".

    `kind` is the type that its values have in Python, `items` that of their elements.
    """

    name: str
    type_name: str
    required: bool
    default: Any
    optional: bool
    kind: type
    items: frozenset[type] | None

    def is_default(self, value: Any) -> bool:
        """True when `value` equals the default."""
        return type(value) is type(self.default) and not isinstance(value, np.ndarray) and bool(value == self.default)

    def read(self, value: Any) -> Any:
        """`value` from a model file as this attribute's type. Raises `OperatorError`."""
        # Read for every node of every model: nearly all values have their type already.
        found = type(value)
        if found is self.kind and (self.items is None or self.items.issuperset(map(type, value))):
            return value
        if value is None and self.optional:
            return None
        try:
            return _KINDS[self.type_name].read(value.read(self.type_name) if isinstance(value, AttributeText) else value)
        except (TypeError, ValueError, OverflowError, UsageError):
            accepted = self.type_name + " | None" * self.optional
            raise OperatorError(
                f"attribute {self.name!r} is {reprlib.repr(value)} ({type(value).__name__}); accepted: {accepted}",
                hint=f"give {_KINDS[self.type_name].example}",
            ) from None


def attribute_specs(cls: Any) -> Mapping[str, AttributeSpec]:
    """The attributes of a freshly made dataclass. Raises `OperatorError` for an annotation of another type."""
    fields = fields_of(cls).values()
    hints: Mapping[str, Any] = {f.name: f.type for f in fields}
    if any(isinstance(hint, str) for hint in hints.values()):
        hints = typing.get_type_hints(cls)  # looks at all annotations of all bases: a millisecond for each class
    return types.MappingProxyType({f.name: _spec(cls, f, hints[f.name]) for f in fields})


def _spec(cls: type, item: "dataclasses.Field[Any]", hint: Any) -> AttributeSpec:
    arguments = typing.get_args(hint) if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union else (hint,)
    kinds = [a for a in arguments if a is not type(None)]
    name = _type_name(kinds[0]) if len(kinds) == 1 else None
    if name is None:
        raise OperatorError(
            f"operator {cls.__qualname__}: attribute {item.name!r} has type {hint}",
            hint=f"accepted: {', '.join(_KINDS)}, each also with '| None'; write ClassVar[...] for what is not an attribute",
        )
    required = item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING
    default = None if required else item.default
    return AttributeSpec(item.name, name, required, default, len(kinds) < len(arguments), _KINDS[name].python, _ITEMS.get(name))


def _type_name(kind: Any) -> str | None:
    if kind in (int, float, str, bool, DType, Graph):
        return str(kind.__name__)
    if typing.get_origin(kind) is tuple:
        inner = typing.get_args(kind)
        if len(inner) == 2 and inner[1] is Ellipsis and inner[0] in (int, float, str):
            return f"tuple[{inner[0].__name__}, ...]"
    # NDArray[X] is an alias of ndarray[...] up to NumPy 2.4, and from 2.5 on (Python 3.12 and later) a type of its own.
    if kind is np.ndarray or typing.get_origin(kind) in (np.ndarray, NDArray):
        return "NDArray"
    return None


def read_attributes(cls: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Constructor arguments for `cls` from raw attributes. Raises `OperatorError` for a missing, unknown or mistyped one."""
    specs = cls.attributes
    for name in given:
        if name not in specs:
            raise OperatorError(f"unknown attribute {name!r}", hint=_instead(cls, name))
    values = {name: specs[name].read(value) for name, value in given.items()}
    for name in cls._required:
        if name not in values:
            raise OperatorError(
                f"the required attribute {name!r} is missing", hint=f"give {_KINDS[specs[name].type_name].example}"
            )
    return values


def _instead(cls: Any, name: str) -> str:
    """A hint for an unknown attribute."""
    kind = type(default := vars(cls).get(name)).__name__
    if kind in ("int", "float", "str", "bool"):
        return f"in {cls.__qualname__}, {name} has no annotation: write {name}: {kind} = {default!r}"
    return did_you_mean(name, cls.attributes) or f"known: {', '.join(cls.attributes) or 'none'}"


def _int(value: Any) -> int:
    return int(value) if isinstance(value, np.bool_) else operator.index(value)


def _float(value: Any) -> float:
    # Numbers of any library have the method; strings, for which float() works too, do not.
    if hasattr(value, "__float__") and np.ndim(value) == 0:
        return float(value)
    raise TypeError


def _str(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, str):
        return str(value)
    raise TypeError


def _bool(value: Any) -> bool:
    if _int(value) not in (0, 1):
        raise ValueError
    return bool(value)


def _dtype(value: Any) -> DType:
    return DType.from_onnx(value) if isinstance(value, int) else DType.of(value)


def _instance(kind: type) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if isinstance(value, kind):
            return value
        raise TypeError

    return read


def _tuple(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def convert(value: Any) -> tuple[Any, ...]:
        if isinstance(value, (str, bytes)):
            raise TypeError
        return tuple(read(item) for item in value)

    return convert


@dataclass(frozen=True)
class _Kind:
    """A type of attributes: how values are read, the type that they have then, and a value to write instead of another."""

    read: Callable[[Any], Any]
    python: type
    example: str


_KINDS: dict[str, _Kind] = {
    "int": _Kind(_int, int, "a whole number, such as 2"),
    "float": _Kind(_float, float, "a number, such as 0.5"),
    "str": _Kind(_str, str, 'a string, such as "linear"'),
    "bool": _Kind(_bool, bool, "True or False"),
    "DType": _Kind(_dtype, DType, 'a data type, such as DType.FLOAT32 or "float32"'),
    "tuple[int, ...]": _Kind(_tuple(_int), tuple, "a tuple or list of whole numbers, such as (1, 2)"),
    "tuple[float, ...]": _Kind(_tuple(_float), tuple, "a tuple or list of numbers, such as (0.5, 2.0)"),
    "tuple[str, ...]": _Kind(_tuple(_str), tuple, 'a tuple or list of strings, such as ("a", "b")'),
    "NDArray": _Kind(_instance(np.ndarray), np.ndarray, "a NumPy array, such as numpy.array([1, 2])"),
    "Graph": _Kind(_instance(Graph), Graph, "a Graph, such as GraphBuilder.graph() gives"),
}

_ITEMS = {f"tuple[{item.__name__}, ...]": frozenset({item}) for item in (int, float, str)}
"""The types of the elements of such a tuple."""
