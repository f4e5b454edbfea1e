"""Calls of OpenCL past pyopencl: launches without an event each, and numbers as arguments."""

import ctypes
import functools
from collections.abc import Iterable
from typing import Any

from pyopencl import _cl

from dovetail_gpu_opencl.launch import Scalar

__all__ = ["Call", "KernelObject", "calls", "function"]

Call = tuple[Any, ...]
"""The arguments of clEnqueueNDRangeKernel."""


@functools.cache
def function(name: str = "clEnqueueNDRangeKernel") -> Any:
    """A function as pyopencl finds it, which returns the status; None where a loader does not let it be found.

    pyopencl launches nothing without an event, for each of which NVIDIA's driver and device take time. A call keeps the
    interpreter's lock: to give it away and take it again for 5 us costs a run of 32 launches 4 % on an H200.
    """
    for library in (None, _cl.__file__):
        try:
            found = getattr(ctypes.PyDLL(library), name)
        except (AttributeError, OSError, TypeError):
            continue
        found.restype = ctypes.c_int
        return found
    return None


_BYTES = {size: ctypes.c_size_t(size) for size in (1, 2, 4, 8)}
"""Sizes of numbers."""


class KernelObject:
    """A kernel object that remembers its numbers: one that is bound again for the same node in other sizes has most of them."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self._numbers: dict[int, Scalar] = {}
        self._own, self._handle = function("clSetKernelArg"), ctypes.c_void_p(kernel.int_ptr)

    def set_number(self, position: int, number: Scalar) -> None:
        """Sets an argument in 0.3 us, unless it is the same. `kernel.set_arg` takes 5: it tries buffers and images first."""
        if self._numbers.get(position) is number:
            return
        content = number.value.tobytes()
        if self._own is None or self._own(self._handle, position, _BYTES[len(content)], content):
            self.kernel.set_arg(position, number.value)  # which raises the error with its reason
        self._numbers[position] = number


def calls(queue: Any, launches: Iterable[tuple[Any, tuple[int, ...], tuple[int, ...] | None]]) -> tuple[Call, ...]:
    """The launches in a queue, with NULL in place of an event. The kernel objects must live as long as these are used."""
    return tuple(_call(queue, *launch) for launch in launches)


def _call(queue: Any, kernel: Any, global_size: tuple[int, ...], local_size: tuple[int, ...] | None) -> Call:
    sizes = (ctypes.c_size_t * len(global_size))(*global_size)
    groups = None if local_size is None else (ctypes.c_size_t * len(local_size))(*local_size)
    handles = ctypes.c_void_p(queue.int_ptr), ctypes.c_void_p(kernel.int_ptr)
    return (*handles, len(global_size), None, _pointer(sizes), _pointer(groups), 0, None, None)


class _Pointer(ctypes.c_void_p):
    """A pointer that keeps what it points to."""

    target: Any


def _pointer(array: Any) -> _Pointer | None:
    """To the first element. ctypes passes pointers and Python's ints in two thirds of the time of arrays and ctypes's ints."""
    if array is None:
        return None
    found = _Pointer(ctypes.addressof(array))
    found.target = array
    return found
