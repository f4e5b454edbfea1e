"""Inputs: files of rows cut into blocks, which are read where they are computed."""

import csv
import io
import json
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from dovetail.errors import InputError, UsageError, did_you_mean
from dovetail_ray.columns import Array, RowError

__all__ = ["FORMATS", "Block", "Rows", "blocks_of", "files_of", "format_of"]

FORMATS = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".npz": "npz",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".png": "images",
    ".jpg": "images",
    ".jpeg": "images",
}
"""The format of a file with this suffix."""


@dataclass(frozen=True)
class Block:
    """Rows `start` to `stop` of a file, the unit of work and of output. For text `offset` and `length` are its bytes.

    Of a Parquet file they are whole row groups, `offset` the first and `length` their number. Images have a row each, and
    several files.
    """

    index: int
    format: str
    files: Sequence[str]
    start: int
    stop: int
    offset: int = 0
    length: int = 0


@dataclass(frozen=True)
class Rows:
    """The rows of a block, with the errors of those that could not be read; such a row has any value."""

    table: dict[str, Array]
    count: int
    errors: dict[int, RowError]


def files_of(source: str) -> list[Path]:
    """The files that an input means: itself, or those of a folder and its folders, in the order of their names.

    Raises `UsageError` without any, or with several formats.
    """
    path = Path(source)
    if path.is_file():
        format_of([path])
        return [path]
    if not path.is_dir():
        raise UsageError(f"the input {source} does not exist", hint="give a file, or a folder of files of one format")
    found = sorted(file for file in path.rglob("*") if file.is_file() and file.suffix.lower() in FORMATS)
    if not found:
        raise UsageError(f"the folder {source} has no file that can be read", hint=f"accepted: {', '.join(FORMATS)}")
    format_of(found)
    return found


def format_of(files: Sequence[Path]) -> str:
    """The one format of some files. Raises `UsageError`."""
    formats = {FORMATS.get(file.suffix.lower(), "") for file in files}
    if formats == {""}:
        hint = did_you_mean(files[0].suffix.lower(), FORMATS)
        raise UsageError(f"{files[0]} is of no format that can be read; accepted: {', '.join(FORMATS)}", hint=hint)
    if len(formats) > 1:
        raise UsageError(f"the input has files of several formats: {', '.join(sorted(formats))}", hint="map them one by one")
    return formats.pop()


def blocks_of(files: Sequence[Path], rows: int) -> list[Block]:
    """The files cut into blocks of about so many rows. Raises `InputError` for a file that is not of its format."""
    format = format_of(files)
    made: list[Block] = []
    if format == "images":
        for start in range(0, len(files), rows):
            chosen = tuple(map(str, files[start : start + rows]))
            made.append(Block(len(made), format, chosen, start, start + len(chosen)))
        return made
    for file in files:
        try:
            for start, stop, offset, length in _CUTS[format](file, rows):
                made.append(Block(len(made), format, (str(file),), start, stop, offset, length))
        except (pa.ArrowInvalid, zipfile.BadZipFile, ValueError, KeyError) as error:
            raise InputError(f"{file} is damaged, or not {format}: {error}") from error
    return made


Cut = tuple[int, int, int, int]
"""First row, row after the last, and where they are: see `Block`."""


def _cut_parquet(file: Path, rows: int) -> Iterator[Cut]:
    metadata = pq.read_metadata(file)
    first = start = stop = 0
    for group in range(metadata.num_row_groups):
        stop += metadata.row_group(group).num_rows
        if stop - start >= rows or (group == metadata.num_row_groups - 1 and stop > start):
            yield start, stop, first, group + 1 - first
            start, first = stop, group + 1


def _cut_text(file: Path, rows: int, quoted: bool) -> Iterator[Cut]:
    """Cuts at the ends of lines; in CSV not at those between quotes. Empty lines are not rows."""
    start = stop = position = 0
    inside = False
    with file.open("rb") as stream:
        offset = len(stream.readline()) if quoted else 0
        stream.seek(offset)
        position = offset
        for line in stream:
            position += len(line)
            if quoted and line.count(b'"') % 2:
                inside = not inside
            if inside or not line.strip():
                continue
            stop += 1
            if stop - start == rows:
                yield start, stop, offset, position - offset
                start, offset = stop, position
    if stop > start:
        yield start, stop, offset, position - offset


def _cut_npz(file: Path, rows: int) -> Iterator[Cut]:
    counts = {name: shape[0] if shape else None for name, (shape, _) in _npz_headers(file).items()}
    if len(set(counts.values())) != 1 or None in counts.values():
        raise ValueError(f"the arrays do not have one number of rows: {counts}")
    total = next(iter(counts.values())) or 0
    for start in range(0, total, rows):
        yield start, min(start + rows, total), 0, 0


_CUTS: dict[str, Callable[[Path, int], Iterator[Cut]]] = {
    "parquet": _cut_parquet,
    "csv": lambda file, rows: _cut_text(file, rows, quoted=True),
    "jsonl": lambda file, rows: _cut_text(file, rows, quoted=False),
    "npz": _cut_npz,
}


# --- reading -------------------------------------------------------------------------------------------------------------


def read_parquet(block: Block) -> Rows:
    """The row groups of a block."""
    groups = list(range(block.offset, block.offset + block.length))
    table = pq.ParquetFile(block.files[0]).read_row_groups(groups, use_threads=False)
    return _from_arrow(table)


