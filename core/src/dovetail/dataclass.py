"""Data classes that are cheap to define.

The standard library compiles up to six methods for each class, 0.3 ms, and describes each of its fields, 8 us. A session
defines 150 classes, makes objects of half of them, and compares or shows few. Here all of that is made when it is first
looked up, and the code of constructors is compiled with this package.
"""

import dataclasses
import sys
from collections.abc import Callable, Mapping
from dataclasses import _FIELD, MISSING, Field, FrozenInstanceError, field  # type: ignore[attr-defined]  # `_FIELD` is private
from functools import cache, partial
from itertools import dropwhile
from operator import attrgetter
from reprlib import recursive_repr
from types import CodeType, FunctionType, MemberDescriptorType
from typing import TYPE_CHECKING, Any, ClassVar

__all__ = ["dataclass", "field", "fields_of"]


def fields_of(cls: Any) -> Mapping[str, "Field[Any]"]:
    """The fields of a class made by `dataclass`, those of its bases first, by name."""
    found: dict[str, Field[Any]] = {}
    item: Any
    for one in reversed(cls.__mro__):
        own = vars(one)
        declared = own["__declared__"] if "__declared__" in own else own.get("__dataclass_fields__", {})
        for name, item in declared.items():
            if isinstance(item, tuple):
                kind, given = item
                item = given if isinstance(given, Field) else field(default=given)
                item.name, item.type, item._field_type = name, kind, _FIELD
                item.kw_only = own["__options__"].get("kw_only", False) if item.kw_only is MISSING else item.kw_only
                declared[name] = item  # once it is complete: another thread may read it
            found[name] = item
    return found


def _made(cls: Any, options: Mapping[str, bool]) -> Any:
    own, frozen, slots = vars(cls), options.get("frozen", False), options.get("slots", False)
    declared = {name: _declared(cls, name, kind) for name, kind in _annotations(cls).items() if not _is_class_variable(cls, kind)}
    made: dict[str, Any] = {"__declared__": declared, "__options__": options}
    made |= {name: _Lazy(_described) for name in _DESCRIPTION}
    if options.get("init", True):
        made["__init__"] = _Lazy(_constructor)
    if options.get("repr", True):
        made["__repr__"] = _show
    if options.get("eq", True):
        made |= {"__eq__": _Lazy(_equal), "__hash__": _Lazy(_hashed) if frozen else None}
    if frozen and cls.__setattr__ is object.__setattr__:  # a base that has its own guards all of its subclasses
        made |= {"__setattr__": _refuse, "__delattr__": _refuse}
    if frozen and slots:  # pickle would assign to them
        made |= {"__getstate__": _state, "__setstate__": _restore}
    made = {name: value for name, value in made.items() if own.get(name) is None}  # that of __hash__ is None beside an __eq__
    if slots:
        return _with_slots(cls, tuple(declared), made)
    for name, value in made.items():
        setattr(cls, name, value)
        if isinstance(value, _Lazy):
            value.__set_name__(cls, name)
    return cls


if sys.version_info >= (3, 14):
    from annotationlib import Format, get_annotations

    def _annotations(cls: type) -> Mapping[str, Any]:
        return get_annotations(cls, format=Format.FORWARDREF)
else:

    def _annotations(cls: type) -> Mapping[str, Any]:
        found: Mapping[str, Any] = vars(cls).get("__annotations__", {})
        return found


def _is_class_variable(cls: type, kind: Any) -> bool:
    if isinstance(kind, str):
        module, _, name = kind.partition("[")[0].strip().rpartition(".")
        scope = vars(sys.modules[cls.__module__])
        kind = getattr(scope.get(module), name, None) if module else scope.get(name)
    return kind is ClassVar or getattr(kind, "__origin__", None) is ClassVar


def _declared(cls: type, name: str, kind: Any) -> tuple[Any, Any]:
    """The type of a field, and its default or what `field` gave instead; the class keeps the default."""
    given = default = getattr(cls, name, MISSING)
    if isinstance(given, MemberDescriptorType):  # a slot of the base
        return kind, MISSING
    if isinstance(given, Field):
        default = given.default
        if default is MISSING:
            delattr(cls, name)
        else:
            setattr(cls, name, default)
    if type(default).__hash__ is None:
        raise ValueError(f"mutable default {type(default)} for field {name} is not allowed: use default_factory")
    return kind, given


def _with_slots(cls: Any, names: tuple[str, ...], made: Mapping[str, Any]) -> Any:
    """The class once more, because slots cannot be added to one."""
    inherited = {name for base in cls.__mro__[1:-1] for name in vars(base).get("__slots__", ())}
    own = {name: value for name, value in vars(cls).items() if name not in {"__dict__", "__weakref__", *names}}
    slots = tuple(name for name in names if name not in inherited)
    again = type(cls)(cls.__name__, cls.__bases__, {**own, **made, "__slots__": slots})
    again.__qualname__ = cls.__qualname__
    return again


