"""The base of kernels that run in Python, and small helpers for their calls."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, MutableSequence, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from numpy.typing import NDArray

from dovetail.device import TypedNode
from dovetail_cpu_onednn.binding import Memory, MemoryDesc, PrimitiveDesc, Stream
from dovetail_cpu_onednn.kernel import OnednnKernel

__all__ = ["Array", "Call", "PythonKernel", "Values", "in_turn", "number", "quiet"]

Array = NDArray[Any]
Call = Callable[[], int | None]
"""One step of a run; gives None or 0."""


T = TypeVar("T")


class Values(Protocol):
    """The values of a request, for kernels that are bound to it, with what these share: they run one after another."""

    @property
    def stream(self) -> Stream:
        """Where primitives are executed."""

    def __call__(self, name: str) -> Array:
        """A value in its layout; constants already have their content."""

    def number(self, name: str) -> MutableSequence[Any]:
        """The single element of a value as the function `number` gives it."""

    def memory(self, name: str, desc: MemoryDesc) -> Memory:
        """The memory object of a value that is used as an array too."""

    def refused(self, node: TypedNode, otherwise: Call) -> Call:
        """The call for data that a kernel with `stops_nan` does not compute itself."""

    def shared(self, make: Callable[[], T]) -> T:
        """The result of `make`, called once for the request."""


class PythonKernel(OnednnKernel):
    """Runs a node by calls of Python, which are bound to the arrays of a request."""

    binds_quickly: bool = False
    """Whether what `binding` gives takes some microseconds only, so that each run may call it with large inputs in the caller's
    memory, and large outputs in new arrays.
    """

    @abstractmethod
    def bind(self, node: TypedNode, array: Values) -> Iterable[Call]:
        """The calls of each run. Kernels that bind quickly may only call `array`."""

    def binding(self, node: TypedNode) -> Callable[[Values], Iterable[Call]]:
        """`bind` for one node of one request, after all that depends on no array of it; work arrays are made here."""
        return partial(self.bind, node)

    def primitives(self, node: TypedNode) -> Sequence[PrimitiveDesc]:
        """Those that `bind` makes use of, to be made before on a second thread."""
        return ()


def number(array: Array) -> MutableSequence[Any]:
    """The single element of an array as number 0: reading and writing it takes 0.1 us, and 0.4 to 0.9 by NumPy's functions."""
    found: MutableSequence[Any] = array.reshape(1).data  # type: ignore[assignment]  # of the kind of its array's elements
    return found


def quiet(function: Callable[[], object]) -> Call:
    """The function as a step of a run: what it gives counts for nothing."""

    def run() -> None:
        function()

    return run


def in_turn(calls: Sequence[Call]) -> Call:
    """All of these; the first status that is an error ends them."""

    def run() -> int | None:
        for call in calls:
            status = call()
            if status:
                return status
        return 0

    return run