def read_csv(block: Block) -> Rows:
    """The lines of a block, by Arrow; by Python's reader where a line has too few or too many cells."""
    with open(block.files[0], "rb") as stream:
        header = stream.readline()
        stream.seek(block.offset)
        text = stream.read(block.length)
    try:
        options = pa.csv.ReadOptions(use_threads=False)
        parsing = pa.csv.ParseOptions(newlines_in_values=True)
        table = pa.csv.read_csv(io.BytesIO(header + text), options, parsing, pa.csv.ConvertOptions(strings_can_be_null=False))
        return _from_arrow(table)
    except pa.ArrowInvalid:
        return _read_csv_by_line(header, text)


def _read_csv_by_line(header: bytes, text: bytes) -> Rows:
    names = next(csv.reader(io.StringIO(header.decode("utf-8-sig"))))
    lines = [line for line in csv.reader(io.StringIO(text.decode("utf-8", "replace"))) if line]
    errors = {
        row: _unreadable(f"the line has {len(line)} cells; the header has {len(names)}")
        for row, line in enumerate(lines)
        if len(line) != len(names)
    }
    cells = [line if row not in errors else [""] * len(names) for row, line in enumerate(lines)]
    return Rows({name: _objects([line[i] for line in cells]) for i, name in enumerate(names)}, len(lines), errors)


def read_jsonl(block: Block) -> Rows:
    """The lines of a block, each an object; a column that a row lacks is None there."""
    with open(block.files[0], "rb") as stream:
        stream.seek(block.offset)
        text = stream.read(block.length)
    errors: dict[int, RowError] = {}
    rows: list[dict[str, Any]] = []
    for line in filter(bytes.strip, text.splitlines()):
        try:
            value = json.loads(line)
            if not isinstance(value, dict):
                raise ValueError(f"a row must be an object, not {type(value).__name__}")
        except (ValueError, RecursionError) as error:
            errors[len(rows)] = _unreadable(f"the line is not a row in JSON: {error}")
            value = {}
        rows.append(value)
    names = dict.fromkeys(name for row in rows for name in row)
    return Rows({name: _stacked([row.get(name) for row in rows]) for name in names}, len(rows), errors)


def read_npz(block: Block) -> Rows:
    """Rows of all arrays of the file."""
    table = {name: _npz_rows(Path(block.files[0]), name, block.start, block.stop) for name in _npz_headers(Path(block.files[0]))}
    return Rows(table, block.stop - block.start, {})


def _from_arrow(table: pa.Table) -> Rows:
    return Rows({name: _column(table[name].combine_chunks()) for name in table.column_names}, table.num_rows, {})


def _column(values: Any) -> Array:
    """An Arrow array as NumPy's: lists of one length as rows of an array, what has nulls or differs as objects."""
    if isinstance(values, pa.ChunkedArray):
        values = values.chunk(0) if values.num_chunks else pa.array([], values.type)
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    kind = values.type
    if values.null_count == 0:
        if pa.types.is_primitive(kind) and not pa.types.is_temporal(kind):
            return np.asarray(values.to_numpy(zero_copy_only=False))
        if pa.types.is_fixed_size_list(kind):
            inner = _column(values.flatten())
            return inner.reshape(len(values), kind.list_size, *inner.shape[1:]) if inner.dtype != object else _objects(values)
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            lengths = np.diff(np.asarray(values.offsets))
            inner = _column(values.flatten())
            if len(lengths) and (lengths == lengths[0]).all() and inner.dtype != object:
                return inner.reshape(len(values), int(lengths[0]), *inner.shape[1:])
    return _objects(values.to_pylist())


def _objects(values: Any) -> Array:
    made = np.empty(len(values), object)
    for index, value in enumerate(values.to_pylist() if isinstance(values, pa.Array) else values):
        made[index] = value
    return made


def _stacked(values: list[Any]) -> Array:
    """Values of JSON as an array of numbers where all rows have them in one shape."""
    try:
        made = np.array(values)
    except ValueError:
        return _objects(values)
    return made if made.dtype.kind in "biuf" else _objects(values)


def _npz_headers(file: Path) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    """Array -> shape and data type, from the headers."""
    with zipfile.ZipFile(file) as archive:
        return {name.removesuffix(".npy"): _npy_header(archive, name)[:2] for name in archive.namelist()}


def _npy_header(archive: zipfile.ZipFile, name: str) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    with archive.open(name) as member:
        version = np.lib.format.read_magic(member)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, by_columns, dtype = read(member)
        if dtype.hasobject or (by_columns and len(shape) > 1):
            raise ValueError(f"{name} holds objects, or is stored by columns")
        return shape, dtype, member.tell()


def _npz_rows(file: Path, array: str, start: int, stop: int) -> Array:
    with zipfile.ZipFile(file) as archive:
        name = f"{array}.npy"
        shape, dtype, header = _npy_header(archive, name)
        row = int(np.prod(shape[1:])) * dtype.itemsize
        with archive.open(name) as member:
            member.seek(header + start * row)
            content = member.read((stop - start) * row)
    values = np.frombuffer(content, dtype).reshape(stop - start, *shape[1:])
    return values if dtype.isnative else values.astype(dtype.newbyteorder("="))


def _unreadable(message: str) -> RowError:
    return RowError(InputError.code, message)


READERS: dict[str, Callable[[Block], Rows]] = {
    "parquet": read_parquet,
    "csv": read_csv,
    "jsonl": read_jsonl,
    "npz": read_npz,
}
"""How a block of a format is read; images need the type of the input: see `pictures`."""
