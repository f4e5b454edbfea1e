"""Cases of StringNormalizer: by hand."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.string_normalizer import StringNormalizer


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Stop words with and without case, both cases, two dimensions, nothing left."""
    x = np.array(["Monday", "tuesday", "MONDAY", "Ärger"], object)
    stops = ("monday",)
    lower = StringNormalizer(case_change_action="LOWER", stopwords=stops)
    yield Case("lower", lower, (x,), (np.array(["tuesday", "ärger"], object),))
    upper = StringNormalizer(case_change_action="UPPER", is_case_sensitive=True, stopwords=("Monday",))
    yield Case("upper", upper, (x[None],), (np.array([["TUESDAY", "MONDAY", "ÄRGER"]], object),))
    yield Case("unchanged", StringNormalizer(), (x,), (x,))
    yield Case("nothing_left", lower, (x[:1],), (np.array([""], object),))
