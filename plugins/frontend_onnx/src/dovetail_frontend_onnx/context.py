"""Shared by one reading: where it reads from, what it may still allocate, and how errors say where they were found."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass, field
from dovetail.frontend import FormatError, GraphError, ModelSource, OutOfMemory, printable
from dovetail_frontend_onnx.external import ExternalData

__all__ = ["KEY_BYTES", "Context", "label", "located"]

KEY_BYTES = 24
"""The length of a key in `Context.raw_data`."""

_GROWTH = 4
_GROWTH_OF_SMALL = 80 * 2**20
"""A model may grow, by local functions expanded and sparse tensors made dense, by 4 times its size and 80 MiB. That is
enough for 100,000 nodes, and is reached in about a second."""

_LONG = 2000


@dataclass
class Context:
    """The state of one reading.

    `size` is that of the model file in bytes. `raw_data` has what was kept out of tensors, by the key in them.
    """

    source: ModelSource
    external: ExternalData
    size: int
    raw_data: Mapping[bytes, NDArray[np.uint8]] = field(default_factory=dict)
    _grown: int = 0

    def spend(self, size: int, what: str) -> None:
        """Count `size` bytes that the file does not hold itself. Raises `FormatError` when a small file grows too large."""
        self._grown += size
        limit = _GROWTH_OF_SMALL + _GROWTH * self.size
        if self._grown > limit:
            raise FormatError(
                f"{what}: the model of {self.size} bytes would grow by more than {limit}", hint="store it without them"
            )


def label(name: str, domain: str, op_type: str) -> str:
    """A node for messages: `node 'conv1' (Conv)`."""
    return f"node '{printable(name)}' ({printable(f'{domain}::{op_type}' if domain else op_type)})"


def located(where: str, error: FormatError | GraphError | OutOfMemory) -> FormatError | GraphError | OutOfMemory:
    """`error` with `where` in front of its message, unless many levels have made that long already."""
    if len(error.message) < _LONG:
        error.message = f"{where}: {error.message}"
    return error
