"""Cases of StringSplit: by hand."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.string_split import StringSplit


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """White space, a delimiter, the greatest number of splits, two dimensions, nothing."""
    x = np.array(["a  b c", "", "d"], object)
    want = (np.array([["a", "b", "c"], ["", "", ""], ["d", "", ""]], object), np.array([3, 0, 1]))
    yield Case("white_space", StringSplit(), (x,), want)
    yield Case("empty_delimiter", StringSplit(delimiter=""), (x,), want)
    y = np.array([["a--b--c"], ["-"]], object)
    want = (np.array([[["a", "b--c"]], [["-", ""]]], object), np.array([[2], [1]]))
    yield Case("delimiter", StringSplit(delimiter="--", maxsplit=1), (y,), want)
    yield Case("batch_0", StringSplit(), (x[:0],), (np.zeros((0, 0), object), np.zeros(0, np.int64)))
