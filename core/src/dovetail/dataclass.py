"""Data classes that are cheap to define.

The standard library compiles up to six methods for each class, 0.3 ms, and describes each of its fields, 8 us. A session
defines 150 classes, makes objects of half of them, and compares or shows few. Here all of that is made when it is first
looked up, and a constructor is compiled when it is called often.
"""

import dataclasses
import sys
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, FrozenInstanceError, field
from functools import partial
from operator import attrgetter
from reprlib import recursive_repr
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, ClassVar, get_origin

__all__ = ["dataclass", "field", "fields_of"]

_OFTEN = 6
"""Calls of a constructor that is not compiled. Most classes of which a session makes more objects have hundreds of them."""


def fields_of(cls: Any) -> Mapping[str, "Field[Any]"]:
    """The fields of a class made by `dataclass`, those of its bases first, by name."""
    found: dict[str, Field[Any]] = {}
    for one in reversed(cls.__mro__):
        own = vars(one)
        declared = own["__declared__"] if "__declared__" in own else own.get("__dataclass_fields__", {})
        for name, item in declared.items():
            if isinstance(item, tuple):
                kind, given = item
                item = declared[name] = given if isinstance(given, Field) else field(default=given)
                item.name, item.type = name, kind
                item.kw_only = own["__options__"].get("kw_only", False) if item.kw_only is MISSING else item.kw_only
            found[name] = item
    return found


def _made(cls: Any, options: Mapping[str, bool]) -> Any:
    own, frozen, slots = vars(cls), options.get("frozen", False), options.get("slots", False)
    declared = {name: _declared(cls, name, kind) for name, kind in _annotations(cls).items() if not _is_class_variable(cls, kind)}
    made: dict[str, Any] = {"__declared__": declared, "__options__": options}
    made |= {name: _Lazy(_described) for name in _DESCRIPTION}
    if options.get("init", True):
        made["__init__"] = _Constructor(_constructor)
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
    return kind is ClassVar or get_origin(kind) is ClassVar


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


class _Constructor(_Lazy):
    """`__init__`, which is compiled when it is called often, or looked up in the class."""

    _calls = 0
    _fill: Callable[..., None] | None = None

    def __get__(self, instance: object, owner: Any) -> Any:
        self._calls += 1
        if self._calls > _OFTEN or not isinstance(instance, self._cls):  # inspect may give the class as the instance
            return super().__get__(instance, owner)
        self._fill = self._fill or _filling(self._cls)
        return partial(self._fill, instance)


def _filling(cls: Any) -> Callable[..., None]:
    """Does what the constructor does: slower, and without being compiled."""
    fields, put = fields_of(cls).values(), object.__setattr__ if vars(cls)["__options__"].get("frozen") else setattr
    positional = [f.name for f in fields if f.init and not f.kw_only]
    accepted = {f.name for f in fields if f.init}
    required = {f.name for f in fields if f.init and f.default is f.default_factory is MISSING}
    check = getattr(cls, "__post_init__", None)

    def fill(self: Any, /, *args: Any, **named: Any) -> None:
        given = dict(zip(positional, args, strict=False)) | named
        if len(given) < len(args) + len(named) or not required <= given.keys() <= accepted:
            _constructor(cls, "__init__")(self, *args, **named)  # says what is wrong
        for f in fields:
            if f.name in given:
                put(self, f.name, given[f.name])
            elif f.default_factory is not MISSING:
                put(self, f.name, f.default_factory())
            elif f.default is not MISSING:
                put(self, f.name, f.default)
        if check is not None:
            check(self)

    return fill


def _constructor(cls: Any, _: str) -> Any:
    given, lines, scope = ["self"], [], {"_SET": object.__setattr__, "_NEW": MISSING}
    fields, frozen = fields_of(cls).values(), vars(cls)["__options__"].get("frozen")
    for f in sorted(fields, key=lambda f: bool(f.kw_only and f.init)):
        default, is_new = f"_DEFAULT_{f.name}", f.default_factory is not MISSING
        scope[default] = f.default_factory if is_new else f.default
        value = f"{default}()" if is_new else default
        if f.init:
            given += ["*"] if f.kw_only and "*" not in given else []
            given.append(f"{f.name}=_NEW" if is_new else f.name if f.default is MISSING else f"{f.name}={default}")
            value = f"{value} if {f.name} is _NEW else {f.name}" if is_new else f.name
        if f.init or scope[default] is not MISSING:
            scope[f"_SET_{f.name}"] = getattr(vars(cls).get(f.name), "__set__", None)  # of a slot, in half the time
            put = f"_SET_{f.name}(self, " if scope[f"_SET_{f.name}"] else f"_SET(self, {f.name!r}, "
            lines.append(f"{put}{value})" if frozen else f"self.{f.name} = {value}")
    lines.append("self.__post_init__()" if hasattr(cls, "__post_init__") else "pass")
    exec(f"def __init__({', '.join(given)}):\n " + "\n ".join(lines), scope)
    made: Any = scope["__init__"]
    made.__annotations__ = {f.name: f.type for f in fields if f.init}
    made.__qualname__, made.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    return made


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
