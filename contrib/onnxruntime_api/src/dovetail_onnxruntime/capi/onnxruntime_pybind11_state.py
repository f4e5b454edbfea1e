"""The names of onnxruntime's native module: the exceptions, and those of the package that are not written in Python.

The functions that onnxruntime's tools call are those of the installed onnxruntime, as the tools are.
"""

from typing import Any

import dovetail_onnxruntime
from dovetail_onnxruntime import exceptions
from dovetail_onnxruntime.alias import installed_native

_EXCEPTIONS = frozenset(name for name in exceptions.__all__ if name[0].isupper())
_OF_TOOLS = frozenset(
    {f"quantize_{kind}" for kind in ("matmul_2bits", "matmul_4bits", "matmul_8bits", "qdq_matmul_4bits", "matmul_bnb4")}
)
_IN_PYTHON = {"IOBinding", "__version__", "preload_dlls", "use_device"}

__all__ = sorted(_EXCEPTIONS.union(dovetail_onnxruntime.__all__) - _IN_PYTHON)


def __getattr__(name: str) -> Any:
    if name in _OF_TOOLS and (native := installed_native()) is not None:
        return getattr(native, name)
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(exceptions if name in _EXCEPTIONS else dovetail_onnxruntime, name)


def __dir__() -> list[str]:
    return list(__all__)
