"""Devices as onnxruntime lists them, each with the provider that means it, and policies that choose among them."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from dovetail_onnxruntime.providers import CPU, get_available_providers, gpu_providers
from dovetail_onnxruntime.version import __version__

__all__ = [
    "OrtEpDevice",
    "OrtExecutionProviderDevicePolicy",
    "OrtHardwareDevice",
    "OrtHardwareDeviceType",
    "device_of_provider",
    "get_ep_devices",
    "providers_of",
]


class OrtHardwareDeviceType(enum.IntEnum):
    """The kinds of devices."""

    CPU = 0
    GPU = 1
    NPU = 2


class OrtExecutionProviderDevicePolicy(enum.IntEnum):
    """How a session chooses its provider: a GPU where one is preferred or performance asked for, else the CPU."""

    DEFAULT = 0
    PREFER_CPU = 1
    PREFER_NPU = 2
    PREFER_GPU = 3
    MAX_PERFORMANCE = 4
    MAX_EFFICIENCY = 5
    MIN_OVERALL_POWER = 6


@dataclass(frozen=True)
class OrtHardwareDevice:
    """A device of this machine."""

    type: OrtHardwareDeviceType
    vendor: str = "dovetail"
    vendor_id: int = 0
    device_id: int = 0
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class OrtEpDevice:
    """A device with the provider that means it."""

    ep_name: str
    device: OrtHardwareDevice
    ep_vendor: str = "dovetail"
    ep_metadata: Mapping[str, str] = field(default_factory=lambda: {"version": __version__})
    ep_options: Mapping[str, str] = field(default_factory=dict)


def get_ep_devices() -> list[OrtEpDevice]:
    """The CPU, and the GPU where there is one."""
    return [device_of_provider(CPU), *(device_of_provider(name) for name in gpu_providers(get_available_providers()))]


def device_of_provider(name: str) -> OrtEpDevice:
    """The device that a provider means."""
    kind = OrtHardwareDeviceType.GPU if gpu_providers([name]) else OrtHardwareDeviceType.CPU
    return OrtEpDevice(name, OrtHardwareDevice(kind))


def providers_of(policy: OrtExecutionProviderDevicePolicy) -> list[str]:
    """The providers that a policy chooses, in order."""
    fast = policy in (OrtExecutionProviderDevicePolicy.PREFER_GPU, OrtExecutionProviderDevicePolicy.MAX_PERFORMANCE)
    return [*(gpu_providers(get_available_providers()) if fast else []), CPU]
