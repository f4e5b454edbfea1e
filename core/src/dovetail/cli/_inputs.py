"""Input tensors for `run` and `bench`: from .npz, .npy and image files, or random."""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from numpy.typing import NDArray

from dovetail._files import written_whole
from dovetail.cli._models import known_input, note_open, only_input, shape_text
from dovetail.cli._output import clean, remark
from dovetail.errors import InputError, OutOfMemory, UsageError, raised_by_handler
from dovetail.graph.types import CONTAINERS

if TYPE_CHECKING:
    from dovetail.graph.types import TensorType

__all__ = ["RANDOM", "random_tensor", "read_inputs", "write_npz"]

NOTHING: Mapping[str, Any] = MappingProxyType({})
RANDOM = "random"
_IMAGES = (".png", ".jpg", ".jpeg")

Array = NDArray[Any]


def read_inputs(
    inputs: Mapping[str, "TensorType"], given: Sequence[str], seed: int, overridable: Mapping[str, "TensorType"] = NOTHING
) -> dict[str, Any]:
    """Arrays, and maps from .json files, for the `-i` options `NAME=FILE`, `FILE`, `NAME=random` and `random` (all inputs that
    no other option names). `NAME` may be one of the constants that a run may override.

    Raises `click.UsageError` for wrong options and for inputs that none of them gives, `InputError` for files
    that cannot be used.
    """
    rng = np.random.default_rng(seed)
    found: dict[str, Any] = {}
    needed, inputs = inputs, {**inputs, **overridable}
    for name, source in sorted((_split(text, inputs) for text in given), key=lambda pair: pair == ("", RANDOM)):
        if not source:
            raise click.UsageError(f"-i {name}=: no file is named.")
        if source == RANDOM:
            wanted = [known_input(inputs, name)] if name else [n for n in needed if n not in found]
            for n in wanted:
                note_open(n, inputs[n])
            values = {n: random_tensor(inputs[n], rng) for n in wanted}
        elif not name and Path(source).suffix.lower() == ".npz":
            values = {known_input(inputs, n): array for n, array in _load(Path(source)).items()}
        else:
            name = known_input(inputs, name or only_input(needed, f"-i {source}"))
            values = {name: _read_one(Path(source), name, inputs[name])}
        if twice := [n for n in values if n in found]:
            raise click.UsageError(f"-i gives input {twice[0]!r} more than once.")
        found |= values
    if missing := [name for name in needed if name not in found]:
        raise click.UsageError(f"No value for input {missing[0]!r}: give -i {missing[0]}=FILE, or -i {RANDOM}.")
    return found


def random_tensor(tensor: "TensorType", rng: np.random.Generator) -> Array:
    """Open dimensions are 1. Floats are in [0, 1); integers and bools are 0 or 1, which also suits masks and token types."""
    shape = tuple(d if isinstance(d, int) else 1 for d in tensor.shape or ())
    if isinstance(tensor, CONTAINERS):
        raise UsageError(f"no random values are defined for {tensor}", hint="give the input a file; maps: -i NAME=FILE.json")
    try:
        if tensor.dtype.is_float:
            return np.asarray(rng.random(shape)).astype(tensor.dtype.numpy)
        if tensor.dtype.is_integer or tensor.dtype.value == "bool":
            return np.asarray(rng.integers(0, 2, shape)).astype(tensor.dtype.numpy)
    except (MemoryError, ValueError, OverflowError) as error:  # NumPy has a limit of its own for each dimension
        raise OutOfMemory(f"not enough memory for {tensor.with_shape(shape)}: {error}", hint="give a smaller --shape") from error
    raise UsageError(f"no random values are defined for {tensor.dtype}", hint="give the input a file: -i NAME=FILE.npz")


def write_npz(path: str, values: Mapping[str, Any]) -> None:
    """Write arrays under any names (`numpy.savez` cannot take `file`); control characters in them become escapes.

    The items of a list are called `NAME[0]`, ..., the parts of a dictionary `NAME.keys` and `NAME.values`; None is left out.
    """
    import zipfile  # here and below, because it takes 7 ms, with shutil and three compressions

    with written_whole(Path(path)) as stream, zipfile.ZipFile(stream, "w") as archive:
        for name, array in itertools.chain.from_iterable(itertools.starmap(_parts, values.items())):
            with archive.open(f"{clean(name)}.npy", "w", force_zip64=True) as member:
                # Strings are objects here; in a file they have a length, so that nothing needs to be unpickled.
                plain = array.astype(str) if array.dtype == object else array
                np.lib.format.write_array(member, plain, allow_pickle=False)


