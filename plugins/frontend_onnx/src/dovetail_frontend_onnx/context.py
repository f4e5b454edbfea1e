"""What one reading shares: where it reads from, what it may still allocate, and how errors say where they were found."""

from dataclasses import dataclass

from dovetail.frontend import FormatError, GraphError, ModelSource, OutOfMemory, printable
from dovetail_frontend_onnx.external import ExternalData

__all__ = ["Context", "label", "located"]

_EXPANSION = 200 * 2**20
"""Bytes that a small file may grow to beyond its own size: by inlined functions and by sparse tensors made dense."""

_LONG = 2000


@dataclass
class Context:
    """The state of one reading."""

    source: ModelSource
    external: ExternalData
    allowance: int = _EXPANSION

    def spend(self, size: int, what: str) -> None:
        """Count `size` bytes that the file does not hold itself. Raises `FormatError` when a small file grows too large."""
        self.allowance -= size
        if self.allowance < 0:
            raise FormatError(f"{what}: the model would grow by more than {_EXPANSION >> 20} MiB", hint="store it without them")


def label(name: str, domain: str, op_type: str) -> str:
    """A node for messages: `node 'conv1' (Conv)`."""
    return f"node '{printable(name)}' ({printable(f'{domain}::{op_type}' if domain else op_type)})"


def located(where: str, error: FormatError | GraphError | OutOfMemory) -> FormatError | GraphError | OutOfMemory:
    """`error` with `where` in front of its message, unless many levels have made that long already."""
    if len(error.message) < _LONG:
        error.message = f"{where}: {error.message}"
    return error
