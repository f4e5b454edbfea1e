"""OpenCL drivers do not survive a fork: their threads and connections to the device are lost, and calls may never return."""

import os

from dovetail.device import DeviceError

__all__ = ["HINT", "REASON", "check", "enter", "is_forked"]

REASON = "OpenCL was used before this process was forked, and its drivers do not work in a forked process"
HINT = "start processes by spawn or forkserver, or list devices and compile in the forked processes only"

_home: list[int] = []


def enter() -> None:
    """Note that drivers are called in this process from now on. Raises `DeviceError` as `check` does."""
    if not _home:
        _home.append(os.getpid())
    check()


def is_forked() -> bool:
    """Whether drivers were called in the process from which this one was forked."""
    return bool(_home) and _home[0] != os.getpid()


def check() -> None:
    """Raise `DeviceError` instead of calling a driver that might never return."""
    if is_forked():
        raise DeviceError(REASON, hint=HINT)
