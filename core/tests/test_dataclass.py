"""Data classes whose methods are made when first used, beside those of the standard library."""

import copy
import dataclasses
import inspect
import math
import pickle
import re
import typing
from collections.abc import Callable
from dataclasses import Field, replace
from typing import Any, ClassVar

import pytest

from dovetail.dataclass import dataclass, field


def point(decorate: Callable[..., Any], **options: bool) -> Any:
    class Point:
        """A class with a field of each kind."""

        count: ClassVar[int] = 3
        x: int
        y: float = 1.5
        names: list[str] = field(default_factory=list)
        hidden: object = field(default=None, compare=False, repr=False)
        made: int = field(default=7, init=False)
        last: str = field(default="", kw_only=True)

    return decorate(**options)(Point)


OPTIONS: list[dict[str, bool]] = [
    {},
    {"frozen": True},
    {"frozen": True, "slots": True},
    {"slots": True},
    {"frozen": True, "eq": False},
    {"repr": False},
    {"frozen": True, "kw_only": True},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_classes_describe_themselves_as_those_of_the_library(options: dict[str, bool]) -> None:
    ours, theirs = point(dataclass, **options), point(dataclasses.dataclass, **options)
    assert inspect.signature(ours).parameters.keys() == inspect.signature(theirs).parameters.keys()
    kinds = [[(p.kind, p.annotation) for p in inspect.signature(cls).parameters.values()] for cls in (ours, theirs)]
    assert kinds[0] == kinds[1]
    assert [f.name for f in dataclasses.fields(ours)] == [f.name for f in dataclasses.fields(theirs)]
    assert repr(ours.__dataclass_params__) == repr(theirs.__dataclass_params__)
    assert ours.__match_args__ == theirs.__match_args__
    assert (ours.__hash__ is None) == (theirs.__hash__ is None)
    assert hasattr(ours(x=1), "__dict__") == hasattr(theirs(x=1), "__dict__")


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_objects_behave_as_those_of_the_library(options: dict[str, bool]) -> None:
    def outcomes(cls: Any) -> list[object]:
        one, same, other = cls(x=1), cls(x=1, hidden=2), cls(x=1, last="a")
        found: list[object] = [
            one == same,
            one == other,
            one != other,
            one == 1,
            dataclasses.asdict(other),
            one.names is same.names,
        ]
        found += [copy.deepcopy(other).last, replace(one, y=math.inf).y, repr(one) if options.get("repr", True) else ""]
        for act in (
            lambda: setattr(one, "x", 2),
            # The library of Python 3.11 raises TypeError for another name in a class with slots.
            lambda: setattr(one, "x" if options.get("slots") else "new", 2),
            lambda: delattr(one, "y"),
            lambda: cls(),
            lambda: cls(x=1, z=2),
        ):
            try:
                found.append(act())
            except (AttributeError, TypeError) as error:
                found.append((type(error), str(error)))
        return found

    ours, theirs = (point(decorate, **options) for decorate in (dataclass, dataclasses.dataclass))
    expected = outcomes(theirs)
    assert [outcomes(ours) for _ in range(2)] == [expected] * 2  # methods are made when they are first used


@dataclass(frozen=True, slots=True)
class Stored:
    """At the top of a module, as pickle needs it."""

    a: int
    b: tuple[int, ...] = ()


@dataclass(frozen=True)
class Longer(Stored):
    """Inherits from a data class."""

    c: int = 0

    def __post_init__(self) -> None:
        if self.c < 0:
            raise ValueError(self.c)


@pytest.mark.parametrize("value", [Stored(1, (2,)), Longer(1, c=2)], ids=repr)
def test_objects_pickle(value: object) -> None:
    found = pickle.loads(pickle.dumps(value))
    assert (found, hash(found), repr(found)) == (value, hash(value), repr(value))


def test_a_subclass_checks_itself_and_differs_from_its_base() -> None:
    with pytest.raises(ValueError, match="-1"):
        Longer(1, c=-1)
    assert Longer(1) != Stored(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        Longer(1).c = 2  # type: ignore[misc]  # on purpose


def test_the_library_extends_a_class() -> None:
    @dataclasses.dataclass(frozen=True)
    class Theirs(Stored):
        c: int = 0

    assert repr(Theirs(1, c=2)).endswith("Theirs(a=1, b=(), c=2)")
    with pytest.raises(dataclasses.FrozenInstanceError):
        Theirs(1).a = 2  # type: ignore[misc]  # on purpose


def test_methods_of_the_class_stay() -> None:
    @dataclass(frozen=True)
    class Own:
        a: int

        def __init__(self) -> None:
            object.__setattr__(self, "a", 5)

        def __repr__(self) -> str:
            return "own"

        def __eq__(self, other: object) -> bool:
            return True

    assert (Own().a, repr(Own()), Own() == 1) == (5, "own", True)
    assert hash(Own()) == hash(Own())


def test_a_plain_subclass_has_attributes_of_its_own_only() -> None:
    class Plain(point(dataclass, frozen=True)):  # type: ignore[misc]  # a class made in a function
        pass

    value = Plain(1)
    value.further = 2
    assert value.further == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        value.x = 2
    assert Plain(1) == Plain(1) != Plain(2)


def test_a_value_that_contains_itself_is_shown() -> None:
    value = point(dataclass)(1)
    value.names = [value]
    assert "..." in repr(value)


def test_class_variables_in_quotes_are_no_fields() -> None:
    @dataclass(frozen=True, slots=True)
    class Noted:
        shared: "ClassVar[int]" = 1
        also: "typing.ClassVar[dict[str, int]]" = {}  # as authors write it
        held: "int" = 2

    assert [f.name for f in dataclasses.fields(Noted)] == ["held"]
    assert (Noted.shared, Noted.also, Noted().held) == (1, {}, 2)


def test_a_default_that_all_objects_would_share_is_refused() -> None:
    with pytest.raises(ValueError, match="mutable default <class 'list'> for field names is not allowed: use default_factory"):

        @dataclass(frozen=True)
        class Shared:
            names: list[str] = []  # on purpose


@pytest.mark.parametrize("calls", [1, 30])
def test_methods_of_a_subclass_call_those_of_the_data_class(calls: int) -> None:
    class Named(point(dataclass)):  # type: ignore[misc]  # a class made in a function
        def __init__(self, name: str) -> None:
            super().__init__(1, last=name)

        def __eq__(self, other: object) -> bool:
            return bool(super().__eq__(other))

        def __repr__(self) -> str:
            return f"<{super().__repr__()}>"

    for _ in range(calls):
        value = Named("a")
    assert value == Named("a") != Named("b")
    assert repr(value).startswith("<")
    assert "last='a'" in repr(value)


def test_a_subclass_takes_the_default_of_its_base() -> None:
    @dataclass(frozen=True)
    class Narrowed(point(dataclass, frozen=True)):  # type: ignore[misc]  # a class made in a function
        y: float

    assert Narrowed(1).y == 1.5
    assert [f.name for f in dataclasses.fields(Narrowed)] == ["x", "y", "names", "hidden", "made", "last"]


def test_constructors_of_as_many_arguments_share_code() -> None:
    @dataclass
    class Pair:
        a: int
        b: int = 2

    @dataclass(frozen=True, slots=True)
    class Span:
        start: float
        size: float

        def __post_init__(self) -> None:
            if self.size < 0:
                raise ValueError(self.size)

    assert (Pair(1), Pair(b=3, a=1).b) == (Pair(1, 2), 3)
    with pytest.raises(ValueError, match="-1"):
        Span(0, size=-1)
    with pytest.raises(TypeError, match=re.escape("Span.__init__() missing 1 required positional argument: 'size'")):
        Span(0)  # type: ignore[call-arg]  # on purpose


def test_a_setter_of_the_class_is_called() -> None:
    @dataclass(slots=True)
    class Counted:
        a: int

        def __setattr__(self, name: str, value: int) -> None:
            object.__setattr__(self, name, value + 1)

    assert Counted(1).a == 2


def test_an_argument_without_a_default_behind_one_with_a_default_is_refused() -> None:
    @dataclass
    class Wrong:
        a: int = 1
        b: int  # type: ignore[misc]  # on purpose

    with pytest.raises(TypeError, match="non-default argument 'b' follows default argument"):
        Wrong(1, 2)


class Watched(Field):  # type: ignore[type-arg]
    """Notes what others see of the class while it is completed."""

    __slots__ = ()
    seen: ClassVar[list[object]] = []

    def __setattr__(self, name: str, value: object) -> None:
        Watched.seen.append(vars(Completed)["__declared__"]["x"])
        super().__setattr__(name, value)


@dataclass
class Completed:
    x: int = field(default=1)


def test_other_threads_see_no_field_before_it_is_complete() -> None:
    """One without `kw_only` was taken for a field that only a keyword sets, in the constructor that the class then kept."""
    declared = vars(Completed)["__declared__"]["x"][1]
    declared.__class__ = Watched
    assert Completed(2).x == 2
    assert Watched.seen
    assert all(isinstance(one, tuple) for one in Watched.seen)


@pytest.mark.parametrize("options", [{}, {"frozen": True, "slots": True}], ids=str)
@pytest.mark.parametrize("finishes", [False, True])
@pytest.mark.parametrize("count", range(20))
def test_constructors_of_any_number_of_fields(count: int, finishes: bool, options: dict[str, bool]) -> None:
    names = [f"f{i}" for i in range(count)]
    body: dict[str, Any] = {"__annotations__": dict.fromkeys(names, int)}
    seen: list[Any] = []
    if finishes:
        body["__annotations__"]["made"] = list
        body["made"] = field(default_factory=list, init=False)
        body["__post_init__"] = lambda self: seen.append((self.made, [getattr(self, name) for name in names]))
    made = dataclass(**options)(type("Many", (), body))
    values = list(range(count))
    one = made(*values[: count // 2], **dict(list(zip(names, values, strict=True))[count // 2 :]))
    assert [getattr(one, name) for name in names] == values
    assert seen == ([([], values)] if finishes else [])
    with pytest.raises(TypeError, match="argument"):
        made(*values, 0)


def test_a_class_is_described_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    made = point(dataclass, frozen=True)
    monkeypatch.setattr(dataclasses, "dataclass", None)
    assert replace(made(x=1), y=2.0) == made(x=1, y=2.0)
