"""The error function in NumPy, which lacks it.

The method is W. J. Cody, "Rational Chebyshev approximation for the error function", Mathematics of Computation 23 (1969).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["erf"]

Array = NDArray[Any]

# Numerators and denominators of Cody's three rational functions, highest power first.
_SMALL = (
    (1.85777706184603153e-1, 3.16112374387056560e00, 1.13864154151050156e02, 3.77485237685302021e02, 3.20937758913846947e03),
    (1.0, 2.36012909523441209e01, 2.44024637934444173e02, 1.28261652607737228e03, 2.84423683343917062e03),
)
_MIDDLE = (
    (
        *(2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594e00, 6.61191906371416295e01, 2.98635138197400131e02),
        *(8.81952221241769090e02, 1.71204761263407058e03, 2.05107837782607147e03, 1.23033935479799725e03),
    ),
    (
        *(1.0, 1.57449261107098347e01, 1.17693950891312499e02, 5.37181101862009858e02, 1.62138957456669019e03),
        *(3.29079923573345963e03, 4.36261909014324716e03, 3.43936767414372164e03, 1.23033935480374942e03),
    ),
)
_LARGE = (
    (
        *(1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1, 1.25781726111229246e-1),
        *(1.60837851487422766e-2, 6.58749161529837803e-4),
    ),
    (
        *(1.0, 2.56852019228982242e00, 1.87295284992346725e00, 5.27905102951428412e-1),
        *(6.05183413124413191e-2, 2.33520497626869185e-3),
    ),
)


def erf(x: Array) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The error function in float64, within 4 units in the last place; NaN stays NaN."""
    wide = np.atleast_1d(np.asarray(x, np.float64))
    size = np.abs(wide)
    result = np.sign(wide)
    small, large = size <= 0.46875, (size > 4) & (size < 6)
    middle = (size > 0.46875) & (size <= 4)
    result[small] = wide[small] * _ratio(_SMALL, wide[small] ** 2)
    result[middle] *= 1 - np.exp(-(wide[middle] ** 2)) * _ratio(_MIDDLE, size[middle])
    result[large] *= 1 - _far(size[large])
    return result.reshape(np.shape(x))


def _far(size: Array) -> Any:
    inverse = size**-2
    return np.exp(-(size**2)) / size * (1 / np.sqrt(np.pi) - inverse * _ratio(_LARGE, inverse))


def _ratio(coefficients: tuple[tuple[float, ...], tuple[float, ...]], x: Array) -> Any:
    numerator, denominator = coefficients
    return np.polyval(np.asarray(numerator), x) / np.polyval(np.asarray(denominator), x)
