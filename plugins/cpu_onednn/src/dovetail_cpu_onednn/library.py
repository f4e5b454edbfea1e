"""Finding and loading oneDNN's shared library, once a process; and how many threads it may use."""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dovetail.cpus import usable_cpus
from dovetail.device import DeviceUnavailable, Unavailable
from dovetail.locks import Lock
from dovetail_cpu_onednn.binding import Onednn
from dovetail_cpu_onednn.version import version_of

__all__ = ["ENVIRONMENT", "default_threads", "library", "load"]

ENVIRONMENT = "DOVETAIL_ONEDNN_LIBRARY"
"""The environment variable that names the shared library."""

OLDEST = (3, 2)
HINT = f"pip install onednn-cpu-gomp, or name libdnnl.so.3 (3.2 or later) by the option LIBRARY or by {ENVIRONMENT}"

USED_HINT = f"name the library before the first model is compiled for ONEDNN, or for the whole process by {ENVIRONMENT}"

SPINS = "2000"
"""How often an idle thread of libgomp polls for work before it sleeps. Many times keep a core busy, which costs more than waking
up as soon as anything else runs there; few times let a thread sleep between two primitives. On two cores, of which another
program took one, MobileNetV2 took 9.8 ms with 1000, 12.7 with 2000, 15.3 with 3000, 27 to 38 with 30000 (medians, onnxruntime
14.4); with both cores free, a model of 0.12 ms took up to 0.44 after a pause with 1000, and 0.12 to 0.13 with 2000 and more.
"""

_NAMES = ("libdnnl.so.3", "libdnnl.3.dylib", "dnnl.dll")
_lock = Lock()
_loaded: dict[str, Onednn] = {}
"""The one library, by its path."""
_used: list[Onednn] = []
"""The same, once something was computed or asked with it."""


def load(path: str = "") -> Onednn | Unavailable:
    """The library at `path`, else the one that is loaded, else that of the environment variable, of the Python environment, or
    of the system.

    A process computes with one. Another `path` replaces a library that was only loaded; after `library` gave it to a kernel,
    asking for another one is an error.
    """
    with _lock:
        if _loaded:
            name, found = next(iter(_loaded.items()))
            if not path or _is_same(path, name):
                return found
            if _used:
                return Unavailable(f"this process computes with oneDNN from {name} already, not {path}", USED_HINT)
        wanted = path or os.environ.get(ENVIRONMENT, "")
        problems = []
        for candidate in [wanted] if wanted else _candidates():
            answer = _open(candidate)
            if isinstance(answer, Onednn):
                _loaded.clear()
                _loaded[candidate] = answer
                if hasattr(os, "register_at_fork"):
                    os.register_at_fork(before=answer.end_team, after_in_child=answer.forked)
                return answer
            problems.append(answer)
    return Unavailable("; ".join(problems) or "oneDNN's shared library was not found", HINT)


def library() -> Onednn:
    """The library that this process computes with, from now on this one. Raises `DeviceUnavailable`."""
    if _used:
        return _used[0]
    found = load()
    if isinstance(found, Unavailable):
        raise DeviceUnavailable(f"ONEDNN: {found.reason}", hint=found.hint)
    with _lock:
        if not _used:
            # Another thread may have replaced what `load` gave.
            _used.append(next(iter(_loaded.values())))
        return _used[0]


def _is_same(path: str, name: str) -> bool:
    try:
        return path == name or os.path.samefile(path, name)
    except OSError:
        return False


def _candidates() -> Iterator[str]:
    for folder in ("lib", "Library/bin"):
        for name in _NAMES:
            path = Path(sys.prefix) / folder / name
            if path.is_file():
                yield str(path)
    yield from _recorded()
    from ctypes.util import find_library  # here, because it is seldom needed, slow to import, and starts programs

    yield find_library("dnnl") or _NAMES[0]


def _recorded() -> Iterator[str]:
    """Where its distribution says that the library is: with `pip install --user` and in pex files not in `sys.prefix`."""
    for entry in sys.path:
        for record in sorted(Path(entry).glob("onednn*.dist-info/RECORD")):
            for line in record.read_text(encoding="utf-8").splitlines():
                path = Path(entry, line.partition(",")[0])
                if path.name in _NAMES and path.is_file():
                    yield str(path.resolve())


def _open(path: str) -> Onednn | str:
    try:
        with _short_spins():
            cdll = ctypes.CDLL(path)
            number, queues = version_of(cdll)
            if not OLDEST <= number[:2] < (4, 0):
                return f"{path} is oneDNN {'.'.join(map(str, number))}; accepted: 3.2 and later versions 3"
            if queues:  # as the wheels `onednn` and `onednn-cpu-dpcpp-gpu-dpcpp` from the index
                return f"{path} computes by {queues} on CPUs; accepted: a oneDNN for OpenMP, TBB or one thread"
            return Onednn(cdll, path)
    except OSError as error:
        return f"{path} cannot be loaded: {error}"
    except AttributeError as error:
        return f"{path} is not oneDNN 3: {error}"


@contextmanager
def _short_spins() -> Iterator[None]:
    """Let libgomp find `SPINS` in the environment when it is loaded, unless the user has set it."""
    if "GOMP_SPINCOUNT" in os.environ or "OMP_WAIT_POLICY" in os.environ:
        yield
        return
    os.environ["GOMP_SPINCOUNT"] = SPINS
    try:
        yield
    finally:
        del os.environ["GOMP_SPINCOUNT"]


def default_threads() -> int:
    """`OMP_NUM_THREADS` if it is set, else the CPUs that this process may use, by affinity and by its cgroup's quota."""
    first = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if first.isdigit() and int(first):
        return int(first)
    return usable_cpus()
