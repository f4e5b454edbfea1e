"""Tuned parameters: those that come with this package, and those that the tuner found on this machine.

A table maps the key of a problem to a list of integers; the kernel that asks knows what they mean and checks them. Shipped
tables are `tuned/<family>.json`, written by `benchmarks/opencl_tune.py`; what the tuner finds goes to the cache, one entry for
each device, driver and version of the kernels.
"""

import functools
import hashlib
import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from dovetail.cache import FileCache, cache_folder, cache_key
from dovetail.locks import Lock
from dovetail_gpu_opencl.capabilities import Capabilities
from dovetail_gpu_opencl.source import load

__all__ = ["SECTION", "Tunings", "tunings_of"]

SECTION = "tuning"
_KERNELS = ("tiles.cl", "tiles_matrix.cl", "tiles_pipelined.cl", "gemm_rows.cl", "conv_rows.cl")

Table = dict[str, list[int]]


class Tunings:
    """The tuned parameters for one device; safe between threads and, without locks, between processes.

    A process that stores merges what others have stored by then; of two that store at the same moment one may lose its last
    problem, which costs a default and nothing else.
    """

    def __init__(self, identity: str, family: str, cache: FileCache) -> None:
        self._cache = cache
        self._key = cache_key("tuning", identity, *(hashlib.sha256(load(f).encode()).hexdigest() for f in _KERNELS))
        self._lock = Lock()
        self._shipped = _shipped(family)
        self._own = self._stored()

    def get(self, problem: str) -> list[int] | None:
        """The parameters for a problem: found here before shipped ones; None when it was never tuned."""
        with self._lock:
            return self._own.get(problem) or self._shipped.get(problem)

    def found_here(self, problem: str) -> bool:
        """True when the tuner of this machine has measured the problem."""
        with self._lock:
            return problem in self._own

    def put(self, problem: str, parameters: list[int]) -> None:
        """Keep parameters for this and later processes."""
        with self._lock:
            self._own = {**self._stored(), **self._own, problem: parameters}
            self._cache.put(self._key, json.dumps(self._own, sort_keys=True).encode())

    def table(self) -> Table:
        """The results of the tuner on this machine."""
        with self._lock:
            return dict(self._own)

    def _stored(self) -> Table:
        content = self._cache.get(self._key)
        try:
            return _checked(json.loads(content)) if content else {}
        except ValueError:
            return {}


def tunings_of(caps: Capabilities) -> Tunings:
    """The tunings of a device, one object for all in this process that use the same cache folder."""
    return _tunings(caps.identity, caps.family, cache_folder())


@functools.cache
def _tunings(identity: str, family: str, folder: Path | None) -> Tunings:
    return Tunings(identity, family, FileCache(SECTION, folder))


def _shipped(family: str) -> Table:
    file = resources.files("dovetail_gpu_opencl") / "tuned" / f"{family}.json"
    return _checked(json.loads(file.read_text(encoding="utf-8"))["tilings"]) if file.is_file() else {}


def _checked(table: Any) -> Table:
    """The entries of a table that have the right form."""
    if not isinstance(table, Mapping):
        return {}
    return {k: v for k, v in table.items() if isinstance(v, list) and v and all(isinstance(n, int) for n in v)}
