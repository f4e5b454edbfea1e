"""Cases of StringConcat: by hand."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.string_concat import StringConcat


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Equal shapes, broadcasting, scalars, empty strings, batch 0."""
    x, y = np.array([["a"], [""]], object), np.array(["é", "", "c"], object)
    yield Case("broadcast", StringConcat(), (x, y), (np.array([["aé", "a", "ac"], ["é", "", "c"]], object),))
    yield Case("scalars", StringConcat(), (np.array("a", object), np.array("b", object)), (np.array("ab", object),))
    yield Case("batch_0", StringConcat(), (x[:0], y[:1]), (np.zeros((0, 1), object),))
