"""Which versions of ONNX's operator set are read: unchanged, and after `upgrade`."""

from dovetail_frontend_onnx.messages import ModelProto, vendored

__all__ = ["NEWEST_OPSET", "OLDEST_OPSET", "is_old", "versions"]

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
