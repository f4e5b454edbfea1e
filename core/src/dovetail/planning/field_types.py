"""The types of fields of data classes, as annotated, checked in objects that come from files."""

import types
import typing
from collections.abc import Hashable, Mapping, Sequence, Set
from functools import cache
from typing import Any

from dovetail.names import shortened

__all__ = ["wrong_field"]


def wrong_field(made: Any, names: Sequence[str]) -> str | None:
    """The first of these fields with a value of another type than its annotation, in words; None where all fit.

    Numbers of one kind are not told apart by their range, and a class whose annotations cannot be evaluated has no wrong field.
    """
    kind: Any = type(made)
    hints = _hints(kind)
    for name in names:
        if name in hints and not _fits(getattr(made, name), hints[name]):
            return f"{kind.__name__}.{name} is {shortened(repr(getattr(made, name)), 80)}"
    return None


@cache
def _hints(kind: Hashable) -> Mapping[str, Any]:
    try:
        return typing.get_type_hints(kind)
    except NameError:  # imported for type checkers only
        return {}


@cache
def _parts(hint: Hashable) -> tuple[Any, tuple[Any, ...]]:
    origin, given = typing.get_origin(hint), typing.get_args(hint)
    stands_for = getattr(origin or hint, "__value__", None)
    if stands_for is not None:  # an alias of Python 3.12, as NumPy 2.5 has NDArray: its parameters are not checked
        return typing.get_origin(stands_for) or stands_for, ()
    return origin, given


def _fits(value: Any, hint: Any) -> bool:
    if type(value) is hint:
        return True
    origin, given = _parts(hint)
    if origin is typing.Union or origin is types.UnionType:
        return any(_fits(value, one) for one in given)
    if origin is typing.Literal:
        return value in given
    if hint is float:
        return type(value) in (int, float)
    kind = hint if origin is None else origin
    if kind is None or not isinstance(kind, type):
        return True  # Any, and type variables
    try:
        is_kind = isinstance(value, kind)
    except TypeError:  # a protocol
        return True
    return is_kind and _has_fitting_items(value, given)


def _has_fitting_items(value: Any, given: Sequence[Any]) -> bool:
    if not given:
        return True
    if isinstance(value, Mapping):
        return all(_fits(key, given[0]) and _fits(one, given[1]) for key, one in value.items())
    if isinstance(value, tuple) and len(given) > 1 and given[1] is not Ellipsis:
        return len(value) == len(given) and all(map(_fits, value, given))
    if isinstance(value, Set | tuple | list):
        return all(_fits(one, given[0]) for one in value)
    return True