class _Lazy:
    """An attribute of a class that is made when it is first looked up."""

    def __init__(self, make: Callable[[Any, str], Any]) -> None:
        self._make = make

    def __set_name__(self, cls: Any, name: str) -> None:
        self._cls, self._name = cls, name

    def __get__(self, instance: object, owner: Any) -> Any:
        made = self._make(self._cls, self._name)
        setattr(self._cls, self._name, made)
        return made.__get__(instance, owner) if callable(made) else made


def _constructor(cls: Any, _: str) -> Any:
    fields = fields_of(cls).values()
    given = sorted((f for f in fields if f.init), key=lambda f: bool(f.kw_only))
    positional = [f for f in given if not f.kw_only]
    optional = list(dropwhile(_is_required, positional))
    for f in filter(_is_required, optional):
        raise TypeError(f"non-default argument {f.name!r} follows default argument")
    code = _code(len(given)).replace(
        co_argcount=1 + len(positional),
        co_kwonlyargcount=len(given) - len(positional),
        co_varnames=("self", *(f.name for f in given)),
    )
    made = FunctionType(code, _scope(cls, given), "__init__", tuple(f.default for f in optional))
    made.__kwdefaults__ = {f.name: f.default for f in given if f.kw_only and not _is_required(f)}
    made.__annotations__ = {f.name: f.type for f in given}
    made.__qualname__, made.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    return made


_unset: Any = None
_finish = _s0 = _s1 = _s2 = _s3 = _s4 = _s5 = _s6 = _s7 = _s8 = _s9 = _s10 = _s11 = _unset
# fmt: off
_CONSTRUCTORS = (
    lambda o: _finish(o),
    lambda o, a: _s0(o, a),
    lambda o, a, b: _s0(o, a) or _s1(o, b),
    lambda o, a, b, c: _s0(o, a) or _s1(o, b) or _s2(o, c),
    lambda o, a, b, c, d: _s0(o, a) or _s1(o, b) or _s2(o, c) or _s3(o, d),
    lambda o, a, b, c, d, e: _s0(o, a) or _s1(o, b) or _s2(o, c) or _s3(o, d) or _s4(o, e),
    lambda o, a, b, c, d, e, f: _s0(o, a) or _s1(o, b) or _s2(o, c) or _s3(o, d) or _s4(o, e) or _s5(o, f),
    lambda o, a, b, c, d, e, f, g: _s0(o, a) or _s1(o, b) or _s2(o, c) or _s3(o, d) or _s4(o, e) or _s5(o, f) or _s6(o, g),
    lambda o, a, b, c, d, e, f, g, h: _s0(o, a) or _s1(o, b) or _s2(o, c) or _s3(o, d) or _s4(o, e)
        or _s5(o, f) or _s6(o, g) or _s7(o, h),
    lambda o, a, b, c, d, e, f, g, h, i: _s0(o, a) or _s1(o, b) or _s2(o, c) or _s3(o, d) or _s4(o, e)
        or _s5(o, f) or _s6(o, g) or _s7(o, h) or _s8(o, i),
    lambda o, a, b, c, d, e, f, g, h, i, j: _s0(o, a) or _s1(o, b) or _s2(o, c) or _s3(o, d) or _s4(o, e) or _s5(o, f)
        or _s6(o, g) or _s7(o, h) or _s8(o, i) or _s9(o, j),
    lambda o, a, b, c, d, e, f, g, h, i, j, k: _s0(o, a) or _s1(o, b) or _s2(o, c) or _s3(o, d) or _s4(o, e) or _s5(o, f)
        or _s6(o, g) or _s7(o, h) or _s8(o, i) or _s9(o, j) or _s10(o, k),
    lambda o, a, b, c, d, e, f, g, h, i, j, k, m: _s0(o, a) or _s1(o, b) or _s2(o, c) or _s3(o, d) or _s4(o, e) or _s5(o, f)
        or _s6(o, g) or _s7(o, h) or _s8(o, i) or _s9(o, j) or _s10(o, k) or _s11(o, m),
)
# fmt: on
"""Constructors by the number of their arguments, compiled with this module: `exec` takes 0.1 ms for each. A class fills in the
names of arguments and, as globals, what sets each field and returns None."""


@cache
def _code(given: int) -> CodeType:
    """The code of constructors of so many arguments. A class fills in their names and, as globals, what sets them."""
    if given < len(_CONSTRUCTORS):
        return _CONSTRUCTORS[given].__code__
    lines = (f"_s{i}(self, _{i})" for i in range(given))
    scope: dict[str, Any] = {}
    exec(f"def __init__({', '.join(['self', *(f'_{i}' for i in range(given))])}):\n " + "\n ".join(lines), scope)
    code: CodeType = scope["__init__"].__code__
    return code


