"""Finds the devices of all OpenCL platforms, without creating a context."""

import functools
import logging
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pyopencl as cl

from dovetail.device import DeviceInfo, Unavailable
from dovetail_gpu_opencl import driver_caches, driver_pages, fork, interpreter, linker
from dovetail_gpu_opencl.capabilities import identity_of, kind_of, needs_linker, refused_cpu

__all__ = ["TYPE", "device_infos", "find_device"]

TYPE = "OPENCL"
_RANK = {"GPU": 0, "CPU": 1, "ACCELERATOR": 2}
_PRIORITY = {"GPU": 200, "CPU": 10, "ACCELERATOR": 50}
_NO_DEVICE_HINT = 'install the driver of your GPU, or run on the CPU: pip install "dovetail-gpu-opencl[pocl]"'

_NEWER_POCL = "install the PoCL of your distribution: apt-get install pocl-opencl-icd (Debian, Ubuntu), dnf install pocl (Fedora)"

_log = logging.getLogger("dovetail.opencl")

_CPUS = "/sys/devices/system/cpu"
"""Where PoCL's library for the machine's topology looks on Linux; without it PoCL ends the process that asks for devices."""
_ASK = "import pyopencl as cl; [platform.get_devices() for platform in cl.get_platforms()]"
_ENDS_HINT = "give this container or sandbox its /sys, or name another driver by OCL_ICD_VENDORS"


def device_infos() -> Sequence[DeviceInfo] | Unavailable:
    """`OPENCL.0`, `OPENCL.1`, ...: GPUs before CPUs before others, then in the order of platforms and of their devices.

    A device that cannot build kernels is left out, and logged once in a process. It keeps its number, so that the names of the
    others do not change.
    """
    if fork.is_forked():
        return Unavailable(fork.REASON, fork.HINT)
    if sys.platform == "linux" and not os.path.isdir(_CPUS) and _asking_ends_a_process():
        return Unavailable(f"an OpenCL driver ends the process that asks for its devices: {_CPUS} is missing", _ENDS_HINT)
    devices = _devices()
    if not devices:
        return Unavailable("no OpenCL platform with a device was found", _no_device_hint())
    reasons = [_unusable(device) for device in devices]
    if reasons[0] is not None and all(reasons):
        return reasons[0]
    for index, reason in enumerate(reasons):
        if reason is not None:
            _log_once(f"{TYPE}.{index} is left out: {reason.reason}; {reason.hint}")
    return [_describe(index, device) for index, device in enumerate(devices) if reasons[index] is None]


def find_device(name: str) -> Any:
    """The `pyopencl.Device` of a device name. Raises `KeyError` when it is gone, `DeviceError` after a fork."""
    for index, device in enumerate(_devices()):
        if name == f"{TYPE}.{index}":
            return device
    raise KeyError(name)


def _devices() -> list[Any]:
    fork.enter()
    _load_drivers()
    found = [device for platform in _platforms() for device in _platform_devices(platform)]
    return sorted(found, key=lambda device: _RANK[kind_of(device)])


@functools.cache
def _load_drivers() -> None:
    """Let the loader load all drivers, which it does when it is first asked for devices."""
    driver_pages.load_apart()
    with driver_pages.giving_back():
        for platform in _platforms():
            _platform_devices(platform)


def _platforms() -> list[Any]:
    try:
        return list(cl.get_platforms())
    except cl.Error:  # the loader reports "no platform" as an error
        return []


def _platform_devices(platform: Any) -> list[Any]:
    try:
        return list(platform.get_devices())
    except cl.Error:  # a platform whose hardware is missing (a GPU driver in a container) answers with an error
        return []


@functools.cache
def _asking_ends_a_process() -> bool:
    command = interpreter.command("-c", _ASK)
    # Where no other process can ask, nobody does: it might end this one.
    return command is None or subprocess.run(command, capture_output=True, check=False).returncode < 0


def _no_device_hint() -> str:
    folder = driver_caches.unusable()
    return f"{_NO_DEVICE_HINT}; PoCL has none where it cannot write {folder}: {driver_caches.HINT}" if folder else _NO_DEVICE_HINT


def _unusable(device: Any) -> Unavailable | None:
    """Why no kernel can be built for the device, asked without a context; None when kernels can be built."""
    if driver := refused_cpu(device):
        return Unavailable(
            f"the driver of {device.name}, {driver}, is older than this CPU and refuses to compile for it", _NEWER_POCL
        )
    lacking = linker.lacks(identity_of(device)) if needs_linker(device) else ""
    return Unavailable(f"the driver of {device.name} {lacking}", linker.HINT) if lacking else None


@functools.cache
def _log_once(message: str) -> None:
    _log.info(message)


def _describe(index: int, device: Any) -> DeviceInfo:
    kind = kind_of(device)
    details: dict[str, str | int] = {
        "platform": device.platform.version,
        "driver": device.driver_version,
        "compute_units": device.max_compute_units,
        "memory_bytes": device.global_mem_size,
    }
    return DeviceInfo(f"{TYPE}.{index}", TYPE, kind, " ".join(device.name.split()), _PRIORITY[kind], details, builds_kernels=True)
