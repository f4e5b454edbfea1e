"""Blocks of files: what is cut, read and written, in every format, with rows that cannot be read."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from PIL import Image

from dovetail import DType, TensorType
from dovetail.errors import InputError, UsageError
from dovetail_ray.pictures import read_images
from dovetail_ray.sinks import written
from dovetail_ray.sources import READERS, Block, blocks_of, files_of

ROWS = 25
X = np.random.default_rng(5).standard_normal((ROWS, 3)).astype(np.float32)


def write(path: Path) -> None:
    """X and the number of the row, in the format of the suffix."""
    lists = pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), 3)
    table = pa.table({"id": pa.array(np.arange(ROWS)), "x": lists})
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=4)
    elif path.suffix == ".npz":
        np.savez(path, id=np.arange(ROWS), x=X)
    elif path.suffix == ".jsonl":
        path.write_text("\n\n".join(json.dumps(row) for row in table.to_pylist()))
    else:
        pa.csv.write_csv(pa.table({"id": table["id"], **{f"x{i}": X[:, i].astype(np.float64) for i in range(3)}}), path)


def joined(blocks: list[Block], column: str) -> Any:
    parts = [READERS[block.format](block) for block in blocks]
    assert [part.count for part in parts] == [block.stop - block.start for block in blocks]
    assert all(part.errors == {} for part in parts)
    return np.concatenate([part.table[column] for part in parts])


@pytest.mark.parametrize("suffix", [".parquet", ".npz", ".jsonl", ".csv"])
@pytest.mark.parametrize("rows", [1, 7, 25, 1000])
def test_blocks_have_every_row_once(tmp_path: Path, suffix: str, rows: int) -> None:
    write(tmp_path / f"rows{suffix}")
    blocks = blocks_of(files_of(str(tmp_path)), rows)
    assert len(blocks) == {".parquet": {1: 7, 7: 4}, ".csv": {}}.get(suffix, {}).get(rows, -(-ROWS // rows))
    assert [block.index for block in blocks] == [*range(len(blocks))]
    np.testing.assert_array_equal(joined(blocks, "id"), np.arange(ROWS))
    found = [joined(blocks, name) for name in (("x0", "x1", "x2") if suffix == ".csv" else ("x",))]
    np.testing.assert_allclose(np.stack(found, 1) if suffix == ".csv" else found[0], X, rtol=1e-6)


def test_folders_are_read_in_order_and_files_that_are_empty_have_no_blocks(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for name in ("b/one.jsonl", "a.jsonl"):
        (tmp_path / name).write_text(f'{{"name": "{name}"}}\n')
    (tmp_path / "c.ndjson").write_text("\n")
    (tmp_path / "notes.txt").write_text("not read")
    blocks = blocks_of(files_of(str(tmp_path)), 10)
    assert joined(blocks, "name").tolist() == ["a.jsonl", "b/one.jsonl"]


def test_lines_in_quotes_are_one_row(tmp_path: Path) -> None:
    (tmp_path / "text.csv").write_text('name,x\n"a\nb",1\n"say ""x""",2\n"c\n\nd",3\n')
    blocks = blocks_of(files_of(str(tmp_path)), 1)
    assert len(blocks) == 3
    assert joined(blocks, "name").tolist() == ["a\nb", 'say "x"', "c\n\nd"]
    assert joined(blocks, "x").tolist() == [1, 2, 3]


def test_lines_that_cannot_be_read_are_errors_of_their_rows(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("x,y\n1,2\n3\n4,5,6\n7,8\n")
    (block,) = blocks_of(files_of(str(tmp_path / "rows.csv")), 10)
    found = READERS["csv"](block)
    assert {row: error.message for row, error in found.errors.items()} == {
        1: "the line has 1 cells; the header has 2",
        2: "the line has 3 cells; the header has 2",
    }
    assert found.table["x"].tolist() == ["1", "", "", "7"]
    (tmp_path / "rows.jsonl").write_text('{"x": 1}\n{"x": \n[2]\n{"y": 3}\n')
    (block,) = blocks_of(files_of(str(tmp_path / "rows.jsonl")), 10)
    found = READERS["jsonl"](block)
    assert found.errors.keys() == {1, 2}
    assert {error.code for error in found.errors.values()} == {"DT401"}
    assert found.table["x"].tolist() == [1, None, None, None]


def test_nulls_and_lists_of_different_lengths_are_objects(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"a": [1, None, 3], "b": [[1.0, 2], [3.0], None], "c": [[1, 2], [3, 4], [5, 6]]}), tmp_path / "t.parquet"
    )
    (block,) = blocks_of(files_of(str(tmp_path)), 10)
    table = READERS["parquet"](block).table
    assert table["a"].tolist() == [1, None, 3]
    assert table["b"].tolist() == [[1, 2], [3], None]
    np.testing.assert_array_equal(table["c"], [[1, 2], [3, 4], [5, 6]])


def test_wrong_inputs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        files_of(str(tmp_path / "none"))
    with pytest.raises(UsageError, match="has no file that can be read"):
        files_of(str(tmp_path))
    (tmp_path / "a.parquet").write_bytes(b"PAR1 and so on")
    with pytest.raises(InputError, match=r"a\.parquet is damaged, or not parquet"):
        blocks_of(files_of(str(tmp_path)), 10)
    (tmp_path / "b.csv").write_text("x\n1\n")
    with pytest.raises(UsageError, match="several formats: csv, parquet"):
        files_of(str(tmp_path))
    (tmp_path / "c.xlsx").write_bytes(b"")
    with pytest.raises(UsageError, match="of no format that can be read"):
        files_of(str(tmp_path / "c.xlsx"))
    np.savez(tmp_path / "d.npz", x=np.zeros(2), y=np.zeros(3))
    with pytest.raises(InputError, match="do not have one number of rows"):
        blocks_of([tmp_path / "d.npz"], 10)
    np.savez(tmp_path / "e.npz", x=np.array([{}], object))
    with pytest.raises(InputError, match="holds objects"):
        blocks_of([tmp_path / "e.npz"], 10)


