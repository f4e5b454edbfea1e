"""Random arrays of every data type, with the values at which operators go wrong."""

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

__all__ = ["FLOATS", "INTS", "NAMES", "SIGNED", "dtypes_of", "random_array", "random_shape"]

NAMES = {
    "tensor(float)": np.dtype(np.float32),
    "tensor(float16)": np.dtype(np.float16),
    "tensor(double)": np.dtype(np.float64),
    "tensor(bfloat16)": np.dtype(ml_dtypes.bfloat16),
    "tensor(bool)": np.dtype(np.bool_),
    **{f"tensor({kind}{bits})": np.dtype(f"{kind}{bits}") for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
}
"""The types that the generator gives to values, by ONNX's name."""

FLOATS = tuple(np.dtype(t) for t in (np.float32, np.float16, np.float64, ml_dtypes.bfloat16))
SIGNED = tuple(np.dtype(f"int{bits}") for bits in (8, 16, 32, 64))
INTS = (*SIGNED, *(np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)))

_SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0, 0.5, -0.5, 1.5, 2.5, 1e6, -1e-30, 65504.0)
_SIZES = (1, 2, 3, 3, 4, 5, 7)


def dtypes_of(names: Sequence[str]) -> tuple[np.dtype[Any], ...]:
    """The generator's types among ONNX's type names."""
    return tuple(NAMES[name] for name in names if name in NAMES)


def random_shape(rng: np.random.Generator, rank: int) -> tuple[int, ...]:
    """Small odd and even sizes; one in twenty shapes has an axis of size 0."""
    shape = [int(rng.choice(_SIZES)) for _ in range(rank)]
    if shape and rng.random() < 0.05:
        shape[int(rng.integers(rank))] = 0
    return tuple(shape)


def random_array(rng: np.random.Generator, dtype: np.dtype[Any], shape: Sequence[int], *, special: float = 0.2) -> NDArray[Any]:
    """Values of either sign round zero. `special` is the share of arrays with NaN, infinities, halves or extreme integers."""
    if dtype == np.bool_:
        return rng.random(shape) < 0.5
    extreme = rng.random() < special
    if dtype in FLOATS:
        values = np.asarray(rng.standard_normal(shape) * rng.choice([0.5, 1.0, 3.0]))
        if extreme and values.size:
            at = rng.integers(0, values.size, max(1, values.size // 6))
            values.reshape(-1)[at] = rng.choice(_SPECIAL, len(at))
        with np.errstate(over="ignore"):
            return values.astype(dtype)
    info = np.iinfo(dtype)
    whole = np.asarray(rng.integers(0 if info.min == 0 else -6, 7, shape)).astype(dtype)
    if extreme and whole.size:
        whole.reshape(-1)[rng.integers(0, whole.size, 1)] = rng.choice(np.array([info.min, info.max], dtype))
    return whole
