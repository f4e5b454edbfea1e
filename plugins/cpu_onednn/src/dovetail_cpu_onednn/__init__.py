"""The device ONEDNN of dovetail: oneDNN's primitives on the CPU, with fused post-ops and the layouts that they choose.

The shared library is loaded when a hook is called, so that a machine without it still gets a reason and a hint.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.device import Device, DeviceInfo, Unavailable
from dovetail.hookspecs import hookimpl

__all__ = ["dovetail_api", "dovetail_device_info", "dovetail_device_open"]

dovetail_api = "1.0"


@hookimpl
def dovetail_device_info(config: Mapping[str, Any]) -> Sequence[DeviceInfo] | Unavailable:
    """The one device ONEDNN, or why it is missing."""
    from dovetail_cpu_onednn.device import infos

    return infos()


@hookimpl
def dovetail_device_open(info: DeviceInfo, options: Mapping[str, Any]) -> Device:
    """Open ONEDNN. Raises `UsageError` for options that it does not have."""
    from dovetail_cpu_onednn.device import OnednnDevice

    return OnednnDevice(info, options)
