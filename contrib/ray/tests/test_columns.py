"""Rows of tables as inputs: shapes, data types, text, and the rows that are refused."""

import json
from typing import Any

import numpy as np
import pytest

from dovetail import DType, TensorType
from dovetail.errors import UsageError
from dovetail_ray.columns import Groups, RowError, RowReader

INPUTS = {"x": TensorType(DType.FLOAT32, ("N", 3))}


def objects(*values: Any) -> Any:
    made = np.empty(len(values), object)
    for index, value in enumerate(values):
        made[index] = value
    return made


def read(column: Any, shape: Any = ("N", 3), dtype: DType = DType.FLOAT32, **options: Any) -> Groups:
    return RowReader({"x": TensorType(dtype, shape)}, **options).read({"x": column}, len(column), {})


def only(found: Groups) -> tuple[list[int], Any]:
    ((positions, feeds),) = found.groups
    return positions.tolist(), feeds["x"]


@pytest.mark.parametrize(
    "column",
    [
        np.arange(6, dtype=np.float64).reshape(2, 3),
        np.arange(6, dtype=np.int64).reshape(2, 3)[::1],
        np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
        objects([0, 1, 2], [3, 4, 5]),
        objects(np.array([0.0, 1, 2]), np.array([3, 4, 5])),
        objects("[0, 1, 2]", " [3, 4.0, 5]"),
    ],
)
def test_rows_in_every_form(column: Any) -> None:
    positions, values = only(read(column))
    assert positions == [0, 1]
    assert values.dtype == np.float32
    np.testing.assert_array_equal(values, [[0, 1, 2], [3, 4, 5]])


def test_flat_rows_take_the_shape_of_the_input() -> None:
    _, values = only(read(np.arange(12).reshape(2, 6), ("N", 2, 3)))
    np.testing.assert_array_equal(values, np.arange(12).reshape(2, 2, 3))
    _, values = only(read(np.arange(2), ("N", 1)))
    np.testing.assert_array_equal(values, [[0], [1]])
    _, values = only(read(np.arange(2).reshape(2, 1), ("N",)))
    np.testing.assert_array_equal(values, [0, 1])


def test_rows_of_a_wrong_shape_are_errors() -> None:
    found = read(objects([1, 2, 3], [1, 2], None, [1, [2], 3], "cat", [4, 5, 6]))
    positions, values = only(found)
    assert positions == [0, 5]
    np.testing.assert_array_equal(values, [[1, 2, 3], [4, 5, 6]])
    messages = {row: error.message for row, error in found.errors.items()}
    assert {*messages} == {1, 2, 3, 4}
    assert messages[1] == "input 'x' has the shape [2] in this row; accepted: a row of float32[N, 3]"
    assert "it is missing" in messages[2]
    assert "makes no array" in messages[3]
    assert messages[4] == "input 'x' is 'cat'; accepted: a row of float32[N, 3]"
    assert {error.code for error in found.errors.values()} == {"DT401"}
    assert read(np.zeros((2, 4))).groups == []
    assert len(read(np.zeros((2, 4))).errors) == 2


def test_rows_of_several_shapes_are_batches_of_their_own() -> None:
    found = read(objects([1.0], [2.0, 3.0], [4.0], []), ("N", "L"))
    assert [(positions.tolist(), feeds["x"].tolist()) for positions, feeds in found.groups] == [
        ([0, 2], [[1], [4]]),
        ([1], [[2, 3]]),
        ([3], [[]]),
    ]


def test_nan_is_an_error_where_it_is_refused() -> None:
    column = np.array([[1, 2, 3], [np.nan, 1, 2], [3, 2, 1]])
    assert read(column).errors == {}
    found = read(column, refuse_nan=True)
    assert found.errors == {1: RowError("DT401", "input 'x' has NaN, which is refused")}
    assert only(found)[0] == [0, 2]
    assert read(objects([1, 2, 3], [1, 2, float("nan")]), refuse_nan=True).errors.keys() == {1}


