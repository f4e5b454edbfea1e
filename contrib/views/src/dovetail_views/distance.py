"""How far two results are apart."""

from typing import Any

__all__ = ["distance"]


def distance(got: Any, want: Any) -> tuple[float, float]:
    """The largest absolute difference, and that relative to the largest finite number of `want`."""
    import numpy as np

    infinite = (float("inf"), float("inf"))
    if isinstance(want, list) and isinstance(got, list) and len(got) == len(want):
        pairs = [distance(a, b) for a, b in zip(got, want, strict=True)]
        return max((a for a, _ in pairs), default=0.0), max((r for _, r in pairs), default=0.0)
    if isinstance(want, dict) and isinstance(got, dict) and list(got) == list(want):
        return distance(*(np.array(list(one.values()), object if _has_texts(one) else None) for one in (got, want)))
    if got is None and want is None:
        return 0.0, 0.0
    if not isinstance(got, np.ndarray) or not isinstance(want, np.ndarray):
        return infinite
    if got.shape != want.shape or got.dtype != want.dtype:
        return infinite
    if want.dtype == object:
        return (0.0, 0.0) if np.array_equal(got, want) else infinite
    wide = np.complex128 if np.iscomplexobj(want) else np.float64
    a, b = got.astype(wide), want.astype(wide)
    finite = np.isfinite(b)
    if not np.array_equal(finite, np.isfinite(a)) or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return infinite
    absolute = float(np.abs(a[finite] - b[finite]).max(initial=0))
    largest = float(np.abs(b[finite]).max(initial=0))
    return absolute, absolute / largest if largest else absolute


def _has_texts(value: dict[Any, Any]) -> bool:
    return any(isinstance(item, str) for item in value.values())
