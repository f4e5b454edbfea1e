"""Cases of the GELUs: their formulas in float64."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing import Case
from dovetail_ops_onnxruntime_contrib.activations import BiasGelu, FastGelu, Gelu, QuickGelu

Array = NDArray[Any]

_erf = np.vectorize(math.erf, otypes=[np.float64])


def _exact(x: Array) -> Array:
    wide = x.astype(np.float64)
    return np.asarray((wide / 2 * (1 + _erf(wide / math.sqrt(2)))).astype(np.float32))


def _approximate(x: Array) -> Array:
    wide = x.astype(np.float64)
    y = wide / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)))
    return np.asarray(y.astype(np.float32))


def _drawn(rng: np.random.Generator) -> tuple[Array, Array]:
    return rng.standard_normal((2, 3, 7)).astype(np.float32), rng.standard_normal(7).astype(np.float32)


def gelu(rng: np.random.Generator) -> Iterator[Case]:
    """The formula, batch 0."""
    x, _ = _drawn(rng)
    yield Case("formula", Gelu(), (x,), (_exact(x),))
    yield Case("batch_0", Gelu(), (x[:0],), (x[:0],))


def bias_gelu(rng: np.random.Generator) -> Iterator[Case]:
    """The formula, batch 0."""
    x, bias = _drawn(rng)
    yield Case("formula", BiasGelu(), (x, bias), (_exact(x + bias),), atol=2e-6)
    yield Case("batch_0", BiasGelu(), (x[:0], bias), (x[:0],))


def fast_gelu(rng: np.random.Generator) -> Iterator[Case]:
    """With and without a bias."""
    x, bias = _drawn(rng)
    yield Case("formula", FastGelu(), (x,), (_approximate(x),))
    yield Case("bias", FastGelu(), (x, bias), (_approximate(x + bias),), atol=2e-6)


def quick_gelu(rng: np.random.Generator) -> Iterator[Case]:
    """Two values of alpha."""
    x, _ = _drawn(rng)
    for alpha in (1.702, 0.5):
        wide = x.astype(np.float64)
        yield Case(f"alpha_{alpha}", QuickGelu(alpha=alpha), (x,), ((wide / (1 + np.exp(-alpha * wide))).astype(np.float32),))
