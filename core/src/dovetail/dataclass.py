"""Data classes that are cheap to define.

The standard library compiles up to six methods for each, 0.3 ms. A session defines 150, and shows or compares few objects.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import MISSING, FrozenInstanceError, field
from functools import partial
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass", "field"]


def _made(cls: Any, options: Mapping[str, bool]) -> Any:
    own, frozen = dict(vars(cls)), options.get("frozen", False)
    cls.__doc__ = cls.__doc__ or cls.__name__  # else the library writes down the signature, which takes long
    # The library insists that a class is frozen as its bases are.
    inherits = frozen and any(params.frozen for one in cls.__mro__[1:] if (params := vars(one).get("__dataclass_params__")))
    made = dataclasses.dataclass(**{**options, "init": False, "repr": False, "eq": False, "frozen": inherits})(cls)
    fields, params = dataclasses.fields(made), made.__dataclass_params__
    params.init, params.repr, params.eq = (options.get(name, True) for name in ("init", "repr", "eq"))
    params.frozen = frozen
    methods: dict[str, Any] = {"__init__": _Constructor(made)} if params.init else {}
    if params.repr:
        methods["__repr__"] = _shown([f.name for f in fields if f.repr])
    if params.eq:
        get = attrgetter("__class__", *(f.name for f in fields if f.compare))
        key = attrgetter("__class__", *(f.name for f in fields if (f.compare if f.hash is None else f.hash)))
        methods["__eq__"] = lambda self, other: get(self) == get(other) if other.__class__ is self.__class__ else NotImplemented
        methods["__hash__"] = (lambda self: hash(key(self))) if frozen else None
    if frozen and not inherits:
        names = [f.name for f in fields]
        methods |= {f"__{verb}attr__": _guard(made, names, verb) for verb in ("set", "del")}
        if options.get("slots"):  # pickle would assign to them
            methods |= {"__getstate__": _state, "__setstate__": _restore}
    for name, method in methods.items():
        if own.get(name) is None:  # that of __hash__ is None in a class that defines __eq__
            setattr(made, name, method)
    return made


class _Constructor:
    """`__init__` until it is first looked up, which compiles it."""

    def __init__(self, cls: Any) -> None:
        self._cls = cls

    def __get__(self, instance: object, owner: type) -> Any:
        self._cls.__init__ = made = _constructor(self._cls)
        return made if instance is None else made.__get__(instance, owner)


def _constructor(cls: Any) -> Any:
    given, lines, scope = ["self"], [], {"_SET": object.__setattr__, "_NEW": MISSING}
    for f in sorted(dataclasses.fields(cls), key=lambda f: bool(f.kw_only and f.init)):
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
            lines.append(f"{put}{value})" if cls.__dataclass_params__.frozen else f"self.{f.name} = {value}")
    lines.append("self.__post_init__()" if hasattr(cls, "__post_init__") else "pass")
    exec(f"def __init__({', '.join(given)}):\n " + "\n ".join(lines), scope)
    made: Any = scope["__init__"]
    made.__annotations__ = {f.name: f.type for f in dataclasses.fields(cls) if f.init}
    made.__qualname__, made.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    return made


def _shown(names: list[str]) -> Any:
    return recursive_repr()(lambda self: f"{type(self).__qualname__}({', '.join(f'{n}={getattr(self, n)!r}' for n in names)})")


def _state(self: Any) -> list[Any]:
    return [getattr(self, f.name) for f in dataclasses.fields(self)]


def _restore(self: Any, state: list[Any]) -> None:
    for f, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, f.name, value)


def _guard(cls: type, names: list[str], verb: str) -> Any:
    def guard(self: Any, name: str, *value: Any) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot {'assign to' if value else 'delete'} field {name!r}")
        getattr(super(cls, self), f"__{verb}attr__")(name, *value)

    return guard


if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls: Any = None, /, **options: bool) -> Any:
        """As `dataclasses.dataclass`, with the options `init`, `repr`, `eq`, `frozen`, `slots` and `kw_only`; no `InitVar`."""
        return partial(_made, options=options) if cls is None else _made(cls, options)
