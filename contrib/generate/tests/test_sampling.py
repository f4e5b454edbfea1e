"""The choice of tokens: frequencies against the probabilities that the definition gives."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from dovetail.errors import UsageError
from dovetail_generate import Sampling

LOGITS = np.array([1.0, 3.0, 2.0, 3.0, -np.inf, 0.5], np.float32)


def _expected(temperature: float, top_k: int, top_p: float, min_p: float = 0.0, penalty: float = 1.0) -> Any:
    logits = [float(x) for x in LOGITS]
    for i in {1, 5}:
        logits[i] = logits[i] / penalty if logits[i] > 0 else logits[i] * penalty
    weights = {i: np.exp(x / temperature) for i, x in enumerate(logits)}
    order = sorted(weights, key=lambda i: (-logits[i], i))[: top_k or None]
    total, kept, share = sum(weights[i] for i in order), [], 0.0
    for i in order:
        kept.append(i)
        share += weights[i] / total
        if share >= top_p:
            break
    kept = [i for i in kept if weights[i] >= min_p * weights[kept[0]]]
    return {i: weights[i] / sum(weights[j] for j in kept) for i in kept}


@pytest.mark.parametrize(
    "given",
    [
        *((1.0, 0, 1.0), (0.5, 0, 1.0), (2.0, 3, 1.0), (1.0, 0, 0.6), (3.0, 4, 0.8)),
        *((1.0, 0, 1.0, 0.3), (2.0, 4, 0.9, 0.5), (1.0, 0, 1.0, 0.0, 1.5), (1.5, 3, 0.9, 0.2, 0.6)),
    ],
)
def test_frequencies(given: tuple[Any, ...]) -> None:
    temperature, top_k, top_p, *rest = given
    sampling, rng, count = Sampling(temperature, top_k, top_p, 0, *rest), np.random.default_rng(4), 4000
    logits = LOGITS.copy()
    found = Counter(sampling.choose(logits, rng, [5, 1, 5]) for _ in range(count))
    np.testing.assert_array_equal(logits, LOGITS)
    want = _expected(*given)
    assert {i for i, share in want.items() if share > 0.01} <= found.keys() <= {i for i, share in want.items() if share > 0}
    for i, share in want.items():
        assert abs(found[i] / count - share) < 5 * (share * (1 - share) / count) ** 0.5 + 1e-9


def test_the_most_likely_token() -> None:
    rng = np.random.default_rng(0)
    assert {Sampling().choose(LOGITS, rng) for _ in range(5)} == {1}
    assert {Sampling(temperature=9, top_k=1).choose(LOGITS, rng) for _ in range(5)} == {1}
    assert {Sampling(repetition_penalty=2).choose(LOGITS, rng, [1]) for _ in range(5)} == {3}
    assert {Sampling(temperature=1, min_p=1).choose(LOGITS, rng, [3]) for _ in range(50)} == {1, 3}
    assert {Sampling(temperature=1, top_p=1e-9).choose(LOGITS, rng) for _ in range(5)} == {1}


@pytest.mark.parametrize(
    "wrong",
    [
        *({"temperature": -1}, {"temperature": float("nan")}, {"top_k": -1}, {"top_p": 0}, {"top_p": 1.1}, {"seed": -1}),
        *({"min_p": -0.1}, {"min_p": 1.1}, {"repetition_penalty": 0}, {"repetition_penalty": float("nan")}),
    ],
)
def test_numbers_out_of_range(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="accepted"):
        Sampling(**wrong)
