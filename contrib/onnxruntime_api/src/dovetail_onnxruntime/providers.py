"""Execution providers: which there are, and the device of dovetail that each one means."""

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from dovetail import Core
from dovetail.locks import Lock
from dovetail_onnxruntime.noted import without_effect

__all__ = [
    "CPU",
    "DEVICE_VARIABLE",
    "DOVETAIL",
    "core",
    "device_of",
    "get_all_providers",
    "get_available_providers",
    "get_device",
    "gpu_providers",
    "is_available",
    "names_device",
    "normalized",
    "use_device",
]

CPU = "CPUExecutionProvider"
DOVETAIL = "DovetailExecutionProvider"
DEVICE_VARIABLE = "DOVETAIL_ONNXRUNTIME_DEVICE"
"""Environment variable: the device that every provider means, unless DovetailExecutionProvider names one."""

_CUDA = "CUDAExecutionProvider"
_GPUS = (
    _CUDA,
    "TensorrtExecutionProvider",
    "NvTensorRTRTXExecutionProvider",
    "ROCMExecutionProvider",
    "MIGraphXExecutionProvider",
    "DmlExecutionProvider",
    "WebGpuExecutionProvider",
)
"""Providers that mean the best GPU. Only CUDA's is listed as available, because programs ask for one of them."""
_OTHERS = (
    "OpenVINOExecutionProvider",
    "DnnlExecutionProvider",
    "VitisAIExecutionProvider",
    "QNNExecutionProvider",
    "NnapiExecutionProvider",
    "CoreMLExecutionProvider",
    "ACLExecutionProvider",
    "XnnpackExecutionProvider",
    "CANNExecutionProvider",
    "AzureExecutionProvider",
)

Options = dict[str, Any]

_lock = Lock()
_shared: list[Core] = []


def core() -> Core:
    """The session of dovetail that all sessions of this process share."""
    with _lock:
        if not _shared:
            _shared.append(Core())
        return _shared[0]


def use_device(device: str | None) -> None:
    """Let every provider mean this device (`"NUMPY"`, `"OPENCL.1"`) in this process and its children; None: its own."""
    if device is None:
        os.environ.pop(DEVICE_VARIABLE, None)
    else:
        os.environ[DEVICE_VARIABLE] = device


def get_all_providers() -> list[str]:
    """Every provider that programs may name, by descending priority."""
    return [*_GPUS, *_OTHERS, DOVETAIL, CPU]


def get_available_providers() -> list[str]:
    """The providers that mean a device which is there, by descending priority."""
    return [*([_CUDA] if _has_gpu() else []), DOVETAIL, CPU]


def is_available(name: str) -> bool:
    """Whether a provider means a device that is there."""
    # Only providers of GPUs ask for them: to look for GPUs loads their drivers.
    return name in (DOVETAIL, CPU) or (name in _GPUS and _has_gpu())


def gpu_providers(names: Sequence[str]) -> list[str]:
    """Those of the names that mean a GPU."""
    return [name for name in names if name in _GPUS]


def get_device() -> str:
    """`GPU` when there is one, else `CPU`."""
    return "GPU" if _has_gpu() else "CPU"


def _has_gpu() -> bool:
    return any(info.kind == "GPU" for info in core().devices)


def normalized(
    providers: Sequence[str | tuple[str, Mapping[Any, Any]]] | None, provider_options: Sequence[Mapping[Any, Any]] | None
) -> dict[str, Options]:
    """Provider -> options, in order, those that are there. Others are warned of and left out; CPU is always last.

    Raises `ValueError` for arguments that onnxruntime refuses.
    """
    found: dict[str, Options] = {}
    for name, options in _pairs(providers, provider_options):
        if not is_available(name):
            available = ", ".join(get_available_providers())
            warnings.warn(
                f"Specified provider '{name}' is not in available provider names.Available providers: '{available}'",
                UserWarning,
                stacklevel=5,
            )
        elif name in found:
            warnings.warn(f"Duplicate provider '{name}' encountered, ignoring.", UserWarning, stacklevel=5)
        else:
            found[name] = {str(key): value for key, value in options.items()}
    found.setdefault(CPU, {})
    return found


def _pairs(providers: Any, provider_options: Any) -> list[tuple[str, Mapping[Any, Any]]]:
    if providers is None:
        return []
    if not isinstance(providers, Sequence):
        raise ValueError("'providers' should be a sequence.")
    if provider_options is None:
        return [_pair(provider) for provider in providers]
    if not isinstance(provider_options, Sequence):
        raise ValueError("'provider_options' should be a sequence.")
    if len(providers) != len(provider_options):
        raise ValueError("'providers' and 'provider_options' should be the same length if both are given.")
    if not all(isinstance(provider, str) for provider in providers):
        raise ValueError("Only string values for 'providers' are supported if 'provider_options' is given.")
    if not all(isinstance(options, dict) for options in provider_options):
        raise ValueError("'provider_options' values must be dicts.")
    return list(zip(providers, provider_options, strict=True))


def _pair(provider: Any) -> tuple[str, Mapping[Any, Any]]:
    if isinstance(provider, str):
        return provider, {}
    # Lists too, because pairs come from JSON and YAML; onnxruntime takes tuples only.
    if isinstance(provider, tuple | list) and len(provider) == 2:
        name, options = provider
        if isinstance(name, str) and isinstance(options, dict):
            return name, options
    raise ValueError("'providers' values must be either strings or (string, dict) tuples.")


def device_of(providers: Mapping[str, Options]) -> tuple[str, Options]:
    """The device of dovetail, and its properties, that the first provider means."""
    name, options = next(iter(providers.items()))
    override = os.environ.get(DEVICE_VARIABLE)
    if name == DOVETAIL:
        properties = dict(options)
        return str(properties.pop("device", None) or override or "DEFAULT"), properties
    for option in options:
        without_effect(f"option {option!r} of {name}")
    return override or ("GPU" if name in _GPUS else "CPU"), {}


def names_device(providers: Mapping[str, Options]) -> bool:
    """Whether the first provider is dovetail's, with a device named by its options."""
    name, options = next(iter(providers.items()))
    return name == DOVETAIL and bool(options.get("device"))
