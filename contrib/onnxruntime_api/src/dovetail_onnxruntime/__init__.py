"""onnxruntime's interface over dovetail: programs that call onnxruntime run on dovetail's devices.

    import dovetail_onnxruntime as ort
    session = ort.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
    outputs = session.run(None, {"input": array})

`python -m dovetail_onnxruntime app.py` runs a program that says `import onnxruntime`. Importing this package imports no other
module: every public name is loaded when it is first used.
"""

from importlib import import_module

from dovetail_onnxruntime.absent import ABSENT, ABSENT_MODULES
from dovetail_onnxruntime.version import __version__

_HOMES = {
    "arguments": ("ModelMetadata", "NodeArg"),
    "binding": ("IOBinding",),
    "devices": (
        "OrtEpDevice",
        "OrtExecutionProviderDevicePolicy",
        "OrtHardwareDevice",
        "OrtHardwareDeviceType",
        "get_ep_devices",
    ),
    "enums": ("ExecutionMode", "ExecutionOrder", "GraphOptimizationLevel", "OrtAllocatorType", "OrtMemType"),
    "functions": (
        "disable_telemetry_events",
        "enable_telemetry_events",
        "get_build_info",
        "get_version_string",
        "has_collective_ops",
        "preload_dlls",
        "set_default_logger_severity",
        "set_default_logger_verbosity",
        "set_seed",
    ),
    "options": ("RunOptions", "SessionOptions"),
    "providers": ("get_all_providers", "get_available_providers", "get_device", "use_device"),
    "session": ("InferenceSession",),
    "values": ("OrtDevice", "OrtValue"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> object:
    if name == "capi":
        return import_module(f"{__name__}.capi")
    if name in ABSENT_MODULES:
        from dovetail_onnxruntime.alias import import_tool  # here, as every module

        if (tool := import_tool(name)) is not None:
            return tool
    if name not in _HOME:
        reason = ABSENT.get(name) or ABSENT_MODULES.get(name)
        raise AttributeError(f"module 'onnxruntime' of dovetail has no attribute {name!r}{f': {reason}' if reason else ''}")
    value: object = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