def _parts(name: str, value: Any) -> Iterator[tuple[str, Array]]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _parts(f"{name}[{index}]", item)
    elif isinstance(value, dict):
        yield f"{name}.keys", np.array(list(value))
        yield f"{name}.values", np.array(list(value.values()))
    elif value is not None:
        yield name, np.asanyarray(value)


def _split(text: str, inputs: Mapping[str, "TensorType"]) -> tuple[str, str]:
    """Name and source. File names may hold `=` too: where a file of the whole name exists, the text has no input name."""
    name, equals, source = text.partition("=")
    for known in inputs:  # Names may hold `=` as well, so a known one goes first.
        if text.startswith(f"{known}="):
            return known, text[len(known) + 1 :]
    return (name, source) if equals and not Path(text).exists() else ("", text)


def _read_one(path: Path, name: str, tensor: "TensorType") -> Any:
    suffix = path.suffix.lower()
    if suffix in _IMAGES:
        return _read_image(path, name, tensor)
    if suffix == ".json":
        return _read_json(path, name, tensor)
    if suffix == ".npy":
        return _load(path)
    if suffix == ".npz":
        arrays = _load(path)
        if len(arrays) == 1:
            return next(iter(arrays.values()))
        if name in arrays:
            return arrays[name]
        raise InputError(f"{path} holds {len(arrays)} arrays and none of them is called {name!r}: {', '.join(arrays)}")
    accepted = ", ".join((".npz", ".npy", ".json", *_IMAGES))
    what = f"files of type {suffix!r}" if suffix else "a folder" if path.is_dir() else "a file without suffix"
    raise click.UsageError(f"-i {path}: {what} cannot be read; accepted: {accepted}, or {RANDOM!r}.")


def _read_json(path: Path, name: str, tensor: "TensorType") -> Any:
    """A map, or a sequence of maps: JSON has only strings for keys."""
    from dovetail.graph.dtype import DType
    from dovetail.graph.types import MapType, SequenceType

    one = tensor.items if isinstance(tensor, SequenceType) else tensor
    if not isinstance(one, MapType):
        raise InputError(f"{path}: input {name!r} is {tensor}", hint="accepted from .json files: maps and sequences of maps")
    kind = str if one.keys is DType.STRING else int
    try:
        # RecursionError: JSON may be nested without end.
        loaded = json.loads(path.read_text("utf-8"))
        rows = loaded if one is not tensor else [loaded]
        maps = [{kind(key): value for key, value in row.items()} for row in rows]
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{path} is not a {tensor} in JSON: {error}", hint='accepted: {"key": number, ...}') from error
    return maps if one is not tensor else maps[0]


def _load(path: Path) -> Any:
    """The array of an .npy file, or the arrays of an .npz file by name."""
    # Opened here, because numpy.load leaves files open that turn out to be broken archives.
    with path.open("rb") as stream:
        try:
            loaded: Any = np.load(stream, allow_pickle=False)
            is_array = isinstance(loaded, np.ndarray)
            if is_array is (path.suffix.lower() == ".npy"):
                return loaded if is_array else {name: loaded[name] for name in loaded.files}
        except Exception as error:  # damaged ones raise OSError, NotImplementedError, tokenize.TokenError and many more
            if raised_by_handler(error):
                raise
            # Without NumPy's own words, which advise to unpickle what may be anything.
            raise InputError(
                f"{path} is damaged, or not a NumPy file that holds plain arrays",
                hint="write it by numpy.save or numpy.savez; arrays of objects are not read",
            ) from error
    what, suffix = ("a single array", ".npy") if is_array else ("an .npz archive", ".npz")
    raise InputError(f"{path} is {what}", hint=f"give it the suffix {suffix}")


def _read_image(path: Path, name: str, tensor: "TensorType") -> Array:
    """A picture as [1, C, H, W] or [1, H, W, C], scaled to the input's size; 0..255 for integers, 0..1 for floats."""
    try:
        from PIL import Image
    except ImportError:
        raise UsageError(f"reading {path} needs the package pillow", hint="pip install pillow") from None
    channels, height, width, channels_last = _picture_layout(path, name, tensor)
    with path.open("rb") as stream:
        try:
            picture = Image.open(stream)
            converted = picture.convert("L" if channels == 1 else "RGB")
        except MemoryError:
            raise
        except Exception as error:  # damaged ones raise OSError without the file's name, SyntaxError, TypeError and more
            if raised_by_handler(error):
                raise
            raise InputError(f"{path} is damaged, or not a picture that can be read ({type(error).__name__})") from error
    if converted.size != (width, height):
        remark(f"{path} is {converted.width} x {converted.height}; scaled to {width} x {height} for input {name!r}.")
        converted = converted.resize((width, height), Image.Resampling.BILINEAR)
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
