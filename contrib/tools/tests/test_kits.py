"""The checks of virtual devices that refuse a single device."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

import dovetail
from dovetail.errors import UsageError
from dovetail.hookspecs import hookimpl
from dovetail.virtual import Session, Targets, VirtualDevice
from dovetail_tools.kits import VirtualDeviceChecks


class Several(VirtualDevice):
    """Accepts so many devices."""

    def __init__(self, count: int) -> None:
        self.count = count

    def targets(self, session: Session, arguments: str, properties: Mapping[str, Any]) -> tuple[Targets, ...]:
        names = arguments.split(",")
        if len(names) != self.count:
            raise UsageError(f"'SEVERAL:{arguments}' names {len(names)} devices", hint="write SEVERAL:A,...")
        return tuple(Targets((name,), properties) for name in names)

    def compile(self, *_: Any) -> Any:
        raise AssertionError("nothing is compiled here")


def checks(count: int) -> VirtualDeviceChecks:
    @hookimpl
    def dovetail_virtual_device() -> VirtualDevice:
        return Several(count)

    core = dovetail.Core(config=False)
    plugin = SimpleNamespace(dovetail_api="1.0", dovetail_virtual_device=dovetail_virtual_device)
    core.plugins.register(plugin, name="several", kind="virtual_devices", key="several")
    return VirtualDeviceChecks("SEVERAL", lambda: core)


@pytest.mark.parametrize(("count", "device"), [(1, "SEVERAL:NUMPY"), (2, "SEVERAL:NUMPY,NUMPY")])
def test_a_virtual_device_runs_on_as_many_devices_as_it_accepts(count: int, device: str) -> None:
    kit = checks(count)
    kit.open()
    assert kit.device == device
    kit.close()


def test_the_error_names_the_command_with_devices() -> None:
    kit = checks(3)
    with pytest.raises(UsageError, match=r"names 1 devices\n  .*: dovetail plugins test SEVERAL:A,B\. write SEVERAL:A,\.\.\."):
        kit.open()
    kit.close()