def test_pictures(tmp_path: Path) -> None:
    gray = np.arange(64, dtype=np.uint8).reshape(8, 8) * 4
    Image.fromarray(gray).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(b"not a picture")
    Image.fromarray(np.dstack([gray, gray.T, gray])).resize((16, 4)).save(tmp_path / "c.png")
    (block,) = blocks_of(files_of(str(tmp_path)), 10)
    found = read_images(block, "x", TensorType(DType.FLOAT32, ("N", 1, 8, 8)))
    assert found.errors.keys() == {1}
    assert "b.png is not a picture" in found.errors[1].message
    np.testing.assert_allclose(found.table["x"][0, 0], gray / 255, rtol=1e-6)
    last = read_images(block, "x", TensorType(DType.UINT8, ("N", 4, 16, 3))).table["x"]
    np.testing.assert_array_equal(last[2], np.asarray(Image.open(tmp_path / "c.png")))
    with pytest.raises(UsageError, match="takes no picture"):
        read_images(block, "x", TensorType(DType.FLOAT32, ("N", 5)))


Y = np.arange(12, dtype=np.float32).reshape(3, 2, 2)
GIVEN = {"id": np.array([7, 8, 9])}
ERRORS = {"error_code": np.array([None, "DT401", None], object)}


def stored(path: Path, wrong: set[int], values: Any = Y) -> None:
    written(path, path.suffix[1:], GIVEN, {"y": values, "n": np.array([1, 0, 3])}, ERRORS, frozenset(wrong))


def test_parquet_keeps_types_and_has_null_for_errors(tmp_path: Path) -> None:
    stored(tmp_path / "out.parquet", {1})
    table = pq.read_table(tmp_path / "out.parquet")
    assert str(table.schema.field("y").type) == "fixed_size_list<element: fixed_size_list<element: float>[2]>[2]"
    assert table["y"].to_pylist() == [[[0, 1], [2, 3]], None, [[8, 9], [10, 11]]]
    assert table["n"].to_pylist() == [1, None, 3]
    stored(tmp_path / "good.parquet", set())
    assert pq.read_table(tmp_path / "good.parquet").schema == table.schema


def test_lines_of_json_and_csv(tmp_path: Path) -> None:
    stored(tmp_path / "out.jsonl", {1}, np.where(Y == 11, np.nan, Y))
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert rows[1] == {"id": 8, "y": None, "n": None, "error_code": "DT401"}
    assert rows[2]["y"] == [[8, 9], [10, None]]
    stored(tmp_path / "out.csv", {1})
    read = pa.csv.read_csv(tmp_path / "out.csv", convert_options=pa.csv.ConvertOptions(strings_can_be_null=True)).to_pylist()
    assert read[1] == {"id": 8, "y": None, "n": None, "error_code": "DT401"}
    assert json.loads(read[2]["y"]) == [[8, 9], [10, 11]]


def test_npz_holds_plain_arrays(tmp_path: Path) -> None:
    stored(tmp_path / "out.npz", {1})
    with np.load(tmp_path / "out.npz", allow_pickle=False) as file:
        np.testing.assert_array_equal(file["y"], Y)
        assert file["error_code"].tolist() == ["", "DT401", ""]
    ragged = np.empty(3, object)
    ragged[:] = [np.zeros(1), np.zeros(2), None]
    with pytest.raises(UsageError, match=r"the rows of 'y' differ in shape"):
        stored(tmp_path / "ragged.npz", {2}, ragged)
    assert [path.name for path in tmp_path.iterdir()] == ["out.npz"]
    stored(tmp_path / "ragged.parquet", {2}, ragged)
    assert pq.read_table(tmp_path / "ragged.parquet")["y"].to_pylist() == [[0], [0, 0], None]


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl", ".npz"])
@pytest.mark.parametrize("rows", [0, 1, 3])
def test_a_value_that_all_rows_share_is_written_as_if_each_had_it(tmp_path: Path, suffix: str, rows: int) -> None:
    files = []
    for name, make in (("shared", np.broadcast_to), ("each", lambda value, rows: np.full(rows, value, object))):
        files.append(tmp_path / f"{name}{suffix}")
        text, none = make(np.array("a/b.csv", object), rows), make(np.array(None, object), rows)
        written(files[-1], suffix[1:], {"source_file": text}, {"y": Y[:rows]}, {"error_code": none}, frozenset())
    if suffix == ".npz":
        shared, each = ({name: array.tolist() for name, array in np.load(file).items()} for file in files)
    elif suffix == ".parquet":
        shared, each = map(pq.read_table, files)
        assert shared.column_names == ["source_file", "y", "error_code"]
    else:
        shared, each = (file.read_text() for file in files)
    assert shared == each


def test_text_is_stored_once_and_numbers_as_they_are(tmp_path: Path) -> None:
    stored(tmp_path / "out.parquet", set())
    group = pq.read_metadata(tmp_path / "out.parquet").row_group(0)
    columns = [group.column(i) for i in range(group.num_columns)]
    assert {c.path_in_schema: c.has_dictionary_page for c in columns} == {
        "id": False, "y.list.element.list.element": False, "n": False, "error_code": True,
    }  # fmt: skip
