"""StringSplit: https://onnx.ai/onnx/operators/onnx__StringSplit.html."""

from collections.abc import Iterable, Iterator
from itertools import chain
from operator import methodcaller

import numpy as np

from dovetail.op import DType, Operator, OperatorError, TensorType
from dovetail_ops_onnx._strings import in_parts
from dovetail_ops_onnx._types import Array

_FEW = 1 << 10
"""Strings whose parts are kept, so that each is split once."""


class StringSplit(Operator):
    """The parts of each string between delimiters, in a new last axis that is filled up with `""`; and how many there are.

    Without a delimiter, or with `""`, strings are split at runs of white space. At most `maxsplit` times, if it is given.
    """

    since = 20
    inputs = ("X: T1",)
    outputs = ("Y: T2", "Z: T3")
    types = {"T1": frozenset({DType.STRING}), "T2": frozenset({DType.STRING}), "T3": frozenset({DType.INT64})}

    delimiter: str | None = None
    maxsplit: int | None = None

    def __post_init__(self) -> None:
        if self.maxsplit is not None and self.maxsplit < 0:
            raise OperatorError(f"attribute 'maxsplit' is {self.maxsplit}; accepted: 0 or more")

    def infer(self, X: TensorType) -> tuple[TensorType, TensorType]:
        """The shape of X, for the parts with an axis more; whose length depends on the data."""
        return X.with_shape((*X.dims, None)), TensorType(DType.INT64, X.dims)

    def reference(self, X: Array) -> tuple[Array, Array]:
        """`str.split` of each."""
        flat = X.reshape(-1)
        if flat.size <= _FEW:
            rows = list(self._split(flat))
            counts = np.fromiter(map(len, rows), np.int64, flat.size)
            y = _filled(rows, counts, int(counts.max(initial=0)))
        else:
            counts = np.fromiter(self._counts(flat), np.int64, flat.size)
            y = np.empty((flat.size, counts.max(initial=0)), object)
            # Not all lists at once: millions that are kept take the garbage collector seconds, with Python's lock.
            in_parts(self._fill, y, flat, counts)
        return y.reshape(*X.shape, y.shape[1]), counts.reshape(X.shape)

    def _split(self, texts: Array) -> Iterator[list[str]]:
        split = methodcaller("split", self.delimiter or None, -1 if self.maxsplit is None else self.maxsplit)
        return map(split, map(str, texts))

    def _counts(self, texts: Array) -> Iterator[int]:
        if not self.delimiter:
            return map(len, self._split(texts))
        counts = map(methodcaller("count", self.delimiter), map(str, texts))
        return (1 + (count if self.maxsplit is None else min(count, self.maxsplit)) for count in counts)

    def _fill(self, y: Array, texts: Array, counts: Array) -> None:
        y[...] = _filled(self._split(texts), counts, y.shape[1])


def _filled(rows: Iterable[list[str]], counts: Array, width: int) -> Array:
    """Lists of so many strings as an array [lists, width]."""
    flat = np.fromiter(chain.from_iterable(rows), object, counts.sum())
    if flat.size == counts.size * width:
        return flat.reshape(counts.size, width)
    y = np.full((counts.size, width), "", object)
    y[np.arange(width) < counts[:, None]] = flat
    return y
