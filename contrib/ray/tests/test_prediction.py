"""Models over tables: batches, rows that fail alone, models of a fixed batch, outputs that differ in shape."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail import DType, Operator, TensorType
from dovetail.errors import DeviceError, InferError, UsageError
from dovetail_ops_onnx.relu import Relu
from dovetail_ray.prediction import RowModel

X = np.random.default_rng(3).standard_normal((23, 3)).astype(np.float32)
W, B = np.array([[1, -1], [2, 0], [0, 3]], np.float64), np.array([0.5, -4])
Y = np.maximum(X.astype(np.float64) @ W + B, 0)


SIZES: list[int] = []
"""Rows of each run of Picky."""


class Picky(Operator):
    """The input, unless a row begins with 13; 7 becomes NaN.."""

    domain = "test.ray"
    op_type = "Picky"

    def infer(self, x: TensorType) -> TensorType:
        return x

    def reference(self, x: Any) -> Any:
        SIZES.append(len(x))
        if (x[:, 0] == 13).any():
            raise InferError("thirteen is refused")
        return np.where(x == 7, np.nan, x).astype(x.dtype)


def compiled(op: Any, batch: Any = "N") -> dovetail.CompiledModel:
    g = dovetail.GraphBuilder()
    return dovetail.Core(config=False).compile_model(
        g.model([g.node(op, g.input("x", "float32", (batch, 2)), outputs=["y"])]), "NUMPY"
    )


def rows(*first: float) -> dict[str, Any]:
    return {"x": np.array([[value, 1] for value in first], np.float32)}


@pytest.mark.parametrize("batch_size", [1, 7, 23, 100])
def test_all_rows_in_batches(linear: Path, batch_size: int) -> None:
    model = RowModel(dovetail.Core(config=False).compile_model(linear, "NUMPY"), batch_size)
    found = model.predict({"x": X}, 23)
    np.testing.assert_allclose(found.outputs["y"], Y, rtol=1e-5, atol=1e-6)
    assert found.errors == {}
    assert found.error_columns(2)["error_code"].tolist() == [None, None]


def test_a_row_that_fails_costs_no_other() -> None:
    SIZES.clear()
    found = RowModel(compiled(Picky()), 8).predict(rows(1, 2, 13, 4, 5, 6, 13, 8, 9), 9)
    assert {row: (error.code, error.message) for row, error in found.errors.items()}.keys() == {2, 6}
    assert found.errors[2].code == "DT400"
    assert "thirteen is refused" in found.errors[2].message
    np.testing.assert_array_equal(found.outputs["y"][:, 0], [1, 2, np.nan, 4, 5, 6, np.nan, 8, 9])
    assert found.error_columns(9)["error_code"].tolist() == [None, None, "DT400", None, None, None, "DT400", None, None]
    assert 8 in SIZES
    assert min(SIZES) == 1


def test_all_rows_may_fail() -> None:
    found = RowModel(compiled(Picky())).predict(rows(13, 13), 2)
    assert found.errors.keys() == {0, 1}
    assert found.outputs["y"].dtype == np.float32
    np.testing.assert_array_equal(found.outputs["y"], np.full((2, 2), np.nan))


def test_a_device_that_breaks_ends_the_work() -> None:
    """No row is at fault."""

    class Broken(SimpleNamespace):
        def __call__(self, feeds: Any) -> Any:
            raise DeviceError("the device broke")

    model: Any = Broken(inputs=compiled(Picky()).inputs, outputs={"y": None})
    with pytest.raises(DeviceError, match="the device broke"):
        RowModel(model).predict(rows(1, 2), 2)


def test_nan_in_outputs_is_refused_where_asked() -> None:
    assert RowModel(compiled(Picky())).predict(rows(1, 7), 2).errors == {}
    found = RowModel(compiled(Picky()), refuse_nan=True).predict(rows(1, 7, 2), 3)
    assert {row: error.message for row, error in found.errors.items()} == {1: "output 'y' has NaN, which is refused"}
    np.testing.assert_array_equal(found.outputs["y"][:, 0], [1, np.nan, 2])


@pytest.mark.parametrize("count", [1, 4, 6])
def test_a_fixed_batch_is_filled_up(count: int) -> None:
    SIZES.clear()
    found = RowModel(compiled(Picky(), 4), 100).predict(rows(*range(1, count + 1)), count)
    np.testing.assert_array_equal(found.outputs["y"][:, 0], range(1, count + 1))
    assert {*SIZES} == {4}


def test_rows_of_different_lengths() -> None:
    g = dovetail.GraphBuilder()
    model = g.model([g.node(Relu(), g.input("x", "float32", ("N", "L")), outputs=["y"])])
    column = np.empty(3, object)
    column[:] = [[-1.0, 2], [3.0], "no"]
    found = RowModel(dovetail.Core(config=False).compile_model(model, "NUMPY")).predict({"x": column}, 3)
    assert [None if value is None else value.tolist() for value in found.outputs["y"]] == [[0, 2], [3], None]
    assert found.errors.keys() == {2}


class Total(Operator):
    """One number for all rows."""

    domain = "test.ray"
    op_type = "Total"

    def infer(self, x: TensorType) -> TensorType:
        return TensorType(DType.FLOAT32, ())

    def reference(self, x: Any) -> Any:
        return np.array(x.sum(), np.float32)


def test_a_model_whose_outputs_are_not_rows_is_refused() -> None:
    with pytest.raises(UsageError, match=r"output 'y' of 2 rows is float32\[\]\n.*dimension 0 of each output"):
        RowModel(compiled(Total())).predict(rows(1, 2), 2)
