"""Outputs: the rows of a block written as a file of its own, whole or not at all."""

import json
import math
import os
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from dovetail.errors import UsageError
from dovetail_ray.columns import Array

__all__ = ["SUFFIXES", "written", "written_whole"]

Columns = Mapping[str, Array]
Wrong = frozenset[int]
"""The rows that have no result."""


def written_whole(path: Path, write: Callable[[str], None]) -> None:
    """Let `write` make a file beside `path`, and put it there; a reader sees the old file, none, or all of the new one."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        write(str(unfinished))
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def written(path: Path, format: str, given: Columns, outputs: Columns, errors: Columns, wrong: Wrong) -> None:
    """Write the columns of a block: those that were `given`, `outputs`, which the rows in `wrong` lack, and `errors`, text."""
    if format == "npz":
        written_whole(path, lambda file: _npz(file, {**given, **outputs, **errors}))
        return
    columns = {name: _arrow(values, frozenset()) for name, values in given.items()}
    columns |= {name: _arrow(values, wrong) for name, values in outputs.items()}
    columns |= {name: _arrow_text(values) for name, values in errors.items()}
    table = pa.table(columns)
    written_whole(path, lambda file: _WRITERS[format](file, table))


def _parquet(file: str, table: pa.Table) -> None:
    # Few numbers are repeated as text is; looking for those takes as long as all the rest.
    texts = [field.name for field in table.schema if pa.types.is_string(field.type)]
    pq.write_table(table, file, use_dictionary=texts)


def _csv(file: str, table: pa.Table) -> None:
    for index, field in enumerate(table.schema):
        if pa.types.is_nested(field.type):
            cells = [None if value is None else _json(value) for value in table[field.name].to_pylist()]
            table = table.set_column(index, field.name, pa.array(cells, pa.string()))
    pa.csv.write_csv(table, file)


def _jsonl(file: str, table: pa.Table) -> None:
    with open(file, "w", encoding="utf-8") as stream:
        stream.writelines(f"{_json(row)}\n" for row in table.to_pylist())


def _npz(file: str, columns: Columns) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        for name, values in columns.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, _plain(name, values), allow_pickle=False)


_WRITERS: dict[str, Callable[[str, pa.Table], None]] = {"parquet": _parquet, "csv": _csv, "jsonl": _jsonl}
SUFFIXES = {name: f".{name}" for name in (*_WRITERS, "npz")}
"""The formats that are written, with the suffixes of their files."""


def _arrow(values: Array, wrong: Wrong) -> Any:
    """An Arrow array; rows of arrays are lists of a fixed size, rows in `wrong` null."""
    if values.dtype == object:
        return _arrow_objects(values)
    mask = np.zeros(len(values), bool)
    mask[list(wrong)] = True
    if values.ndim == 1:
        return pa.array(values, mask=mask if wrong else None)
    made = pa.array(np.ascontiguousarray(values).reshape(-1))
    for size in reversed(values.shape[2:]):
        made = pa.FixedSizeListArray.from_arrays(made, size)
    return pa.FixedSizeListArray.from_arrays(made, values.shape[1], mask=pa.array(mask) if wrong else None)


def _arrow_text(values: Array) -> Any:
    """Strings and None. One value that is broadcast to all rows costs nothing for each of them."""
    if values.strides == (0,) and len(values):
        return pa.repeat(pa.scalar(values[0], pa.string()), len(values))
    return pa.array(values, pa.string())


def _arrow_objects(values: Array) -> Any:
    """Rows that differ in shape, text, or what a file held."""
    if values.strides == (0,) and len(values) and isinstance(values[0], str):
        return _arrow_text(values)
    first = next((value for value in values if value is not None), None)
    if not isinstance(first, np.ndarray):
        return pa.array(values)
    kind = pa.string() if first.dtype == object else pa.from_numpy_dtype(first.dtype)
    for _ in range(first.ndim):
        kind = pa.list_(kind)
    return pa.array([None if value is None else value.tolist() for value in values], kind)


def _json(value: Any) -> str:
    return json.dumps(_finite(value), ensure_ascii=False, default=str)


def _finite(value: Any) -> Any:
    """The value with null in place of numbers that JSON lacks."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list) else value


def _plain(name: str, values: Array) -> Array:
    """An array without objects: text has a length, and None is empty text. Raises `UsageError` for what NumPy cannot hold."""
    if values.dtype != object:
        return values
    if all(value is None or isinstance(value, str) for value in values):
        return np.array(["" if value is None else value for value in values], dtype=str)
    raise UsageError(f"the rows of {name!r} differ in shape, or some have no value, which .npz cannot hold", hint="to='jsonl'")
