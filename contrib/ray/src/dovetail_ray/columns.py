"""Columns of tables as inputs of a model: which column is which input, and each row's values checked against its type."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import InputError, UsageError, did_you_mean
from dovetail.graph import TensorType

__all__ = ["Array", "Groups", "RowError", "RowReader", "Table"]

Array = NDArray[Any]
Table = Mapping[str, Array]
"""Columns by name: an array whose dimension 0 is the rows, or an array of objects, one a row, where rows differ or are text."""


@dataclass(frozen=True)
class RowError:
    """Why a row has no result: the code of an error of dovetail, and its message."""

    code: str
    message: str


@dataclass
class Groups:
    """The rows of a table that can run: for each set of shapes the positions and the inputs; and the errors of the others."""

    groups: list[tuple[Array, dict[str, Array]]] = field(default_factory=list)
    errors: dict[int, RowError] = field(default_factory=dict)


class RowReader:
    """Takes the inputs of a model from the columns of tables.

    `columns` names the columns of an input; several are the elements of its row, in order. An input without one is the column of
    its name. Where there is only one input and no such column, it is all columns, if they are as many as a row has elements.
    With `refuse_nan` a row with NaN in an input is an error.
    """

    def __init__(
        self, inputs: Mapping[str, TensorType], columns: Mapping[str, Sequence[str]] | None = None, refuse_nan: bool = False
    ) -> None:
        self._inputs = dict(inputs)
        self._columns = {name: tuple(given) for name, given in (columns or {}).items()}
        self._refuse_nan = refuse_nan
        for name, tensor in self._inputs.items():
            if type(tensor) is not TensorType or tensor.shape is None or len(tensor.shape) == 0:
                hint = "dimension 0 of each input must be the rows"
                raise UsageError(f"input {name!r} is {tensor}: its rows cannot be taken from a table", hint=hint)
        for name in self._columns:
            if name not in self._inputs:
                raise UsageError(f"the model has no input {name!r}", hint=did_you_mean(name, self._inputs))

    @property
    def batch(self) -> int | None:
        """The number of rows of a run, where the model fixes it; else None."""
        sizes = {tensor.shape[0] for tensor in self._inputs.values() if tensor.shape and isinstance(tensor.shape[0], int)}
        return min(sizes) if sizes else None

    def columns_of(self, known: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """Input -> columns, for a table with the columns `known`. Raises `UsageError` naming what is missing."""
        names = list(known)
        found: dict[str, tuple[str, ...]] = {}
        for name, tensor in self._inputs.items():
            chosen = self._columns.get(name) or ((name,) if name in names else ())
            if not chosen and len(self._inputs) == 1 and len(names) == _elements(tensor):
                chosen = tuple(names)
            if not chosen:
                hint = f"name its columns: columns={{{name!r}: [...]}}, on the command line --columns {name}=A,B"
                raise UsageError(f"no column for input {name!r} ({tensor}); there are: {', '.join(names) or 'none'}", hint=hint)
            for column in chosen:
                if column not in names:
                    raise UsageError(f"the column {column!r} for input {name!r} does not exist", hint=did_you_mean(column, names))
            found[name] = chosen
        return found

    def read(self, table: Table, rows: int, errors: Mapping[int, RowError]) -> Groups:
        """The rows of a table by shapes. `errors` has the rows that could not be read at all."""
        result = Groups(errors=dict(errors))
        if len(errors) == rows:
            return result  # there may be no columns either
        uniform: dict[str, Array] = {}
        ragged: dict[str, list[Array | None]] = {}
        for name, chosen in self.columns_of(table).items():
            values = self._values(name, [table[column] for column in chosen], result.errors)
            if isinstance(values, list):
                ragged[name] = values
            else:
                uniform[name] = values
        good = np.delete(np.arange(rows), list(result.errors)) if result.errors else np.arange(rows)
        for positions in _by_shapes(good, ragged):
            whole = len(positions) == rows
            feeds = {name: values if whole else values[positions] for name, values in uniform.items()}
            feeds |= {name: np.stack([_there(values[row]) for row in positions]) for name, values in ragged.items()}
            result.groups.append((positions, {name: feeds[name] for name in self._inputs}))
        return result

    def _values(self, name: str, columns: list[Array], errors: dict[int, RowError]) -> Array | list[Array | None]:
        """The rows of one input: an array, or an array for each row where they differ or had to be looked at one by one."""
        tensor = self._inputs[name]
        if all(column.dtype.kind in "biufc" for column in columns) and tensor.dtype.numpy.kind != "O":
            values = columns[0] if len(columns) == 1 else np.stack([column.reshape(len(column)) for column in columns], axis=1)
            fitting = _shaped(values, tensor)
            if fitting is not None:
                return self._typed(name, fitting, errors)
            columns = [values]
        rows: list[Array | None] = []
        for row in range(len(columns[0])):
            cells = [column[row] for column in columns]
            rows.append(None if row in errors else self._row(name, cells[0] if len(cells) == 1 else cells, row, errors))
        return rows

    def _row(self, name: str, cell: Any, row: int, errors: dict[int, RowError]) -> Array | None:
        tensor = self._inputs[name]
        try:
            value = np.asarray(cell, object) if tensor.dtype.numpy.kind == "O" else np.asarray(_plain(cell))
        except (ValueError, TypeError) as error:
            errors[row] = _error(f"input {name!r} makes no array ({error}); accepted: a row of {tensor}")
            return None
        if value.dtype.kind not in ("O" if tensor.dtype.numpy.kind == "O" else "biufc"):
            errors[row] = _error(f"input {name!r} is {str(cell)[:60]!r}; accepted: a row of {tensor}")
            return None
        fitting = _shaped(value[np.newaxis], tensor)
        if fitting is None:
            errors[row] = _error(f"input {name!r} has the shape {list(value.shape)} in this row; accepted: a row of {tensor}")
            return None
        found: dict[int, RowError] = {}
        typed = self._typed(name, fitting, found)
        if found:
            errors[row] = found[0]
            return None
        return np.asarray(typed[0], typed.dtype)

    def _typed(self, name: str, values: Array, errors: dict[int, RowError]) -> Array:
        """The values in the input's data type. Rows that would change by more than rounding are errors, NaN where refused too."""
        tensor = self._inputs[name]
        wanted = tensor.dtype.numpy
        if self._refuse_nan and values.dtype.kind in "fc":
            _mark(np.isnan(values), errors, f"input {name!r} has NaN, which is refused")
        if values.dtype == wanted:
            return values
        with np.errstate(all="ignore"):
            cast = values.astype(wanted)
        if tensor.dtype.is_float:
            lost = np.isfinite(values) & ~np.isfinite(cast.astype(np.float64)) if values.dtype.kind == "f" else None
        else:
            lost = cast != values
        if lost is not None:
            _mark(lost, errors, f"input {name!r} has a value that {tensor.dtype.value} cannot hold; accepted: a row of {tensor}")
        return cast


