"""The OPENCL device of dovetail: any GPU with an OpenCL 1.2 driver, and CPUs through PoCL.

pyopencl is imported when a hook is called, so that a machine without a working one still gets a reason and a hint.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.device import Device, DeviceInfo, Unavailable
from dovetail.hookspecs import hookimpl
from dovetail_gpu_opencl import driver_caches

__all__ = ["dovetail_api", "dovetail_device_info", "dovetail_device_open"]

dovetail_api = "1.0"


@hookimpl
def dovetail_device_info(config: Mapping[str, Any]) -> Sequence[DeviceInfo] | Unavailable:
    """All OpenCL devices, or the reason why none is available."""
    driver_caches.provide()
    try:
        from dovetail_gpu_opencl.discovery import device_infos
    except ImportError as error:
        return Unavailable(f"pyopencl cannot be imported: {error}", 'pip install "dovetail-gpu-opencl[pocl]"')
    return device_infos()


@hookimpl
def dovetail_device_open(info: DeviceInfo, options: Mapping[str, Any]) -> Device:
    """A device with its context."""
    from dovetail_gpu_opencl.device import OpenCLDevice

    return OpenCLDevice(info, options)
