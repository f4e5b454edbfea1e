"""Fixtures of the core's tests: a device in a few lines, and sessions that have nothing installed but such devices."""

from collections.abc import Callable
from pathlib import Path
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

Refuses = Callable[[TypedNode], bool]

STANDARD_PACK = "dovetail-ops-onnx"


@pytest.fixture(autouse=True)
def _no_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The configuration file of whoever runs the tests is not looked at."""
    monkeypatch.delenv("DOVETAIL_CONFIG", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user"))


@pytest.fixture
def toy_core(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """`toy_core(A=refuses, B=refuses)` -> (Core with just these toy devices and the standard operators, list of those opened)."""
    installed = tuple(record for record in index() if record.distribution == STANDARD_PACK)
    monkeypatch.setattr("dovetail.plugins.manager.index", lambda: installed)

    def make(**devices: Refuses) -> tuple[dovetail.Core, list[ReferenceDevice]]:
        core = dovetail.Core()
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