@pytest.mark.parametrize(
    ("dtype", "values", "wrong"),
    [
        (DType.INT8, [1, 127, 128, -129], {2, 3}),
        (DType.INT64, [1.0, 1.5, np.nan, np.inf], {1, 2, 3}),
        (DType.UINT8, [0, -1, 255, 256], {1, 3}),
        (DType.FLOAT32, [1e39, 1, np.inf, np.nan], {0}),
        (DType.FLOAT16, [65504.0, 65520.0, 0.1, -7e4], {1, 3}),
        (DType.BOOL, [0, 1, 2, True], {2}),
    ],
)
def test_numbers_that_the_data_type_cannot_hold_are_errors(dtype: DType, values: list[Any], wrong: set[int]) -> None:
    found = read(np.array(values, np.float64), ("N",), dtype)
    assert found.errors.keys() == wrong
    positions, kept = only(found)
    assert kept.dtype == dtype.numpy
    np.testing.assert_array_equal(kept, np.array(values, np.float64)[positions].astype(dtype.numpy))


def test_text() -> None:
    _, values = only(read(objects("a", "1.5"), ("N",), DType.STRING))
    assert values.tolist() == ["a", "1.5"]


def test_columns_by_name_by_list_and_all_of_them() -> None:
    table = {"a": np.array([1, 2]), "b": np.array([3.0, 4.0]), "c": np.array([5, 6])}
    ((_, feeds),) = RowReader(INPUTS).read(table, 2, {}).groups
    np.testing.assert_array_equal(feeds["x"], [[1, 3, 5], [2, 4, 6]])
    ((_, feeds),) = RowReader(INPUTS, {"x": ["c", "b", "a"]}).read({**table, "x": table["a"]}, 2, {}).groups
    np.testing.assert_array_equal(feeds["x"], [[5, 3, 1], [6, 4, 2]])
    text = {name: objects(*map(str, column)) for name, column in table.items()}
    ((_, feeds),) = RowReader(INPUTS).read(text, 2, {}).groups
    np.testing.assert_array_equal(feeds["x"], [[1, 3, 5], [2, 4, 6]])


def test_wrong_columns_are_refused() -> None:
    with pytest.raises(UsageError, match=r"no column for input 'x' \(float32\[N, 3\]\); there are: a\n.*--columns x=A,B"):
        RowReader(INPUTS).columns_of(["a"])
    with pytest.raises(UsageError, match="the column 'aa' for input 'x' does not exist"):
        RowReader(INPUTS, {"x": ["aa"]}).columns_of(["a", "b"])
    with pytest.raises(UsageError, match="the model has no input 'y'"):
        RowReader(INPUTS, {"y": ["a"]})
    with pytest.raises(UsageError, match="its rows cannot be taken from a table"):
        RowReader({"x": TensorType(DType.FLOAT32, ())})


def test_rows_that_could_not_be_read_are_left_out() -> None:
    error = RowError("DT401", "broken")
    found = RowReader(INPUTS).read({"x": np.zeros((3, 3))}, 3, {1: error})
    assert only(found)[0] == [0, 2]
    assert found.errors == {1: error}
    assert RowReader(INPUTS).read({}, 1, {0: error}).groups == []


def test_random_tables_keep_their_rows() -> None:
    """Half of the rows are made wrong at random; the others arrive in order, whole."""
    rng = np.random.default_rng(7)
    for _ in range(20):
        rows = int(rng.integers(1, 40))
        values = rng.standard_normal((rows, 3)).astype(np.float32)
        wrong = {int(row) for row in np.flatnonzero(rng.random(rows) < 0.5)}
        cells = [json.dumps(values[row].tolist()) if row not in wrong else "[1, 2" for row in range(rows)]
        found = read(objects(*cells))
        assert found.errors.keys() == wrong
        kept = [row for row in range(rows) if row not in wrong]
        got = [(positions.tolist(), feeds["x"]) for positions, feeds in found.groups]
        assert [positions for positions, _ in got] == ([kept] if kept else [])
        for positions, array in got:
            np.testing.assert_array_equal(array, values[positions])
