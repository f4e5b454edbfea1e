"""Operators on strings work in parts, so that a run can be left meanwhile: the results are those of plain Python."""

from typing import Any

import numpy as np
import pytest

from dovetail_ops_onnx import _strings, string_split
from dovetail_ops_onnx._strings import in_parts, indexed, sorted_places
from dovetail_ops_onnx.cast import Cast
from dovetail_ops_onnx.gather import Gather
from dovetail_ops_onnx.gather_elements import GatherElements
from dovetail_ops_onnx.gather_nd import GatherND
from dovetail_ops_onnx.scatter_elements import ScatterElements
from dovetail_ops_onnx.string_concat import StringConcat
from dovetail_ops_onnx.string_normalizer import StringNormalizer
from dovetail_ops_onnx.string_split import StringSplit
from dovetail_ops_onnx.unique import Unique


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_strings, "PART", 4)


@pytest.fixture
def texts(rng: np.random.Generator) -> Any:
    """A matrix [7, 5] with repeated strings of one to three words, and empty ones."""
    words = ["", "a", "B", "a B", "  c  a", "Ä b c"]
    return np.array([words[i] for i in rng.integers(len(words), size=35)], object).reshape(7, 5)


@pytest.mark.parametrize("shape", [(), (0,), (3,), (7, 5), (1, 33), (33, 1), (2, 0, 9)])
def test_parts_are_small_and_cover_the_array_once(shape: tuple[int, ...]) -> None:
    seen = np.zeros(shape, int)
    sizes: list[int] = []
    in_parts(lambda dst, src: (sizes.append(dst.size), np.add(dst, src, out=dst)), seen, np.ones((*shape, 2))[..., 0].astype(int))
    np.testing.assert_array_equal(seen, np.ones(shape))
    assert max(sizes) <= 4


def test_concat_broadcasts(texts: Any) -> None:
    found = StringConcat().reference(texts[:, None], texts[:1].T)
    assert found.shape == (7, 5, 5)
    assert found.dtype == object
    assert found.tolist() == [[[x + y for x in row] for y in texts[0]] for row in texts]
    assert StringConcat().reference(np.array("a", object), np.array("b", object)).tolist() == "ab"


@pytest.mark.parametrize("few", [0, 100])
def test_split(texts: Any, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(string_split, "_FEW", few)
    parts, counts = StringSplit().reference(texts)
    want = [[text.split() for text in row] for row in texts]
    assert counts.tolist() == [[len(x) for x in row] for row in want]
    assert parts.tolist() == [[x + [""] * (parts.shape[2] - len(x)) for x in row] for row in want]


def test_normalizer(texts: Any) -> None:
    flat = texts.reshape(1, -1)
    found = StringNormalizer(case_change_action="UPPER", stopwords=("b", "")).reference(flat)
    assert found.tolist() == [[x.upper() for x in flat[0] if x not in ("b", "B", "")]]
    assert StringNormalizer(stopwords=("", "a", "b")).reference(np.array(["A", ""], object)).tolist() == [""]


@pytest.mark.parametrize("dtype", [np.int64, np.float32, np.bool_])
def test_cast_to_strings(dtype: Any, rng: np.random.Generator) -> None:
    numbers = (rng.standard_normal((3, 7)) * 1000).astype(dtype)
    found = Cast(to="string").reference(numbers.T)
    assert found.tolist() == [[str(x) for x in row] for row in numbers.T]
    assert {type(x) for x in found.flat} == {str}


def test_gathering_and_scattering(texts: Any, rng: np.random.Generator) -> None:
    rows, columns = rng.integers(-7, 7, (2, 9)), rng.integers(-5, 5, (2, 9))
    assert Gather(axis=1).reference(texts, columns).tolist() == [[[row[c] for c in line] for line in columns] for row in texts]
    assert GatherND().reference(texts, np.stack([rows, columns], -1)).tolist() == [
        [texts[r, c] for r, c in zip(*pair, strict=True)] for pair in zip(rows, columns, strict=True)
    ]
    places = rng.integers(-5, 5, (6, 3))
    found = GatherElements(axis=1).reference(texts, places)
    assert found.tolist() == [[texts[r, c] for c in line] for r, line in enumerate(places)]
    wanted = texts.copy()
    for r, line in enumerate(places):
        for c, text in zip(line, found[r], strict=True):
            wanted[r, c] = text + "!"
    updates = found + "!"
    assert ScatterElements(axis=1).reference(texts, places, updates).tolist() == wanted.tolist()
    slices = indexed(texts, [np.array([3, 0, 3, 1, 2, 6])])
    assert slices.tolist() == [texts[i].tolist() for i in (3, 0, 3, 1, 2, 6)]


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("is_sorted", [True, False])
def test_unique(texts: Any, axis: int | None, is_sorted: bool) -> None:
    given = np.vstack([texts, texts[:2]])
    given = np.hstack([given, given[:, 1:3]])
    rows = given.reshape(-1, 1) if axis is None else np.moveaxis(given, axis, 0)
    keys = [tuple(row) for row in rows]
    want = sorted(set(keys)) if is_sorted else list(dict.fromkeys(keys))
    values, first, inverse, counts = Unique(axis=axis, sorted=is_sorted).reference(given)
    found = values.reshape(-1, 1) if axis is None else np.moveaxis(values, axis, 0)
    assert [tuple(row) for row in found] == want
    assert first.tolist() == [keys.index(key) for key in want]
    assert inverse.tolist() == [want.index(key) for key in keys]
    assert counts.tolist() == [keys.count(key) for key in want]


@pytest.mark.parametrize(("shape", "axis", "want"), [((0,), None, (0,)), ((0, 3), 0, (0, 3)), ((3, 0), 0, (1, 0))])
def test_unique_of_nothing(shape: tuple[int, ...], axis: int | None, want: tuple[int, ...]) -> None:
    found = Unique(axis=axis).reference(np.empty(shape, object))
    assert found[0].shape == want
    assert [v.size for v in found[1:]] == [want[0], shape[0], want[0]]


def test_sorting_is_stable(rng: np.random.Generator) -> None:
    values = rng.integers(5, size=50).tolist()
    np.testing.assert_array_equal(sorted_places(values), np.argsort(values, kind="stable"))
