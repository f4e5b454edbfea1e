"""The device NUMPY: every operator on the CPU, in NumPy."""

from collections.abc import Mapping
from typing import Any

from dovetail.device import Device, DeviceInfo
from dovetail.hookspecs import hookimpl

__all__ = ["dovetail_api", "dovetail_device_info", "dovetail_device_open"]

dovetail_api = "1.0"


@hookimpl
def dovetail_device_info(config: Mapping[str, Any]) -> list[DeviceInfo]:
    """The one device NUMPY; it is always there."""
    from dovetail_cpu_numpy.device import describe

    return [describe()]


@hookimpl
def dovetail_device_open(info: DeviceInfo, options: Mapping[str, Any]) -> Device:
    """Open NUMPY. It has no options: raises `UsageError` for any."""
    from dovetail_cpu_numpy.device import NumpyDevice
    from dovetail_cpu_numpy.options import Options

    Options.read(options)
    return NumpyDevice(info)
