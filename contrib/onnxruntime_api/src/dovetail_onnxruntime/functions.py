"""onnxruntime's functions at module level that are about the whole process."""

from dovetail import __version__ as _dovetail_version
from dovetail_onnxruntime.noted import without_effect
from dovetail_onnxruntime.version import __version__

__all__ = [
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_build_info",
    "get_version_string",
    "has_collective_ops",
    "preload_dlls",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_seed",
]


def set_default_logger_severity(severity: int) -> None:
    """Has no effect: dovetail logs through Python's logging, logger `dovetail`."""
    without_effect("set_default_logger_severity", "set the level of the logger 'dovetail'")


def set_default_logger_verbosity(verbosity: int) -> None:
    """Has no effect: dovetail logs through Python's logging, logger `dovetail`."""
    without_effect("set_default_logger_verbosity", "set the level of the logger 'dovetail'")


def set_seed(seed: int) -> None:
    """Has no effect: random operators without a seed of their own take a new one in each run."""
    without_effect("set_seed")


def disable_telemetry_events() -> None:
    """Return: dovetail sends no telemetry."""


def enable_telemetry_events() -> None:
    """Has no effect: dovetail sends no telemetry."""
    without_effect("enable_telemetry_events")


def preload_dlls(cuda: bool = True, cudnn: bool = True, msvc: bool = True, directory: str | None = None) -> None:
    """Return: devices load their own libraries."""


def has_collective_ops() -> bool:
    """False."""
    return False


def get_version_string() -> str:
    """The version of onnxruntime whose interface this is."""
    return __version__


def get_build_info() -> str:
    """The version of dovetail behind the interface."""
    return f"ORT Build Info: dovetail {_dovetail_version}"
