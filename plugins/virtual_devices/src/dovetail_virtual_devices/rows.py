"""Models and rows: a first dimension of any size for every input, and whether rows leave each other alone."""

import logging
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from dovetail.errors import DovetailError
from dovetail.virtual import Model, Part, PartRequest, TensorType

__all__ = ["NotBatchable", "check_results", "check_rows", "padded", "slices", "with_open_batch"]

log = logging.getLogger("dovetail")

_SYMBOL = "batch"


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


def check_rows(model: Model, part: Part, size: int) -> None:
    """Compile for batches of `size`, and run random rows: what the others are must not change the first one.

    Does nothing for a model with further open dimensions, whose sizes nobody knows. Raises `NotBatchable` naming the output.
    """
    types = list(model.inputs.values())
    if size < 2 or not all(all(isinstance(d, int) for d in (t.shape or ())[1:]) for t in types):
        return
    rng = np.random.default_rng(0)
    first = [_random(rng, t, size) for t in types]
    second = [np.concatenate([array[:1], _random(rng, t, size)[1:]]) for array, t in zip(first, types, strict=True)]
    request: PartRequest | None = None
    try:
        part.plan(tuple(array.shape for array in first))
        request = part.create_infer_request()
        results = [[np.array(found) for found in request.forward(arrays)] for arrays in (first, second)]
    except DovetailError as error:
        raise NotBatchable(f"it does not run with batches of {size}: {error.message}") from error
    finally:
        if request is not None:
            request.close()
    for name, one, other in zip(model.outputs, *results, strict=True):
        check_results([name], [one], size)
        if not np.array_equal(one[:1], other[:1], equal_nan=one.dtype.kind in "fc"):
            raise NotBatchable(f"output {name!r} mixes rows: the first one changes with the others")


def _random(rng: np.random.Generator, found: TensorType, size: int) -> Any:
    """Numbers of either sign; 0 and 1 for whole numbers, which may be indices."""
    shape = (size, *(d for d in (found.shape or ())[1:] if isinstance(d, int)))
    numpy = found.dtype.numpy
    return (rng.integers(0, 2, shape) if numpy.kind in "iub" else rng.standard_normal(shape)).astype(numpy)


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


def slices(counts: Sequence[int]) -> list[slice]:
    """The rows of each of several requests that lie one after the other."""
    ends = np.cumsum([0, *counts]).tolist()
    return [slice(start, end) for start, end in pairwise(ends)]
