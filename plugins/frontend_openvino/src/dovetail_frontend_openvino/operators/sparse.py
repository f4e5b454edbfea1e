"""Sparse matrices as lists of their elements."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dovetail.op import NUMERIC, DType, Operator, OperatorError, ShapeError, TensorType

if TYPE_CHECKING:
    from dovetail.testing import Case

__all__ = ["SparseFillEmptyRows"]

Array = NDArray[Any]


class SparseFillEmptyRows(Operator):
    """The elements of a sparse matrix with a default in column 0 of each row that has none, row by row, and which rows had none.

    `values` [n] are at `indices` [n, 2], rows and columns, in a matrix of `dense_shape` [2]; the results are
    sorted by row and column, as in OpenVINO.
    """

    domain: ClassVar[str] = "openvino"
    inputs = ("values: T", "dense_shape: I", "indices: I", "default_value: T")
    outputs = ("output_indices: I", "output_values: T", "empty_row_indicator: bool")
    types = {"T": NUMERIC | {DType.BOOL, DType.STRING}, "I": frozenset({DType.INT32, DType.INT64})}

    def infer(
        self, values: TensorType, dense_shape: TensorType, indices: TensorType, default_value: TensorType
    ) -> tuple[TensorType, ...]:
        """[m, 2], [m] and [rows]; m is known when the data is."""
        if values.rank != 1 or indices.dims != (*values.dims, 2) or dense_shape.dims != (2,) or default_value.size != 1:
            shown = f"'values' is {values}, 'dense_shape' {dense_shape}, 'indices' {indices}, 'default_value' {default_value}"
            raise ShapeError(f"{shown}; accepted: [n], [2], [n, 2], one element")
        rows = None if dense_shape.value is None else int(dense_shape.value[0])
        return indices.with_shape((None, 2)), values.with_shape((None,)), TensorType(DType.BOOL, (rows,))

    def reference(self, values: Array, dense_shape: Array, indices: Array, default_value: Array) -> tuple[Array, ...]:
        """By sorting. Raises `OperatorError` for elements outside the matrix."""
        rows = int(dense_shape[0])
        if rows < 0 or ((indices < 0) | (indices >= dense_shape)).any():
            raise OperatorError(f"input 'indices' names elements outside a matrix of {dense_shape.tolist()}")
        is_empty = np.ones(rows, bool)
        is_empty[indices[:, 0]] = False
        added = np.zeros((int(is_empty.sum()), 2), indices.dtype)
        added[:, 0] = np.flatnonzero(is_empty)
        places = np.concatenate([indices, added])
        order = np.lexsort((places[:, 1], places[:, 0]))
        filled = np.concatenate([values, np.full(len(added), default_value.reshape(()), values.dtype)])
        return places[order], filled[order], is_empty

    @classmethod
    def cases(cls, rng: np.random.Generator) -> "Iterable[Case]":
        """The example of TensorFlow's documentation."""
        from dovetail_frontend_openvino.operators.cases import sparse_fill_empty_rows  # here, because only tests need cases

        return sparse_fill_empty_rows(rng)
