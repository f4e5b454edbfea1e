"""One kernel launch as data: what a kernel of this package hands to the executable, before anything is built or allocated."""

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass, field
from dovetail.device import DType

__all__ = [
    "Argument",
    "Constant",
    "Counters",
    "Fault",
    "Image",
    "Launch",
    "Local",
    "Null",
    "Read",
    "Scalar",
    "Scratch",
    "Write",
    "ints",
    "uint",
]


@dataclass(frozen=True, slots=True)
class Read:
    """The buffer of a value that the kernel only reads."""

    value: str

    def __str__(self) -> str:
        return f"input {self.value!r}"


@dataclass(frozen=True, slots=True)
class Write:
    """The buffer of a value that the kernel writes."""

    value: str

    def __str__(self) -> str:
        return f"output {self.value!r}"


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """An array that is uploaded once for each executable, such as weights in another order."""

    array: NDArray[Any]


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number passed by value."""

    value: np.generic

    def __str__(self) -> str:
        return f"{self.value.dtype} {self.value}"


@dataclass(frozen=True, slots=True)
class Local:
    """Local memory of so many bytes."""

    nbytes: int


@dataclass(frozen=True, slots=True)
class Fault:
    """Two arguments: an int buffer and the index in it that the kernel sets to 1 when the data are wrong.

    The run then raises `InferError` with `message`.
    """

    message: str


@dataclass(frozen=True, slots=True)
class Counters:
    """Two arguments: an int buffer and the index in it from which on `count` zeros are the launch's own.

    Each request has its own buffer. The kernel leaves zeros behind.
    """

    count: int


@dataclass(frozen=True, slots=True)
class Null:
    """A NULL buffer: an input or output that the node leaves out."""

    def __str__(self) -> str:
        return "NULL"


@dataclass(frozen=True, slots=True)
class Scratch:
    """A buffer of so many bytes that lives while the node runs. `value` is its name in the memory plan."""

    value: str
    nbytes: int

    def __str__(self) -> str:
        return f"scratch of {self.nbytes} bytes"


@dataclass(frozen=True, slots=True)
class Image:
    """An image with one channel of `dtype`, an array of slices when `slices` is not None.

    Each request has its own; launches that name the same `value` share it. `written` says which way this launch uses it.
    """

    value: str
    dtype: DType
    width: int
    height: int
    slices: int | None
    written: bool

    def __str__(self) -> str:
        return f"image {self.value.rpartition(':')[2]}"

    @property
    def nbytes(self) -> int:
        """Bytes of its pixels."""
        return self.width * self.height * (self.slices or 1) * self.dtype.itemsize


Argument = Read | Write | Constant | Scalar | Local | Fault | Counters | Null | Scratch | Image


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel function with its arguments and NDRange. A global size with a zero launches nothing.

    `file` names where the source comes from in errors. `global_size` is a multiple of `local_size` in every dimension, as
    OpenCL 1.2 asks; None leaves the local size to the driver. `copies` are two values of which it only copies the first to the
    second, so that it is left out where both are in one block.
    """

    file: str
    source: str
    entry: str
    arguments: tuple[Argument, ...]
    global_size: tuple[int, ...]
    local_size: tuple[int, ...] | None = None
    options: tuple[str, ...] = field(default=())
    copies: tuple[str, str] | None = None
    # Asked several times for each plan, and most arguments are numbers.
    _places: tuple[Argument, ...] | None = field(default=None, init=False, compare=False, repr=False)

    @property
    def is_empty(self) -> bool:
        """True when it has no work items."""
        return 0 in self.global_size

    @property
    def places(self) -> tuple[Argument, ...]:
        """The arguments that are not numbers."""
        found = self._places
        if found is None:
            found = tuple([a for a in self.arguments if type(a) is not Scalar])
            object.__setattr__(self, "_places", found)
        return found

    @property
    def reads(self) -> tuple[str, ...]:
        """The values and images that are read."""
        return tuple(a.value for a in self.places if isinstance(a, Read) or (isinstance(a, Image) and not a.written))

    @property
    def writes(self) -> tuple[str, ...]:
        """The values, images and scratch buffers that are written."""
        return tuple(a.value for a in self.places if isinstance(a, (Write, Scratch)) or (isinstance(a, Image) and a.written))


def ints(*values: int) -> tuple[Scalar, ...]:
    """Numbers passed as `int`."""
    return tuple([_int(value) for value in values])


@functools.lru_cache(4096)
def _int(value: int) -> Scalar:
    """Kept, because requests look for equal arguments by identity, and most numbers come again."""
    return Scalar(np.int32(value))


@functools.lru_cache(1024)
def uint(value: int) -> Scalar:
    """A number passed as `uint`."""
    return Scalar(np.uint32(value))
