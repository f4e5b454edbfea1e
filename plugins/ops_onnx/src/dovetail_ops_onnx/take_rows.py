"""Rows of a matrix of bytes in a format of a file, by their numbers. Compositions have it; it is not in the standard."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.op import AbstractOperator, DType, OperatorError, Port, TensorType
from dovetail_ops_onnx.mat_mul_rows import RowFormat

__all__ = ["TakeRows"]

Array = NDArray[Any]

_PART = 16
"""Rows that are read at a time: a system maps 64 KiB of a file for each."""


@dataclass(frozen=True, eq=False)
class TakeRows(AbstractOperator):
    """Rows of W [rows, bytes of a row] in float32, by their numbers from 0 on: [..., K]."""

    domain: ClassVar[str] = "dovetail"
    op_type: ClassVar[str] = "TakeRows"
    stem: ClassVar[str] = "take_rows"
    inputs: ClassVar[tuple[Port, ...]] = (Port("W"), Port("indices"))
    attributes: ClassVar[Mapping[str, Any]] = MappingProxyType(dict.fromkeys(("format",)))
    outputs: ClassVar[tuple[Port, ...]] = (Port("Y"),)

    format: RowFormat

    def infer(self, w: TensorType, indices: TensorType) -> TensorType:
        """The shape of the indices and the elements of a row."""
        return TensorType(DType.FLOAT32, (*indices.dims, self.format.columns))

    def reference(self, w: Array, indices: Array) -> Array:
        """Reads only these rows. Raises `OperatorError` for a number that is not that of a row."""
        if np.any((indices < 0) | (indices >= len(w))):
            raise OperatorError(f"input 'indices' has {int(indices.min())} to {int(indices.max())}; accepted: 0 to {len(w) - 1}")
        found, chosen = np.empty((indices.size, self.format.columns), np.float32), indices.reshape(-1)
        for first in range(0, len(chosen), _PART):
            found[first : first + _PART] = self.format.floats(w, chosen[first : first + _PART])
        return found.reshape(*indices.shape, self.format.columns)
