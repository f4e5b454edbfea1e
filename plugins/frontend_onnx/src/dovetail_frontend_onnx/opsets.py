"""Which versions of ONNX's operator set are read: unchanged, and after `upgrade`."""

from dovetail_frontend_onnx.messages import ModelProto

__all__ = ["OLDEST_OPSET", "is_old", "newest_opset", "versions"]

OLDEST_OPSET = 7
"""The oldest version that is read unchanged."""
_SURELY_KNOWN = 21
"""The newest version that onnx 1.16 knows, the oldest onnx that this package works with."""


def newest_opset(asked: int) -> int:
    """The newest version that the onnx package knows; `asked` itself where it need not be imported to know that one."""
    if OLDEST_OPSET <= asked <= _SURELY_KNOWN:
        return asked
    from onnx.defs import onnx_opset_version

    return onnx_opset_version()


def is_old(proto: ModelProto) -> bool:
    """Whether the model imports an operator set that has to be converted."""
    found = versions(proto)
    return bool(found) and 1 <= found[0] < OLDEST_OPSET


def versions(proto: ModelProto) -> list[int]:
    """The versions of ONNX's own operator set that the model imports: one, if it is right."""
    return [item.version for item in proto.opset_import if item.domain in ("", "ai.onnx")]
