"""Pictures as rows: scaled to the input's size, 0..255 for integer inputs and 0..1 for floating-point ones, as `dovetail run`."""

import numpy as np
from PIL import Image, UnidentifiedImageError

from dovetail.errors import InputError, UsageError
from dovetail.graph import TensorType
from dovetail_ray.columns import Array, RowError
from dovetail_ray.sources import Block, Rows

__all__ = ["PATH", "read_images"]

PATH = "path"
"""The column with the path of a picture."""

_BROKEN = (UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError)


def read_images(block: Block, name: str, tensor: TensorType) -> Rows:
    """The pictures of a block as the column `name`. Raises `UsageError` for an input that takes none."""
    shape = _row_shape(name, tensor)
    rows = np.zeros((len(block.files), *shape), tensor.dtype.numpy)
    errors: dict[int, RowError] = {}
    for row, file in enumerate(block.files):
        try:
            rows[row] = _pixels(file, tensor)
        except _BROKEN as error:
            errors[row] = RowError(InputError.code, f"{file} is not a picture that can be read: {error}")
    return Rows({PATH: np.array(block.files, object), name: rows}, len(block.files), errors)


def _row_shape(name: str, tensor: TensorType) -> tuple[int, int, int]:
    match (tensor.shape or ())[1:]:
        case ((1 | 3), int(), int()) | (int(), int(), (1 | 3)):
            return tensor.shape[1:]  # type: ignore[return-value, index]  # three numbers, by the pattern
    hint = "accepted: [N, C, H, W] or [N, H, W, C] with 1 or 3 channels; --shape closes open dimensions"
    raise UsageError(f"input {name!r} is {tensor}, which takes no picture", hint=hint)


def _pixels(file: str, tensor: TensorType) -> Array:
    """One picture in the shape of a row."""
    first, second, third = (tensor.shape or ())[1:]
    channels_last = first not in (1, 3)
    channels, height, width = (third, first, second) if channels_last else (first, second, third)
    assert isinstance(height, int)
    assert isinstance(width, int)
    with Image.open(file) as picture:
        picture.load()
        converted = picture.convert("L" if channels == 1 else "RGB")
    if converted.size != (width, height):
        converted = converted.resize((width, height), Image.Resampling.BILINEAR)
    pixels = np.asarray(converted).reshape(height, width, -1)
    if tensor.dtype.is_float:
        pixels = pixels / 255.0
    return (pixels if channels_last else pixels.transpose(2, 0, 1)).astype(tensor.dtype.numpy)
