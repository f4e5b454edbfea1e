"""Cases of TfIdfVectorizer: by hand."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.tf_idf_vectorizer import TfIdfVectorizer


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Words and numbers, pairs with one element left out, modes, weights, one row, nothing."""
    given: dict[str, Any] = {"min_gram_length": 1, "max_gram_length": 2, "ngram_counts": (0, 2), "ngram_indexes": (3, 1, 0, 2)}
    numbers = {**given, "pool_int64s": (1, 2, 1, 2, 5, 1)}  # 1, 2, then 1 2, 5 1
    x = np.array([[1, 2, 1, 5], [5, 1, 2, 2]])
    adjacent = np.array([[1, 1, 0, 2], [1, 2, 1, 1]], np.float32)  # 1 2, 2, 5 1, 1
    yield Case("adjacent", TfIdfVectorizer(mode="TF", max_skip_count=0, **numbers), (x,), (adjacent,))
    skipping = np.array([[1, 1, 0, 2], [2, 2, 1, 1]], np.float32)
    yield Case("one_left_out", TfIdfVectorizer(mode="TF", max_skip_count=1, **numbers), (x.astype(np.int32),), (skipping,))
    pairs = {**numbers, "min_gram_length": 2}
    want = np.array([1, 0, 0, 0], np.float32)
    yield Case("pairs_of_one_row", TfIdfVectorizer(mode="TF", max_skip_count=0, **pairs), (x[0],), (want,))
    weights = (2.0, 0.5, 3.0, -1.0)  # of 1, 2, 1 2, 5 1
    want = np.array([[3, 0.5, 0, 2], [3, 0.5, -1, 2]], np.float32)
    yield Case("idf", TfIdfVectorizer(mode="IDF", max_skip_count=0, weights=weights, **numbers), (x,), (want,))
    want = np.array([[3, 0.5, 0, 4], [6, 1, -1, 2]], np.float32)
    yield Case("tf_idf", TfIdfVectorizer(mode="TFIDF", max_skip_count=1, weights=weights, **numbers), (x,), (want,))
    words = TfIdfVectorizer(mode="IDF", max_skip_count=0, **given, pool_strings=("a", "b", "a", "b", "c", "a"))
    texts = np.array([["b", "a", "?"], ["c", "a", "b"]], object)
    yield Case("words", words, (texts,), (np.array([[0, 1, 0, 1], [1, 1, 1, 1]], np.float32),))
    yield Case("no_words", words, (texts[:, :0],), (np.zeros((2, 4), np.float32),))
    yield Case("batch_0", words, (texts[:0],), (np.zeros((0, 4), np.float32),))
