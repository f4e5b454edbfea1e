"""Results that stay in buffers of an OpenCL context."""

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


def held(context: Any, queue: Any, buffer: Any, like: NDArray[Any]) -> DeviceArray:
    """A result in a buffer, with the shape and data type of `like`; `queue` brings it to the host."""
    return DeviceArray(_Held(context, buffer), like.shape, like.dtype, partial(_fetched, queue, buffer, like.shape, like.dtype))


def is_held(value: Any, context: Any) -> bool:
    """Whether kernels of this context can read the value where it is."""
    return isinstance(value, DeviceArray) and isinstance(value.held, _Held) and value.held.context is context


def on_host(value: Any) -> Any:
    """The value as an array of the host."""
    if not isinstance(value, DeviceArray):
        return value
    return value.held if isinstance(value.held, np.ndarray) else np.asarray(value)


def _fetched(queue: Any, buffer: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    with IN_USE, translated("bringing a result to the host"):
        found = np.empty(shape, dtype)
        cl.enqueue_copy(queue, found, buffer)
        return found
