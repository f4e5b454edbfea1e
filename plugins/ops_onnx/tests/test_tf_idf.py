"""TfIdfVectorizer against counts in plain Python, and the attributes that it refuses."""

from typing import Any

import numpy as np
import pytest

from dovetail.errors import OperatorError
from dovetail_ops_onnx.tf_idf_vectorizer import TfIdfVectorizer

GIVEN: dict[str, Any] = {
    "min_gram_length": 1,
    "max_gram_length": 2,
    "max_skip_count": 0,
    "mode": "TF",
    "ngram_counts": (0, 1),
    "ngram_indexes": (0, 1),
    "pool_int64s": (4, 4, 5),
}


def count(gram: tuple[Any, ...], row: list[Any], skips: int) -> int:
    """How often the n-gram is in a row: of one element whatever the skips."""
    distances = range(1, 2 if len(gram) == 1 else skips + 2)
    ends = [(d, len(row) - d * (len(gram) - 1)) for d in distances]
    return sum(all(row[i + d * k] == token for k, token in enumerate(gram)) for d, end in ends for i in range(max(0, end)))


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("kind", ["strings", "int64s"])
def test_random_pools(rng: np.random.Generator, kind: str, mode: str) -> None:
    for _ in range(40):
        vocabulary: list[Any] = ["a", "b", "c", "d"] if kind == "strings" else [-3, 0, 7, 2**40]
        grams = [sorted({tuple(rng.integers(3, size=n)) for _ in range(5)}) for n in (1, 2, 3)]
        pool = [vocabulary[i] for some in grams for gram in some for i in gram]
        starts = np.cumsum([0, len(grams[0]), 2 * len(grams[1])])
        number = sum(map(len, grams))
        places, weights = rng.permutation(number), rng.standard_normal(number).astype(np.float32)
        least, most, skips = 1 + int(rng.integers(3)), 3, int(rng.integers(3))
        op = TfIdfVectorizer(
            mode=mode, min_gram_length=least, max_gram_length=most, max_skip_count=skips, ngram_counts=tuple(map(int, starts)),
            ngram_indexes=tuple(map(int, places)), weights=tuple(map(float, weights)), **{f"pool_{kind}": tuple(pool)},
        )  # fmt: skip
        x = np.array(vocabulary, object if kind == "strings" else np.int64)[rng.integers(4, size=(5, int(rng.integers(9))))]
        want = np.zeros((5, number), np.float32)
        for place, weight, gram in zip(places, weights, [gram for some in grams for gram in some], strict=True):
            if len(gram) >= least:
                found = np.array([count(tuple(vocabulary[i] for i in gram), row, skips) for row in x.tolist()], np.float32)
                want[:, place] = {"TF": found, "IDF": np.minimum(found, 1) * weight, "TFIDF": found * weight}[mode]
        np.testing.assert_array_equal(op.reference(np.asfortranarray(x)), want, strict=True)
        np.testing.assert_array_equal(op.reference(x[0]), want[0])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"mode": "XYZ"}, "'mode' is 'XYZ'; accepted: TF, IDF, TFIDF"),
        ({"min_gram_length": 3}, "are 3, 2 and 0"),
        ({"max_skip_count": -1}, "are 1, 2 and -1"),
        ({"pool_int64s": None}, "both or none are given"),
        ({"pool_strings": ("a",)}, "both or none are given"),
        ({"weights": (1.0,)}, "1 weights and 2 'ngram_indexes'"),
        ({"ngram_counts": (0, 2)}, "'ngram_counts' is (0, 2)"),
        ({"ngram_counts": (1, 0)}, "'ngram_counts' is (1, 0)"),
        ({"ngram_indexes": (0, 1, 2)}, "'ngram_indexes' has 3 elements; accepted: 2"),
        ({"ngram_indexes": (0, -1)}, "accepted: 2, 0 or more"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_refusals(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(OperatorError) as caught:
        TfIdfVectorizer(**{**GIVEN, **changed})
    assert message in str(caught.value)


def test_more_may_be_left_out_than_there_are_elements() -> None:
    x = np.array([[4, 1, 5]], np.int64)
    many, as_many = (TfIdfVectorizer(**{**GIVEN, "max_skip_count": count}) for count in (2**62, 2))
    np.testing.assert_array_equal(many.reference(x), as_many.reference(x))
    assert many.reference(x).tolist() == [[1, 1]]  # 4 alone, and 4 and 5 with 1 left out between them
    assert many.reference(x[:, :0]).shape == as_many.reference(x[:, :0]).shape
