"""The places of many values in a list of keys."""

from itertools import repeat
from typing import Any

import numpy as np

from dovetail_ops_onnx_ml._base import Array

__all__ = ["Lookup"]

_SPARSE = 8
"""Places of a table for each key, and a few more, above which the keys are searched instead."""


class Lookup:
    """Keys: numbers or strings. Of equal ones the first counts; NaN is found only if it `has_nan`."""

    def __init__(self, keys: Array, has_nan: bool = False) -> None:
        self._nan = int(np.argmax(np.isnan(keys))) if has_nan and keys.dtype.kind == "f" and np.isnan(keys).any() else -1
        self._dict: dict[Any, int] | None = None
        self._table: Array | None = None
        if keys.dtype == object:
            self._dict = {key: place for place, key in reversed(list(enumerate(keys.tolist())))}
            return
        self._sorted, self._places = np.unique(keys, return_index=True)
        if keys.dtype.kind == "i" and keys.size:
            self._least = self._sorted[0].astype(np.int64)
            span = int(self._sorted[-1]) - int(self._least) + 1
            if span <= _SPARSE * keys.size + 100:
                self._table = np.full(span + 1, -1, np.int64)
                self._table[self._sorted - self._least] = self._places

    def places(self, x: Array) -> Array:
        """The place of the key that each element of a vector is, or -1; x has the type of the keys."""
        if self._dict is not None:
            return np.fromiter(map(self._dict.get, x.tolist(), repeat(-1)), np.int64, x.size)
        if self._table is not None:
            # Below the least key differences are the greatest numbers without a sign.
            at = np.subtract(x, self._least, dtype=np.int64).view(np.uint64)
            found: Array = self._table.take(np.minimum(at, np.uint64(self._table.size - 1)).view(np.int64))
            return found
        if not self._sorted.size:
            return np.full(x.shape, -1)
        at = np.minimum(np.searchsorted(self._sorted, x), self._sorted.size - 1)
        places = np.where(self._sorted.take(at) == x, self._places.take(at), -1)
        if self._nan >= 0:
            places[np.isnan(x)] = self._nan
        return places