def _scope(cls: Any, given: list["Field[Any]"]) -> dict[str, Any]:
    """The globals of a constructor. Fields that are not arguments, and then `__post_init__`, follow the last argument."""
    setters = [_setter(cls, f) for f in given]
    finish = _finisher(cls, [f for f in fields_of(cls).values() if not f.init and not _is_required(f)])
    if setters and finish is not None:
        setters[-1] = _in_turn(setters[-1], finish)
    return {"_finish": finish or _nothing, **{f"_s{i}": setter for i, setter in enumerate(setters)}}


def _nothing(_: Any) -> None:
    """For classes without fields."""


def _finisher(cls: Any, others: list["Field[Any]"]) -> Callable[[Any], None] | None:
    """Sets the other fields and calls `__post_init__`; None for a class with neither."""
    has_end = hasattr(cls, "__post_init__")
    if not others and not has_end:
        return None
    calls = [(_setter(cls, f), f.default) for f in others]

    def finish(self: Any) -> None:
        for setter, value in calls:
            setter(self, value)
        if has_end:
            self.__post_init__()

    return finish


def _in_turn(setter: Callable[[Any, Any], None], finish: Callable[[Any], None]) -> Callable[[Any, Any], None]:
    def set_and_finish(self: Any, value: Any) -> None:
        setter(self, value)
        finish(self)

    return set_and_finish


def _is_required(item: "Field[Any]") -> bool:
    return item.default is item.default_factory is MISSING


def _setter(cls: Any, item: "Field[Any]") -> Callable[[Any, Any], None]:
    """Sets a field of an object. A default that each object has for itself is made here; `MISSING` stands for it."""
    name, new, slot = item.name, item.default_factory, getattr(cls, item.name, None)
    put = object.__setattr__ if vars(cls)["__options__"].get("frozen") else setattr
    if isinstance(slot, MemberDescriptorType) and (put is not setattr or cls.__setattr__ is object.__setattr__):
        setter: Callable[[Any, Any], None] = slot.__set__  # in half the time
    else:
        setter = lambda self, value: put(self, name, value)  # noqa: E731  # so that one call has either
    return setter if new is MISSING else lambda self, value: setter(self, new() if value is MISSING else value)


def _equal(cls: Any, _: str) -> Any:
    get = attrgetter("__class__", *(f.name for f in fields_of(cls).values() if f.compare))
    return lambda self, other: get(self) == get(other) if other.__class__ is self.__class__ else NotImplemented


def _hashed(cls: Any, _: str) -> Any:
    names = (f.name for f in fields_of(cls).values() if (f.compare if f.hash is None else f.hash))
    get = attrgetter("__class__", *names)
    return lambda self: hash(get(self))


@recursive_repr()
def _show(self: Any) -> str:
    shown = (f"{f.name}={getattr(self, f.name)!r}" for f in fields_of(type(self)).values() if f.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse(self: Any, name: str, *value: Any) -> None:
    """`__setattr__` and `__delattr__` of frozen classes; subclasses that are not data classes may have further attributes."""
    if "__declared__" in vars(type(self)) or name in fields_of(type(self)):
        raise FrozenInstanceError(f"cannot {'assign to' if value else 'delete'} field {name!r}")
    (object.__setattr__ if value else object.__delattr__)(self, name, *value)


def _state(self: Any) -> list[Any]:
    return [getattr(self, name) for name in fields_of(type(self))]


def _restore(self: Any, state: list[Any]) -> None:
    for name, value in zip(fields_of(type(self)), state, strict=True):
        object.__setattr__(self, name, value)


_DESCRIPTION = ("__dataclass_fields__", "__dataclass_params__", "__match_args__")


def _described(cls: Any, name: str) -> Any:
    """The attribute of this name that the library's `dataclass` would have set."""
    if name == "__dataclass_fields__":  # which `dataclasses.replace` needs, and the library takes 0.1 ms for
        return dict(fields_of(cls))
    options = vars(cls)["__options__"]
    given = {**options, "init": False, "repr": False, "eq": False, "frozen": False}
    fields = fields_of(cls)
    space = {"__doc__": name, "__annotations__": {f.name: f.type for f in fields.values()}, **fields}
    made: Any = dataclasses.dataclass(**given)(type(cls.__name__, (), space))
    params = made.__dataclass_params__
    params.init, params.repr, params.eq = (options.get(name, True) for name in ("init", "repr", "eq"))
    params.frozen = options.get("frozen", False)
    return getattr(made, name)


if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls: Any = None, /, **options: bool) -> Any:
        """As `dataclasses.dataclass`, with the options `init`, `repr`, `eq`, `frozen`, `slots` and `kw_only`; no `InitVar`."""
        return partial(_made, options=options) if cls is None else _made(cls, options)
