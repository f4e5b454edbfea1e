"""Finds outputs that code leaves unwritten: it runs in memory filled with one byte, then with another."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from dovetail.evaluate.inference import padded
from dovetail.graph.layout import ANY, PLAIN
from dovetail.graph.types import TensorType
from dovetail.operators.host_kernel import HostConfig, HostKernel, PortConfig
from dovetail.testing._arrays import read_only

__all__ = ["FILLINGS", "filled_memory", "run_host_kernel"]

Array = NDArray[Any]

FILLINGS = (0x00, 0x5A)
"""No expected element passes for both, whatever its type: they are 0 and a number far from it, False and True."""


@contextmanager
def filled_memory(filling: int) -> Iterator[None]:
    """Fill what `np.empty` and `np.empty_like` return. It replaces them for all threads."""

    def filling_in(make: Callable[..., Array]) -> Callable[..., Array]:
        return lambda *args, **kwargs: _filled(make(*args, **kwargs), filling)

    with patch.object(np, "empty", filling_in(np.empty)), patch.object(np, "empty_like", filling_in(np.empty_like)):
        yield


def run_host_kernel(
    kernel: HostKernel, op: Any, config: HostConfig, inputs: Sequence[Array | None], outputs: Sequence[TensorType], filling: int
) -> list[Array]:
    """The outputs that a kernel gives in a configuration without blocks, in memory filled with this byte."""
    placed = [None if a is None else read_only(_in_memory(a, port)) for a, port in zip_longest(inputs, config.inputs)]
    given = padded(placed[: len(inputs)], op.inputs)
    ports = config.outputs[: len(outputs)]
    results: list[Array | None] = []
    for port, t in zip(ports, outputs, strict=True):
        assert port is not None
        source = given[port.in_place] if port.in_place >= 0 else None
        if source is None:
            results.append(_filled(np.empty([t.dims[axis] for axis in _order(port, len(t.dims))], t.dtype.numpy), filling))
        else:
            results.append(source.copy())
            given[port.in_place] = results[-1]
    with np.errstate(all="ignore"):
        kernel.bind(op, config, given, padded(results, op.outputs))()
    return [a.transpose(np.argsort(_order(port, a.ndim))) for a, port in zip(results, ports, strict=True) if a is not None]


def _filled(array: Array, filling: int) -> Array:
    if not array.dtype.hasobject:  # NumPy sets references itself
        array.ravel(order="K").view(np.uint8)[...] = filling  # a view: new arrays have no gaps
    return array


def _in_memory(array: Array, port: PortConfig | None) -> Array:
    return np.ascontiguousarray(array.transpose(_order(port, array.ndim))) if array.ndim else array


def _order(port: PortConfig | None, rank: int) -> tuple[int, ...]:
    return (PLAIN if port is None or port.layout == ANY else port.layout).order(rank)
