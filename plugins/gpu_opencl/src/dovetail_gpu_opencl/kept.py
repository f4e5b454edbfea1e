"""Results that stay in buffers of an OpenCL context."""

import math
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from dovetail.device import DeviceArray
from dovetail_gpu_opencl.failures import translated
from dovetail_gpu_opencl.lifetime import IN_USE

__all__ = ["held", "is_held", "on_host"]


class _Held(NamedTuple):
    """A buffer and the context in which kernels can read it."""

    context: Any
    buffer: Any


def held(context: Any, queue: Any, buffer: Any, like: NDArray[Any], *, own: bool = False) -> DeviceArray:
    """A result in a buffer, its own or a request's, with the shape and data type of `like`; `queue` brings it to the host."""
    place = queue, buffer, like.shape, like.dtype
    fetch, part = partial(_fetched, *place), partial(_fetched_part, *place)
    return DeviceArray(_Held(context, buffer), like.shape, like.dtype, fetch, part, own)


def is_held(value: Any, context: Any) -> bool:
    """Whether kernels of this context can read the value where it is."""
    return isinstance(value, DeviceArray) and isinstance(value.held, _Held) and value.held.context is context


def on_host(value: Any) -> Any:
    """The value as an array of the host."""
    if not isinstance(value, DeviceArray):
        return value
    return value.held if isinstance(value.held, np.ndarray) else np.asarray(value)


def _fetched_part(
    queue: Any, buffer: Any, shape: tuple[int, ...], dtype: np.dtype[Any], axis: int, start: int, stop: int
) -> NDArray[Any]:
    """Of each index of the axes before, one run of bytes."""
    found = np.empty((*shape[:axis], stop - start, *shape[axis + 1 :]), dtype)
    if not found.size:
        return found
    step = dtype.itemsize * math.prod(shape[axis + 1 :])
    run, lines = step * (stop - start), math.prod(shape[:axis])
    with IN_USE, translated("bringing a part of a result to the host"):
        # PyOpenCL's annotations have another name for the first.
        places: dict[str, Any] = {"buffer_origin": (step * start, 0, 0), "host_origin": (0, 0, 0), "region": (run, lines, 1)}
        cl.enqueue_copy(queue, found, buffer, **places, buffer_pitches=(step * shape[axis], 0), host_pitches=(run, 0))
        return found


def _fetched(queue: Any, buffer: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    with IN_USE, translated("bringing a result to the host"):
        found = np.empty(shape, dtype)
        cl.enqueue_copy(queue, found, buffer)
        return found
