"""The definition of the discrete Fourier transform, term by term in complex128."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def transform(signal: NDArray[Any], axis: int, length: int, inverse: bool) -> NDArray[Any]:
    """The sums over exp(-2 pi i k n / length), or with + and divided by the length, of the signal cut or filled with zeros."""
    rows = np.moveaxis(signal, axis, -1).astype(np.complex128)
    n = min(rows.shape[-1], length)
    turns = np.outer(np.arange(n), np.arange(length)) * (2j if inverse else -2j) * np.pi / length
    y = rows[..., :n] @ np.exp(turns) / (length if inverse else 1)
    return np.moveaxis(y, -1, axis)


def parts(z: NDArray[Any], dtype: Any) -> NDArray[Any]:
    """Real and imaginary parts in a new last axis."""
    return np.stack((z.real, z.imag), -1).astype(dtype)
