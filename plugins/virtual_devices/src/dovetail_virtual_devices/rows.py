"""Models and rows: a first dimension of any size for every input, and whether rows leave each other alone."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from dovetail.errors import DovetailError
from dovetail.virtual import Model, TensorType
from dovetail_virtual_devices.lanes import Lane

__all__ = ["NotBatchable", "check_independence", "check_number", "check_results", "check_rows", "padded", "with_open_batch"]

log = logging.getLogger("dovetail")

_SYMBOL = "batch"

_ROUNDING, _RELATIVE, _SOME = 0.01, 0.05, 0.1
"""Results of bfloat16 differ by less, of the greatest number or of each; a part of the elements may: roundings decide choices."""


class NotBatchable(Exception):
    """Why the rows of a model cannot run together."""


def with_open_batch(model: Model) -> Model:
    """The model with one symbol as the first dimension of every input, where that is a symbol or 1 already.

    Raises `NotBatchable` naming the input that has no such dimension.
    """
    inputs = model.inputs
    if model.graph.states:
        raise NotBatchable("its requests keep states")
    if not inputs:
        raise NotBatchable("it has no inputs")
    for name, found in inputs.items():
        first = found.shape[0] if found.shape else None
        if not found.shape or not (first is None or isinstance(first, str) or first == 1):
            raise NotBatchable(f"input {name!r} is {found}; accepted: a first dimension that is a symbol or 1")
        if first is not None and first in [d for d in found.shape[1:] if isinstance(d, str)]:
            raise NotBatchable(f"input {name!r} is {found}: its rows are not independent of each other")
    taken = {d for found in inputs.values() for d in found.shape or () if isinstance(d, str)}
    firsts = {str(found.shape[0]) for found in inputs.values() if found.shape and isinstance(found.shape[0], str)}
    symbol = (
        min(firsts) if len(firsts) == 1 else next(s for s in (_SYMBOL, *(f"{_SYMBOL}{i}" for i in range(99))) if s not in taken)
    )
    return model.reshape({name: (symbol, *(found.shape or ())[1:]) for name, found in inputs.items()})


def check_rows(model: Model, lanes: Sequence[Lane], sizes: Sequence[int]) -> bool:
    """Run random rows in batches of these sizes, the full one last, on each lane, so that no later run has to prepare anything.

    In the full one, what the other rows are must not change the first one; nor may the number of rows. Returns False, and does
    nothing, for a model with further open dimensions: only its first request tells their sizes. Raises `NotBatchable` naming the
    output.
    """
    types = list(model.inputs.values())
    full = sizes[-1]
    if full < 2:
        return True
    if not all(t.shape and all(isinstance(d, int) for d in t.shape[1:]) for t in types):
        return False
    together = check_independence(model, lanes[0], types, full)
    for size in (*sizes[:-1], full):  # the full one last: reports are about the latest
        arrays = [array[:size] for array in _random(types, full, seed=0)]
        with _refused(size):
            lanes[0].lanes.part.plan(tuple(array.shape for array in arrays))  # on every device, if there are several
            lanes[0].lanes.part.finish_compiling()
        for lane in lanes:
            alone = _results(lane, arrays)
            check_results(model.outputs, alone, size)
            _check_alike(model.outputs, [found[:1] for found in alone], [found[:1] for found in together])
    return True


def check_independence(model: Model, lane: Lane, types: Sequence[TensorType], rows: int) -> list[Any]:
    """The results for so many random rows of these types.

    Raises `NotBatchable` where the first one changes with the others, or has other results as the last one.
    """
    first, other = _random(types, rows, seed=0), _random(types, rows, seed=1)
    second = [np.concatenate([one[:1], two[1:-1], one[:1]]) for one, two in zip(first, other, strict=True)]
    results = [_results(lane, arrays) for arrays in (first, second)]
    check_results(model.outputs, results[0], rows)
    for name, one, two in zip(model.outputs, *results, strict=True):
        if not np.array_equal(one[:1], two[:1], equal_nan=one.dtype.kind in "fc"):
            raise NotBatchable(f"output {name!r} mixes rows: the first one changes with the others")
    _check_alike(model.outputs, [found[:1] for found in results[1]], [found[-1:] for found in results[1]])
    return results[0]


def check_number(model: Model, lane: Lane, values: Sequence[Any], results: Sequence[Any], sizes: Sequence[int]) -> None:
    """Raise `NotBatchable` where these results change with more rows; where single rows have a size, those of the first row."""
    given = len(values[0])
    if not all(len(value) == given for value in values):
        return
    check_results(model.outputs, results, given)
    if given > sizes[0] == 1:
        values, given = [value[:1] for value in values], 1
        results = _results(lane, values)
        check_results(model.outputs, results, 1)
    if given < sizes[-1]:
        more = _results(lane, [padded([value], sizes[-1]) for value in values])
        _check_alike(model.outputs, results, [found[:given] for found in more])


def _check_alike(names: Sequence[str], results: Sequence[Any], others: Sequence[Any]) -> None:
    """Raise `NotBatchable` where results of the same rows differ by far more than the roundings of kernels for other sizes."""
    for name, one, other in zip(names, results, others, strict=True):
        if one.shape != other.shape or _are_far(one, other):
            raise NotBatchable(f"output {name!r} depends on how many rows there are, or on their places")


def _are_far(one: Any, other: Any) -> bool:
    if one.dtype.kind not in "fiub" or not one.size:
        return False
    first, second = (np.nan_to_num(found.astype(np.float64)) for found in (one, other))
    least = _ROUNDING * float(np.abs(first).max()) if one.dtype.kind == "f" else 0.0
    return bool((np.abs(first - second) > least + _RELATIVE * np.abs(first)).mean() > _SOME)


def _results(lane: Lane, arrays: Sequence[Any]) -> list[Any]:
    with _refused(len(arrays[0])):
        return lane.run(arrays)


@contextmanager
def _refused(rows: int) -> Iterator[None]:
    try:
        yield
    except DovetailError as error:
        raise NotBatchable(f"it does not run with batches of {rows}: {error.message}") from error


def _random(types: Sequence[TensorType], rows: int, seed: int) -> list[Any]:
    """Numbers of either sign; 0 and 1 for whole numbers, which may be indices."""
    rng, found = np.random.default_rng(seed), []
    for one in types:
        shape, numpy = (rows, *(d for d in (one.shape or ())[1:] if isinstance(d, int))), one.dtype.numpy
        found.append((rng.integers(0, 2, shape) if numpy.kind in "iub" else rng.standard_normal(shape)).astype(numpy))
    return found


def check_results(names: Sequence[str], results: Sequence[Any], rows: int) -> None:
    """Raise `NotBatchable` for an output without a row for each row of the inputs."""
    for name, found in zip(names, results, strict=True):
        if not isinstance(found, np.ndarray) or not found.shape or found.shape[0] != rows:
            shape = f"{found.dtype}{list(found.shape)}" if isinstance(found, np.ndarray) else type(found).__name__
            raise NotBatchable(f"output {name!r} is {shape} for {rows} rows")


def padded(arrays: Sequence[Any], rows: int) -> Any:
    """The arrays one after the other, and the last row again until there are so many."""
    missing = rows - sum(len(array) for array in arrays)
    last = arrays[-1][-1:]
    return np.concatenate([*arrays, *([np.repeat(last, missing, axis=0)] if missing else [])])
