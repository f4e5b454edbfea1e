"""Results that stay in the memory of the device that computed them."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["DeviceArray", "kept_on_host"]


class DeviceArray:
    """A result that stays where it was computed, for later requests, which read it in place where they are on that device.

    No later run changes it, unless it is the state of a request. `np.asarray` and DLPack give a copy in the host's memory.
    `held` is the device's own: an array of the host, or something from which `fetch` makes one, and `fetch_part` one of the
    elements from one place to another along an axis. What `owners` has lives as long as this. `own`: its memory is its own, and
    no request's.
    """

    def __init__(
        self,
        held: Any,
        shape: tuple[int, ...],
        dtype: Any,
        fetch: Callable[[], NDArray[Any]],
        fetch_part: Callable[[int, int, int], NDArray[Any]] | None = None,
        own: bool = False,
    ) -> None:
        self.held, self.shape, self.dtype, self.own = held, shape, np.dtype(dtype), own
        self._fetch, self._fetch_part = fetch, fetch_part
        self.ndim = len(shape)
        self.owners: list[Any] = []

    @staticmethod
    def on_host(array: NDArray[Any]) -> "DeviceArray":
        """One that is in the host's memory; `array` is not copied."""
        return DeviceArray(array, array.shape, array.dtype, lambda: np.array(array, copy=True))

    def part(self, axis: int, start: int, stop: int) -> NDArray[Any]:
        """A copy of the elements from `start` to `stop` along an axis; the device brings no others, if it can.

        Raises `ValueError` unless 0 <= axis < ndim and 0 <= start <= stop <= shape[axis].
        """
        if not 0 <= axis < self.ndim or not 0 <= start <= stop <= self.shape[axis]:
            raise ValueError(f"elements {start} to {stop} along axis {axis} of {self}; accepted: places that it has")
        if self._fetch_part is not None:
            return self._fetch_part(axis, start, stop)
        return self._fetch()[(*(slice(None),) * axis, slice(start, stop))]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("an array of a device comes to the host as a copy")
        return self._fetch().astype(self.dtype if dtype is None else dtype, copy=False)

    def __dlpack__(self, **options: Any) -> Any:
        return self._fetch().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)  # kDLCPU

    def __repr__(self) -> str:
        return f"<DeviceArray {self.dtype}{list(self.shape)}>"


def kept_on_host(run: Callable[[Sequence[Any]], Sequence[Any]], inputs: Sequence[Any]) -> list[Any]:
    """Run with arrays of the host, those of other devices copied there; the results stay in the host's memory."""
    given = [v if not isinstance(v, DeviceArray) else v.held if isinstance(v.held, np.ndarray) else np.asarray(v) for v in inputs]
    found: object = run(given)
    if not isinstance(found, tuple | list):
        return found  # type: ignore[return-value]  # a device's mistake, which the check of its results names
    return [DeviceArray.on_host(v) if isinstance(v, np.ndarray) else v for v in found]
