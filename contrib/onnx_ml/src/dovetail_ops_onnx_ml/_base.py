"""Shared by the operators of the domain: samples, features, labels."""

from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from dovetail.op import DType, Operator, OperatorError, ShapeError, TensorType

if TYPE_CHECKING:
    from dovetail.testing import Case

__all__ = ["NUMBERS", "Array", "MachineLearningOperator", "classes_of", "column", "labels", "product", "rows", "samples", "table"]

Array = NDArray[Any]
_PRODUCTS, _LONG, _LEAST = 1 << 18, 1 << 25, 32
"""Products of a block, products that take long, and the samples and targets of a block at least."""
NUMBERS = frozenset({DType.FLOAT32, DType.FLOAT64, DType.INT64, DType.INT32})


class MachineLearningOperator(Operator):
    """Base of the operators of `ai.onnx.ml`. Cases are in `cases.py`, in a function of the operator's stem."""

    domain = "ai.onnx.ml"
    types: ClassVar[Any] = {"T": NUMBERS}

    @classmethod
    def cases(cls, rng: np.random.Generator) -> "Iterable[Case]":
        """The cases that the function of that name yields."""
        # Loaded here, because only tests need cases.
        return cast("Iterable[Case]", getattr(import_module("dovetail_ops_onnx_ml.cases"), cls.stem)(cls))


def samples(X: TensorType) -> tuple[int, int]:
    """How many samples there are, and features of each; a vector is one sample. Raises `ShapeError` for other ranks."""
    if X.rank not in (1, 2):
        raise ShapeError(f"input 'X' is {X}; accepted: [features] or [samples, features]")
    return (1, X.dims[0]) if X.rank == 1 else (X.dims[0], X.dims[1])


def table(X: Array, features: int | None = None, what: str = "") -> Array:
    """X as [samples, features] in float32, or float64 if it is that. Raises `ShapeError` for other than `features`."""
    found = X if X.ndim == 2 else X.reshape(samples(TensorType.of(X)))
    if features is not None and found.shape[1] != features:
        raise ShapeError(f"input 'X' has {found.shape[1]} features; {what} {features}")
    return found if found.dtype == np.float64 else found.astype(np.float32, copy=False)


def product(x: Array, weights: Array) -> Array:
    """Samples [samples, features] times weights [features, targets], in float64.

    In blocks that OpenBLAS leaves to one thread, unless they take long: where other programs use the cores, to wait for a second
    thread takes 16 ms.
    """
    count, (features, targets) = len(x), weights.shape
    if not _PRODUCTS < count * weights.size < _LONG:
        whole: Array = x.astype(np.float64, copy=False) @ weights
        return whole
    found = np.empty((count, targets))
    wide = min(targets, max(_LEAST, _PRODUCTS // (features * _LEAST)))
    step = max(_LEAST, _PRODUCTS // (features * wide))
    for start in range(0, count, step):
        part = x[start : start + step].astype(np.float64, copy=False)
        for first in range(0, targets, wide):
            columns = slice(first, first + wide)
            np.matmul(part, weights[:, columns], out=found[start : start + step, columns])
    return found


def rows(values: Sequence[float], count: int, name: str) -> Array:
    """An attribute as a matrix of `count` rows. Raises `OperatorError` when its length is not a multiple."""
    if count < 1 or len(values) % count:
        raise OperatorError(f"attribute {name!r} has {len(values)} numbers; accepted: a multiple of {count}")
    return np.array(values, np.float64).reshape(count, -1)


def column(values: Sequence[float], features: int, name: str) -> Array:
    """An attribute with one number for all features, or one for each. Raises `OperatorError`."""
    if len(values) not in (1, features):
        raise OperatorError(f"attribute {name!r} has {len(values)} numbers; accepted: 1, or {features}, one for each feature")
    return np.array(values, np.float64)


def classes_of(ints: Sequence[int], strings: Sequence[str]) -> Array:
    """The labels of the classes, as int64 or objects. Raises `OperatorError` for both, or none."""
    if bool(ints) == bool(strings):
        raise OperatorError(f"there are {len(ints)} labels that are numbers and {len(strings)} strings; accepted: one of them")
    return np.array(strings, object) if strings else np.array(ints, np.int64)


def labels(ints: Sequence[int], strings: Sequence[str], count: int) -> TensorType:
    """The type of the labels of some samples."""
    return TensorType(DType.of(classes_of(ints, strings).dtype), (count,))
