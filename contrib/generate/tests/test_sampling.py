"""The choice of tokens: frequencies against the probabilities that the definition gives."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from dovetail.errors import UsageError
from dovetail_generate import Sampling

LOGITS = np.array([1.0, 3.0, 2.0, 3.0, -np.inf, 0.5], np.float32)


def _expected(temperature: float, top_k: int, top_p: float) -> Any:
    weights = {i: np.exp(float(x) / temperature) for i, x in enumerate(LOGITS)}
    order = sorted(weights, key=lambda i: (-LOGITS[i], i))[: top_k or None]
    total, kept, share = sum(weights[i] for i in order), [], 0.0
    for i in order:
        kept.append(i)
        share += weights[i] / total
        if share >= top_p:
            break
    return {i: weights[i] / sum(weights[j] for j in kept) for i in kept}


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"), [(1.0, 0, 1.0), (0.5, 0, 1.0), (2.0, 3, 1.0), (1.0, 0, 0.6), (3.0, 4, 0.8)]
)
def test_frequencies(temperature: float, top_k: int, top_p: float) -> None:
    sampling, rng, count = Sampling(temperature, top_k, top_p), np.random.default_rng(4), 4000
    found = Counter(sampling.choose(LOGITS, rng) for _ in range(count))
    want = _expected(temperature, top_k, top_p)
    assert {i for i, share in want.items() if share > 0.01} <= found.keys() <= {i for i, share in want.items() if share > 0}
    for i, share in want.items():
        assert abs(found[i] / count - share) < 5 * (share * (1 - share) / count) ** 0.5 + 1e-9


def test_the_most_likely_token() -> None:
    rng = np.random.default_rng(0)
    assert {Sampling().choose(LOGITS, rng) for _ in range(5)} == {1}
    assert {Sampling(temperature=9, top_k=1).choose(LOGITS, rng) for _ in range(5)} == {1}
    assert {Sampling(temperature=1, top_p=1e-9).choose(LOGITS, rng) for _ in range(5)} == {1}


@pytest.mark.parametrize(
    "wrong", [{"temperature": -1}, {"temperature": float("nan")}, {"top_k": -1}, {"top_p": 0}, {"top_p": 1.1}, {"seed": -1}]
)
def test_numbers_out_of_range(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="accepted"):
        Sampling(**wrong)
