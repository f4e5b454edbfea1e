"""Driver errors as errors of dovetail's tree."""

from collections.abc import Iterator
from contextlib import contextmanager

import pyopencl as cl

from dovetail.device import DeviceError, DeviceLost, OutOfMemory
from dovetail.errors import DovetailError

__all__ = ["as_dovetail", "out_of_memory", "translated"]

_MEMORY_CODES = frozenset(
    {
        cl.status_code.MEM_OBJECT_ALLOCATION_FAILURE,
        cl.status_code.OUT_OF_RESOURCES,
        cl.status_code.OUT_OF_HOST_MEMORY,
        cl.status_code.INVALID_BUFFER_SIZE,
    }
)

_LOST_CODES = frozenset(
    {
        cl.status_code.DEVICE_NOT_AVAILABLE,
        cl.status_code.INVALID_DEVICE,
        cl.status_code.INVALID_CONTEXT,
        cl.status_code.INVALID_COMMAND_QUEUE,
        -9999,  # NVIDIA: a kernel accessed memory out of bounds, and its context is broken
    }
)


def out_of_memory(error: cl.Error) -> bool:
    """True when the driver says that memory or another resource ran out."""
    return error.code in _MEMORY_CODES


def as_dovetail(error: cl.Error | MemoryError, what: str) -> DovetailError:
    """`OutOfMemory` when an allocation was refused, `DeviceLost` when the device is gone, else `DeviceError`.

    `what` says what was being done, sizes included.
    """
    if isinstance(error, MemoryError):
        said = f": {error}" if str(error) else ""
        return OutOfMemory(
            f"{what}: the host ran out of memory{said}", hint="use a smaller batch, or free memory of this process"
        )
    if out_of_memory(error):
        lost = " Some drivers also report this when a kernel accesses memory out of bounds: DEBUG_BUFFERS finds that."
        hint = "use a smaller batch or another device." + (lost if error.code == cl.status_code.OUT_OF_RESOURCES else "")
        return OutOfMemory(f"{what}: the device ran out of memory or other resources ({error})", hint=hint)
    if error.code in _LOST_CODES:
        hint = "core.reset_device(name), then compile again; if that fails, start the program again"
        return DeviceLost(f"{what}: the device was lost ({error})", hint=hint)
    return DeviceError(f"{what}: {error}")


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Raise driver errors of the block as dovetail's, and NumPy's when the host has no memory left."""
    try:
        yield
    except (cl.Error, MemoryError) as error:
        raise as_dovetail(error, what) from error
