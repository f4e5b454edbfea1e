"""Objects of oneDNN: descriptors, primitives, memories."""

from collections.abc import Callable
from ctypes import c_void_p
from functools import lru_cache
from typing import Any

__all__ = ["Attr", "Handle", "Memory", "MemoryDesc", "Primitive", "PrimitiveDesc", "Stream", "is_reference"]


class _Last:
    """Destroys an object of the library when its handle is freed."""

    __slots__ = ("destroy", "pointer")

    def __init__(self, pointer: c_void_p, destroy: Callable[[c_void_p], object]) -> None:
        self.pointer = pointer
        self.destroy = destroy

    def __del__(self) -> None:
        self.destroy(self.pointer)


class Handle:
    """An object of the library, destroyed with this one."""

    __slots__ = ("_destroy", "_last", "pointer")

    def __init__(self, pointer: c_void_p, destroy: Callable[[c_void_p], object]) -> None:
        self.pointer = pointer
        self._destroy = destroy

    def __del__(self, last: type[_Last] = _Last) -> None:
        # Of objects in a cycle, all are finalized before any is freed, and a user's `__del__` may still run the model.
        # `last` is a default, because an interpreter that ends empties this module before the last models are freed.
        self._last = last(self.pointer, self._destroy)


class MemoryDesc(Handle):
    """The dimensions, data type and layout of a memory. `is_open`: the layout is for a primitive to choose."""

    __slots__ = ("dims", "dtype", "is_open")
    dims: tuple[int, ...]
    dtype: int
    is_open: bool


class PrimitiveDesc(Handle):
    """A primitive that was chosen; `implementation` is oneDNN's name of it, `is_reference` whether that is a slow one.

    `primitive` is set once it was made, `scratchpad` with the descriptor of its scratchpad and the bytes of that.
    """

    __slots__ = ("implementation", "is_reference", "primitive", "scratchpad")
    implementation: str
    is_reference: bool
    primitive: "Primitive | None"
    scratchpad: "tuple[MemoryDesc | None, int]"


@lru_cache(512)
def is_reference(names: str) -> bool:
    """Whether one of the implementations is oneDNN's slow reference, or pooling that is as slow."""
    # A deconvolution names the convolution that it is, too: conv:any+ref:any.
    return any(name.rpartition("+")[2].startswith(("ref", "simple_nchw")) for name in names.split(" + "))


class Primitive(Handle):
    """Code for one computation. Threads may share it: with a scratchpad of the caller's it has no state.

    `argument` is its pointer as calls take it.
    """

    __slots__ = ("argument",)
    argument: Any


class Memory(Handle):
    """A descriptor with an address, `offset` bytes behind the beginning of a value."""

    __slots__ = ("offset",)
    offset: int


class Stream(Handle):
    """Where primitives are executed, each before the next. `argument` is its pointer as calls take it."""

    __slots__ = ("argument",)
    argument: Any


class Attr(Handle):
    """Attributes of a primitive: its post-ops, and a scratchpad that the caller gives."""

    __slots__ = ()
