"""Cases of Selu: NumPy in float64."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing.case import Case
from dovetail_ops_onnx.cases._elementwise import unary
from dovetail_ops_onnx.selu import Selu


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """See `unary`; the default and other factors."""

    def selu(x: NDArray[Any], alpha: float, gamma: float) -> Any:
        return gamma * np.where(x < 0, alpha * (np.exp(np.minimum(x, 0)) - 1), x)

    yield from unary(rng, Selu(), lambda x: selu(x, 1.6732631921768188, 1.0507010221481323))
    yield from unary(rng, Selu(alpha=2.0, gamma=0.5), lambda x: selu(x, 2.0, 0.5))