def _plain(cell: Any) -> Any:
    """A cell without its text: numbers and arrays may be written as JSON. Raises `ValueError`."""
    if cell is None:
        raise ValueError("it is missing")
    if isinstance(cell, str):
        try:
            return json.loads(cell) if cell.lstrip()[:1] == "[" else float(cell)
        except ValueError:
            return cell
    if isinstance(cell, list):
        return [_plain(item) for item in cell]
    if isinstance(cell, np.ndarray) and cell.dtype == object:
        return [_plain(item) for item in cell]
    return cell


def _shaped(values: Array, tensor: TensorType) -> Array | None:
    """The values with the shape of the input's rows; rows of the right number of elements may be flat. None when they are not."""
    wanted = (tensor.shape or ())[1:]
    got = values.shape[1:]
    if len(got) == len(wanted) and all(not isinstance(want, int) or want == size for want, size in zip(wanted, got, strict=True)):
        return values
    if len(got) <= 1 and math.prod(got) == _elements(tensor):
        return values.reshape(len(values), *wanted)
    return None


def _elements(tensor: TensorType) -> int | None:
    """How many elements a row has; None where its shape is open."""
    sizes = [size for size in (tensor.shape or ())[1:] if isinstance(size, int)]
    return math.prod(sizes) if len(sizes) == len(tensor.shape or ()) - 1 else None


def _by_shapes(good: Array, ragged: Mapping[str, list[Array | None]]) -> list[Array]:
    """Positions of rows that can be one batch, in order of the first."""
    if not ragged or not len(good):
        return [good] if len(good) else []
    found: dict[tuple[Any, ...], list[int]] = {}
    for row in good:
        found.setdefault(tuple(_there(values[row]).shape for values in ragged.values()), []).append(row)
    return [np.array(rows, np.intp) for rows in found.values()]


def _there(value: Array | None) -> Array:
    assert value is not None  # rows without a value are in the errors
    return value


def _mark(wrong: Array, errors: dict[int, RowError], message: str) -> None:
    for row in np.flatnonzero(wrong.reshape(len(wrong), -1).any(axis=1)):
        errors.setdefault(int(row), _error(message))


def _error(message: str) -> RowError:
    return RowError(InputError.code, message)
