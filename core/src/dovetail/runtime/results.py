"""The outputs of a run, by name and by position."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import did_you_mean
from dovetail.html_table import html_table

__all__ = ["Results", "owned"]


class Results(Mapping[Any, NDArray[Any]]):
    """Output arrays by name or by position; iterates over names, as mappings do: `values()` gives the arrays in order.

    A sequence is a list, a map a dictionary, an optional that is absent None.
    """

    __slots__ = ("_arrays", "_names")

    def __init__(self, names: Sequence[str], arrays: Sequence[NDArray[Any]]) -> None:
        self._names = tuple(names)
        self._arrays = tuple(arrays)

    def __getitem__(self, key: str | SupportsIndex) -> NDArray[Any]:
        if not isinstance(key, str):
            try:
                return self._arrays[key]
            except IndexError:
                raise IndexError(f"no output {key}; there are {len(self)}: {', '.join(self._names)}") from None
        try:
            return self._arrays[self._names.index(key)]
        except ValueError:
            raise KeyError(f"no output {key!r}. {did_you_mean(str(key), self._names)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def _ipython_key_completions_(self) -> list[str]:
        return list(self._names)

    def __repr__(self) -> str:
        return f"Results({', '.join(f'{n}: {_kind(a)}' for n, a in zip(self._names, self._arrays, strict=True))})"

    def _repr_html_(self) -> str:
        rows = ((name, _kind(value), _first(value)) for name, value in zip(self._names, self._arrays, strict=True))
        return html_table(f"{len(self)} outputs", ("name", "type", "first values"), rows)


def _kind(value: Any) -> str:
    return f"{value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__


def _first(value: Any) -> str:
    """The first elements of an array; nothing for other values."""
    if not isinstance(value, np.ndarray):
        return ""
    return ", ".join(f"{v:.5g}" if isinstance(v, float) else str(v) for v in value.reshape(-1)[:6].tolist())


def owned(value: Any) -> Any:
    """A value in memory of its own, which later runs leave alone."""
    return value.copy("K") if isinstance(value, np.ndarray) else value
