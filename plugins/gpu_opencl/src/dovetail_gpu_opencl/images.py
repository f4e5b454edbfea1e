"""Images for kernels that want them: the copies from buffers and back, and what does not fit into an image."""

import dataclasses
import math
from collections.abc import Sequence

from dovetail.device import DType, Reason, Refusal, TensorType
from dovetail_gpu_opencl.capabilities import Capabilities
from dovetail_gpu_opencl.launch import Image, Launch, Read, Write
from dovetail_gpu_opencl.source import assemble

__all__ = ["geometry", "read_launch", "refuse_image", "write_launch"]

_DTYPES = (DType.FLOAT32, DType.FLOAT16)


def geometry(kind: str, dims: Sequence[int]) -> tuple[int, int, int | None]:
    """Width, height and slices for a shape in memory.

    The last dimension is the width. An image2d_array_t has the one before it as height and all others as slices; an image2d_t
    has all but the last as height, and None as slices.
    """
    *outer, width = dims or (1,)
    if kind == "image2d_t":
        return width, math.prod(outer), None
    return width, (outer or [1])[-1], math.prod(outer[:-1])


def refuse_image(port: str, kind: str, dims: Sequence[int], tensor: TensorType | None, caps: Capabilities) -> Refusal | None:
    """Why the value at a port cannot be an image on this device; None when it can."""
    if tensor is None:
        return Refusal(Reason.ATTRIBUTE, f"{port!r} is left out, and an image cannot be")
    if not any(caps.image_size):
        return Refusal(Reason.CAPABILITY, f"{port!r} is an {kind}, and the device has no images of one float")
    if tensor.dtype not in _DTYPES:
        return Refusal(Reason.CAPABILITY, f"{port!r} is {tensor.dtype}; images hold {', '.join(map(str, _DTYPES))}")
    width, height, slices = geometry(kind, dims)
    size = (width, height, slices or 1)
    if not all(1 <= n <= most for n, most in zip(size, caps.image_size, strict=True)):
        return Refusal(Reason.CAPABILITY, f"{port!r} would be an image of {size}; accepted: 1 to {caps.image_size}")
    return None


def write_launch(value: str, image: Image) -> Launch:
    """The copy from a value into its image."""
    return _copy("to_image", image, (Read(value), dataclasses.replace(image, written=True)))


def read_launch(image: Image, value: str) -> Launch:
    """The copy from an image into its value."""
    return _copy("from_image", image, (dataclasses.replace(image, written=False), Write(value)))


def _copy(entry: str, image: Image, arguments: tuple[Read | Image, Image | Write]) -> Launch:
    source = assemble("image.cl", {"HALF": image.dtype is DType.FLOAT16, "ARRAY": image.slices is not None})
    work = (image.width, image.height) + (() if image.slices is None else (image.slices,))
    return Launch("image.cl", source, entry, arguments, work)
