"""Fixtures of the core's tests: a device in a few lines, and sessions that have nothing installed but such devices."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.device import (
    DeviceInfo,
    TypedNode,
)
from dovetail.plugins.discovery import index
from dovetail.testing import ReferenceDevice, register_device
from dovetail.virtual import Session, Targets, VirtualDevice

Refuses = Callable[[TypedNode], bool]

STANDARD_PACK = "dovetail-ops-onnx"


@pytest.fixture(autouse=True)
def _no_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The configuration file of whoever runs the tests is not looked at."""
    monkeypatch.delenv("DOVETAIL_CONFIG", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user"))


class Together(VirtualDevice):
    """`TOGETHER:A,B`: each node on the first device that takes it."""

    def targets(self, session: Session, arguments: str, properties: Mapping[str, Any]) -> tuple[Targets, ...]:
        return (Targets(tuple(session.info(name).name for name in arguments.split(",")), properties),)


def virtual_plugin(device: VirtualDevice) -> Any:
    """A plugin that gives a virtual device."""

    @dovetail.hookimpl
    def dovetail_virtual_device() -> VirtualDevice:
        return device

    return SimpleNamespace(dovetail_api="1.0", dovetail_virtual_device=dovetail_virtual_device)


@pytest.fixture
def register_virtual() -> Callable[[dovetail.Core, str, VirtualDevice], None]:
    """`register_virtual(core, "NAME", device)` adds a virtual device to a session."""

    def register(core: dovetail.Core, name: str, device: VirtualDevice) -> None:
        core.plugins.register(virtual_plugin(device), name=f"toy-{name}", kind="virtual_devices", key=name)

    return register


@pytest.fixture
def toy_core(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """`toy_core(A=refuses, B=refuses)` -> (Core, list of the devices opened).

    The session has these toy devices, `TOGETHER:A,B` and the standard operators, and nothing else.
    """
    installed = tuple(record for record in index() if record.distribution == STANDARD_PACK)
    monkeypatch.setattr("dovetail.plugins.manager.index", lambda: installed)

    def make(**devices: Refuses) -> tuple[dovetail.Core, list[ReferenceDevice]]:
        core = dovetail.Core()
        core.plugins.register(virtual_plugin(Together()), name="toy-together", kind="virtual_devices", key="together")
        opened: list[ReferenceDevice] = []

        def opening(refuses: Refuses) -> Callable[[DeviceInfo], ReferenceDevice]:
            def open_device(info: DeviceInfo) -> ReferenceDevice:
                opened.append(ReferenceDevice(info, refuses))
                return opened[-1]

            return open_device

        for rank, (name, refuses) in enumerate(devices.items()):
            info = DeviceInfo(f"{name}.0", name, "CPU", f"toy {name}", -rank)
            register_device(core, info, opening(refuses), f"toy-{name.lower()}")
        return core, opened

    return make


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20)
