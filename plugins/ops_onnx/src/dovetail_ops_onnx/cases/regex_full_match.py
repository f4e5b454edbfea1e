"""Cases of RegexFullMatch: by hand."""

from collections.abc import Iterator
from importlib.util import find_spec

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.regex_full_match import RegexFullMatch


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Whole matches and parts, two dimensions, batch 0; none without google-re2, where the operator refuses its attributes."""
    if find_spec("re2") is None:
        return
    x = np.array([["ab12", "ab"], ["12", "xab12"]], object)
    yield Case("letters_and_digits", RegexFullMatch(pattern=r"[a-c]+\d*"), (x,), (np.array([[True, True], [False, False]]),))
    mails = np.array(["a.b@example.org", "a.b@example", "\u00e9@x.org", ""], object)
    yield Case(
        "re2_syntax",
        RegexFullMatch(pattern=r"(?i)[[:alpha:].]+@\w+\.(?P<top>ORG|com)"),
        (mails,),
        (np.array([True, False, False, False]),),
    )
    long = np.array(["a" * 3000, "a" * 3000 + "b"], object)
    yield Case("nested_repetition", RegexFullMatch(pattern="(a|aa+)+"), (long,), (np.array([True, False]),))
    yield Case("batch_0", RegexFullMatch(pattern="a"), (x[:0],), (np.zeros((0, 2), np.bool_),))
