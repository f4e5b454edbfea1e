"""The names of onnxruntime's native module: the exceptions, and those of the package that are not written in Python."""

from typing import Any

import dovetail_onnxruntime
from dovetail_onnxruntime import exceptions

_EXCEPTIONS = frozenset(name for name in exceptions.__all__ if name[0].isupper())
_IN_PYTHON = {"IOBinding", "__version__", "preload_dlls", "use_device"}

__all__ = sorted(_EXCEPTIONS.union(dovetail_onnxruntime.__all__) - _IN_PYTHON)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(exceptions if name in _EXCEPTIONS else dovetail_onnxruntime, name)


def __dir__() -> list[str]:
    return list(__all__)
