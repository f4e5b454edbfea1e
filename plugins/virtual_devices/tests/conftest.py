"""Fixtures: sessions with toy devices and the virtual devices of this package, and models."""

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import dovetail
from dovetail.device import DeviceInfo, TypedNode
from dovetail.plugins.discovery import index
from dovetail.testing import ReferenceDevice, register_device

sys.path.insert(0, str(Path(__file__).parent))  # tests import faulty.py

INSTALLED = ("dovetail-ops-onnx", "dovetail-virtual-devices")


@pytest.fixture(autouse=True)
def _no_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOVETAIL_CONFIG", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user"))
    monkeypatch.setenv("DOVETAIL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("DOVETAIL_CACHE_LIMIT", "1000000")


Make = Callable[[DeviceInfo], ReferenceDevice]


@pytest.fixture
def toy_core(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """`toy_core(A=refuses, B=make)` -> (Core, devices opened): the best first.

    What is given for a device is what it refuses, as in `ReferenceDevice`, or a subclass of that.
    """
    installed = tuple(record for record in index() if record.distribution in INSTALLED)
    monkeypatch.setattr("dovetail.plugins.manager.index", lambda: installed)
    cores = []

    def make(kinds: tuple[str, ...] = (), **devices: Callable[[TypedNode], bool] | type[ReferenceDevice]) -> Any:
        core = dovetail.Core()
        cores.append(core)
        opened: dict[str, ReferenceDevice] = {}

        def opening(how: Any) -> Make:
            def open_device(info: DeviceInfo) -> ReferenceDevice:
                made = how(info) if isinstance(how, type) else ReferenceDevice(info, how)
                opened[info.name] = made
                return made

            return open_device

        for rank, (name, how) in enumerate(devices.items()):
            kind = kinds[rank] if kinds else "CPU"
            register_device(core, DeviceInfo(f"{name}.0", name, kind, f"toy {name}", -rank), opening(how), f"toy-{name.lower()}")
        return core, opened

    yield make
    for core in cores:
        core.close()


def nothing(node: Any) -> bool:
    """Refuses no node."""
    return False


@pytest.fixture
def slow_core(toy_core: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A session with A, which builds kernels and compiles when `go` is set, and B; both again by `open_again()`."""
    from faulty import Slow, nothing

    go = threading.Event()
    info = DeviceInfo.__init__

    def building(self: DeviceInfo, *args: Any, **kwargs: Any) -> None:
        info(self, *args, **{**kwargs, "builds_kernels": args[1] == "A"})

    monkeypatch.setattr(DeviceInfo, "__init__", building)

    def open_again() -> Any:
        return toy_core(A=type("A", (Slow,), {"go": go}), B=nothing)

    return open_again, go
