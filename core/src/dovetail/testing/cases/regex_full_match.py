"""Cases of RegexFullMatch: by hand."""

from collections.abc import Iterator

import numpy as np

from dovetail.ops.regex_full_match import RegexFullMatch
from dovetail.testing.case import Case


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Whole matches and parts, two dimensions, batch 0."""
    x = np.array([["ab12", "ab"], ["12", "xab12"]], object)
    yield Case("letters_and_digits", RegexFullMatch(pattern=r"[a-c]+\d*"), (x,), (np.array([[True, True], [False, False]]),))
    yield Case("batch_0", RegexFullMatch(pattern="a"), (x[:0],), (np.zeros((0, 2), np.bool_),))
