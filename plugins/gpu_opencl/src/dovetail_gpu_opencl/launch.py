"""One kernel launch as data: what a kernel of this package hands to the executable, before anything is built or allocated."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Argument", "Constant", "Fault", "Launch", "Local", "Read", "Scalar", "Write", "ints"]


@dataclass(frozen=True, slots=True)
class Read:
    """The buffer of a value that the kernel only reads."""

    value: str


@dataclass(frozen=True, slots=True)
class Write:
    """The buffer of a value that the kernel writes."""

    value: str


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """An array that is uploaded once for each executable, such as weights in another order."""

    array: NDArray[Any]


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number passed by value."""

    value: np.generic


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


Argument = Read | Write | Constant | Scalar | Local | Fault


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel function with its arguments and NDRange. A global size with a zero launches nothing.

    `file` names where the source comes from in errors. `global_size` is a multiple of `local_size` in every dimension, as
    OpenCL 1.2 asks; None leaves the local size to the driver.
    """

    file: str
    source: str
    entry: str
    arguments: tuple[Argument, ...]
    global_size: tuple[int, ...]
    local_size: tuple[int, ...] | None = None
    options: tuple[str, ...] = field(default=())

    @property
    def is_empty(self) -> bool:
        """True when there is no work item."""
        return 0 in self.global_size

    @property
    def reads(self) -> tuple[str, ...]:
        """The values that are read."""
        return tuple(a.value for a in self.arguments if isinstance(a, Read))

    @property
    def writes(self) -> tuple[str, ...]:
        """The values that are written."""
        return tuple(a.value for a in self.arguments if isinstance(a, Write))


def ints(*values: int) -> tuple[Scalar, ...]:
    """Numbers passed as `int`."""
    return tuple(Scalar(np.int32(value)) for value in values)
