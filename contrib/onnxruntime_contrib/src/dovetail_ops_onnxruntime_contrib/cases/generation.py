"""Cases of NGramRepeatBlock by hand."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing import Case
from dovetail_ops_onnxruntime_contrib.generation import NGramRepeatBlock


def n_gram_repeat_block(rng: np.random.Generator) -> Iterator[Case]:
    """Pairs, triples, single tokens, more tokens than there are."""
    ids, scores = np.array([[1, 2, 3, 1, 2], [3, 3, 3, 0, 3]]), np.arange(8, dtype=np.float32).reshape(2, 4)
    blocked: dict[int, list[set[int]]] = {1: [{1, 2, 3}, {0, 3}], 2: [{3}, {0, 3}], 3: [{3}, set()], 6: [set(), set()]}
    for size, tokens in blocked.items():
        want = scores.copy()
        for row, lost in enumerate(tokens):
            want[row, list(lost)] = -np.inf
        yield Case(f"size_{size}", NGramRepeatBlock(ngram_size=size), (ids, scores), (want,))
