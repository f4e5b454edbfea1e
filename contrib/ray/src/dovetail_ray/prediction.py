"""A model run over the rows of tables: batches of the right size, and for each row its outputs or its error."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dovetail.errors import DovetailError, GraphError, InferError, UsageError
from dovetail.graph import TensorType
from dovetail.runtime import CompiledModel
from dovetail_ray.columns import Array, Groups, RowError, RowReader, Table

__all__ = ["ERROR_COLUMNS", "Prediction", "RowModel"]

ERROR_COLUMNS = ("error_code", "error_message")
"""The columns of a row's error; both are empty for a row that has a result."""

Outputs = dict[str, Array]


@dataclass(frozen=True)
class Prediction:
    """The outputs by name for the rows of a table, and the errors of rows that have none.

    In an array of numbers such rows are NaN, or 0 in types without NaN; in an array of objects None.
    """

    outputs: Mapping[str, Array]
    errors: Mapping[int, RowError]

    def error_columns(self, rows: int) -> dict[str, Array]:
        """`error_code` and `error_message` of all rows, None for the good ones."""
        if not self.errors:
            return dict.fromkeys(ERROR_COLUMNS, np.broadcast_to(np.array(None, object), rows))
        codes, messages = np.full(rows, None, object), np.full(rows, None, object)
        for row, error in self.errors.items():
            codes[row], messages[row] = error.code, error.message
        return dict(zip(ERROR_COLUMNS, (codes, messages), strict=True))


class RowModel:
    """A compiled model for tables. `batch_size` rows run at once, or as many as the model fixes, the last batch filled up.

    An error that inputs can cause (`InferError`, `GraphError`) costs the rows that cause it; any other one is raised.
    """

    def __init__(
        self,
        compiled: CompiledModel,
        batch_size: int = 256,
        columns: Mapping[str, Sequence[str]] | None = None,
        refuse_nan: bool = False,
    ) -> None:
        self._compiled = compiled
        self._reader = RowReader(compiled.inputs, columns, refuse_nan)
        self._fixed = self._reader.batch
        self._size = self._fixed or batch_size
        self._refuse_nan = refuse_nan

    def predict(self, table: Table, rows: int, errors: Mapping[int, RowError] | None = None) -> Prediction:
        """The outputs for a table; `errors` has the rows that could not be read. Raises `UsageError` for missing columns."""
        read = self._reader.read(table, rows, errors or {})
        parts: list[tuple[Array, Outputs]] = []
        for positions, feeds in read.groups:
            for start in range(0, len(positions), self._size):
                piece = slice(start, start + self._size)
                parts += self._run(positions[piece], {name: values[piece] for name, values in feeds.items()}, read)
        declared = self._compiled.outputs
        outputs = {name: _joined(rows, [(p, o[name]) for p, o in parts], declared[name]) for name in declared}
        return Prediction(outputs, read.errors)

    def _run(self, positions: Array, feeds: Outputs, read: Groups) -> list[tuple[Array, Outputs]]:
        """The results of one batch; where it fails, of its halves, so that only rows that fail alone have none."""
        try:
            outputs = self._infer(feeds, len(positions))
        except (InferError, GraphError) as error:
            if len(positions) == 1:
                read.errors[int(positions[0])] = _row_error(error)
                return []
            half = len(positions) // 2
            sides = (slice(half), slice(half, None))
            return [r for s in sides for r in self._run(positions[s], {n: values[s] for n, values in feeds.items()}, read)]
        if self._refuse_nan:
            positions, outputs = _without_nan(positions, outputs, read.errors)
        return [(positions, outputs)] if len(positions) else []

    def _infer(self, feeds: Outputs, rows: int) -> Outputs:
        missing = (self._fixed or rows) - rows
        if missing:
            feeds = {name: np.concatenate([values, np.repeat(values[-1:], missing, 0)]) for name, values in feeds.items()}
        results = self._compiled(feeds)
        outputs: Outputs = {}
        for name, value in results.items():
            if not isinstance(value, np.ndarray) or value.ndim == 0 or len(value) != rows + missing:
                what = f"{value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__
                hint = "dimension 0 of each output must be the rows"
                raise UsageError(f"output {name!r} of {rows + missing} rows is {what}", hint=hint)
            outputs[name] = value[:rows]
        return outputs


def _row_error(error: DovetailError) -> RowError:
    return RowError(error.code, error.message)


def _without_nan(positions: Array, outputs: Outputs, errors: dict[int, RowError]) -> tuple[Array, Outputs]:
    good = np.ones(len(positions), bool)
    for name, values in outputs.items():
        if values.dtype.kind in "fc":
            wrong = np.isnan(values).reshape(len(values), -1).any(axis=1)
            for row in positions[wrong]:
                errors.setdefault(int(row), RowError(InferError.code, f"output {name!r} has NaN, which is refused"))
            good &= ~wrong
    return positions[good], {name: values[good] for name, values in outputs.items()}


def _joined(rows: int, parts: Sequence[tuple[Array, Array]], declared: TensorType | None) -> Array:
    """One array for all rows; of objects where they differ in shape. Without a result its type is the one declared."""
    if not parts and type(declared) is TensorType and declared.shape:
        row = declared.with_shape(declared.shape[1:])
        if row.is_static:
            parts = [(np.array([], np.intp), np.empty((0, *row.dims), row.dtype.numpy))]
    if len(parts) == 1 and len(parts[0][0]) == rows:
        return parts[0][1]
    shapes = {values.shape[1:] for _, values in parts}
    if len(shapes) != 1 or parts[0][1].dtype == object:
        mixed = np.full(rows, None, object)
        for positions, values in parts:
            for position, value in zip(positions, values, strict=True):
                mixed[position] = value
        return mixed
    first = parts[0][1]
    fill: Any = np.nan if first.dtype.kind in "fc" else 0
    whole = np.full((rows, *first.shape[1:]), fill, first.dtype)
    for positions, values in parts:
        whole[positions] = values
    return whole
