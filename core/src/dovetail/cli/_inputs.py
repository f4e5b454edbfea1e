"""Input tensors for `run` and `bench`: from .npz, .npy and image files, or random."""

import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from numpy.typing import NDArray

from dovetail.cli._models import known_input, only_input, shape_text
from dovetail.cli._output import clean, remark
from dovetail.errors import InputError, UsageError

if TYPE_CHECKING:
    from dovetail.graph import TensorType

__all__ = ["random_tensor", "read_inputs", "write_npz"]

RANDOM = "random"
_IMAGES = (".png", ".jpg", ".jpeg")

Array = NDArray[Any]


def read_inputs(inputs: Mapping[str, "TensorType"], given: Sequence[str], seed: int) -> dict[str, Array]:
    """Arrays for the `-i` options `NAME=FILE`, `FILE`, `NAME=random` and `random` (all inputs that no other option names).

    Raises `click.UsageError` for options that cannot be meant and for inputs that none of them gives, `InputError` for files
    that cannot be used.
    """
    rng = np.random.default_rng(seed)
    found: dict[str, Array] = {}
    for name, source in sorted((_split(text, inputs) for text in given), key=lambda pair: pair == ("", RANDOM)):
        if source == RANDOM:
            wanted = [known_input(inputs, name)] if name else [n for n in inputs if n not in found]
            found.update({n: random_tensor(inputs[n], rng) for n in wanted})
        elif not name and Path(source).suffix.lower() == ".npz":
            found.update({known_input(inputs, n): array for n, array in _read_npz(Path(source)).items()})
        else:
            name = known_input(inputs, name or only_input(inputs, f"-i {source}"))
            found[name] = _read_one(Path(source), name, inputs[name])
    if missing := [name for name in inputs if name not in found]:
        raise click.UsageError(f"No value for input {missing[0]!r}: give -i {missing[0]}=FILE, or -i {RANDOM}.")
    return found


def random_tensor(tensor: "TensorType", rng: np.random.Generator) -> Array:
    """Open dimensions are 1. Floats lie in [0, 1); integers and bools are 0 or 1, which also suits masks and token types."""
    shape = tuple(d if isinstance(d, int) else 1 for d in tensor.shape or ())
    if tensor.dtype.is_float:
        return np.asarray(rng.random(shape)).astype(tensor.dtype.numpy)
    if tensor.dtype.is_integer or tensor.dtype.value == "bool":
        return np.asarray(rng.integers(0, 2, shape)).astype(tensor.dtype.numpy)
    raise UsageError(f"no random values are defined for {tensor.dtype}", hint="give the input a file: -i NAME=FILE.npz")


def write_npz(path: str, arrays: Mapping[str, Array]) -> None:
    """Write arrays under any names (`numpy.savez` cannot take `file`); control characters in them become escapes."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{clean(name)}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)


def _split(text: str, inputs: Mapping[str, "TensorType"]) -> tuple[str, str]:
    """Name and source. File names may hold `=` too: where a file of the whole name exists, there is no input name in it."""
    name, equals, source = text.partition("=")
    for known in inputs:  # Names may hold `=` as well, so a known one goes first.
        if text.startswith(f"{known}="):
            return known, text[len(known) + 1 :]
    return (name, source) if equals and not Path(text).exists() else ("", text)


def _read_one(path: Path, name: str, tensor: "TensorType") -> Array:
    suffix = path.suffix.lower()
    if suffix in _IMAGES:
        return _read_image(path, name, tensor)
    if suffix == ".npy":
        return _read_npy(path)
    if suffix == ".npz":
        arrays = _read_npz(path)
        if len(arrays) == 1:
            return next(iter(arrays.values()))
        if name in arrays:
            return arrays[name]
        raise InputError(f"{path} holds {len(arrays)} arrays and none of them is called {name!r}: {', '.join(arrays)}")
    accepted = ", ".join((".npz", ".npy", *_IMAGES))
    raise click.UsageError(f"-i {path}: files of type {suffix or 'none'!r} cannot be read; accepted: {accepted}, or {RANDOM!r}.")


def _read_npz(path: Path) -> dict[str, Array]:
    loaded = _load(path)
    if isinstance(loaded, dict):
        return loaded
    raise InputError(f"{path} is a single array", hint="give it the suffix .npy")


def _read_npy(path: Path) -> Array:
    loaded = _load(path)
    if isinstance(loaded, np.ndarray):
        return loaded
    raise InputError(f"{path} is an .npz archive", hint="give it the suffix .npz")


def _load(path: Path) -> Array | dict[str, Array]:
    """The array of an .npy file, or the arrays of an .npz file by name, whatever the suffix says."""
    # Opened here, because numpy.load leaves files open that turn out to be broken archives.
    with path.open("rb") as stream:
        try:
            loaded: Any = np.load(stream, allow_pickle=False)
            return loaded if isinstance(loaded, np.ndarray) else {name: loaded[name] for name in loaded.files}
        except (ValueError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
            raise InputError(f"{path} is not a NumPy file that holds plain arrays: {error}") from error


def _read_image(path: Path, name: str, tensor: "TensorType") -> Array:
    """A picture as [1, C, H, W] or [1, H, W, C], scaled to the input's size; 0..255 for integers, 0..1 for floats."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise UsageError(f"reading {path} needs the package pillow", hint="pip install pillow") from None
    channels, height, width, channels_last = _picture_layout(path, name, tensor)
    try:
        with Image.open(path) as picture:
            picture.load()
            converted = picture.convert("L" if channels == 1 else "RGB")
            if converted.size != (width, height):
                remark(f"{path} is {converted.width} x {converted.height}; scaled to {width} x {height} for input {name!r}.")
                converted = converted.resize((width, height), Image.Resampling.BILINEAR)
    except (UnidentifiedImageError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(f"{path} is not a picture that can be read: {error}") from error
    pixels = np.asarray(converted).reshape(1, height, width, channels)
    if tensor.dtype.is_float:
        remark(f"{path}: pixel values 0..255 become 0..1 for input {name!r}.")
        pixels = pixels / 255.0
    return (pixels if channels_last else pixels.transpose(0, 3, 1, 2)).astype(tensor.dtype.numpy)


def _picture_layout(path: Path, name: str, tensor: "TensorType") -> tuple[int, int, int, bool]:
    """Channels, height, width, and whether the channels come last."""
    match tensor.shape:
        case (_, (1 | 3) as channels, int() as height, int() as width):
            return channels, height, width, False
        case (_, int() as height, int() as width, (1 | 3) as channels):
            return channels, height, width, True
    raise InputError(
        f"{path}: input {name!r} is {tensor.dtype}{shape_text(tensor)}, which takes no picture",
        hint="accepted: [N, C, H, W] or [N, H, W, C] with 1 or 3 channels; --shape closes open dimensions",
    )
