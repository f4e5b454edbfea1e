"""Which versions of ONNX's operator set are read: unchanged, and after `upgrade`."""

import os
import sys
from typing import Any

from dovetail_frontend_onnx.protos import ModelProto

__all__ = ["NEWEST_OPSET", "OLDEST_OPSET", "is_old", "vendored", "versions"]


def vendored(name: str) -> bytes:
    """A file of ONNX in this package, in a zip archive too. `pkgutil` takes 0.5 ms to import, `importlib.resources` 4."""
    loader: Any = sys.modules[__name__].__loader__
    content: bytes = loader.get_data(os.path.join(os.path.dirname(__file__), "vendor", "onnx", name))
    return content


OLDEST_OPSET = 7
"""The oldest version that is read unchanged."""
NEWEST_OPSET = int(vendored("newest-opset.txt"))
"""The newest version of the ONNX release whose messages are vendored."""


def is_old(proto: ModelProto) -> bool:
    """Whether the model imports an operator set that has to be converted."""
    found = versions(proto)
    return bool(found) and 1 <= found[0] < OLDEST_OPSET


def versions(proto: ModelProto) -> list[int]:
    """The versions of ONNX's own operator set that the model imports: one, if it is right."""
    return [item.version for item in proto.opset_import if item.domain in ("", "ai.onnx")]
