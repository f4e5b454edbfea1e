"""Adds the node to errors that operators raise."""

from collections.abc import Sequence

from dovetail.errors import DovetailError, OperatorError, OutOfMemory, UsageError
from dovetail.graph.graph import Node
from dovetail.graph.types import TensorType


class node_context:  # noqa: N801  # used like a function, in `with`; a generator would take three times as long
    """Re-raise an `OperatorError` with node, operator and input types in front, and anything that an operator's
    code raises by mistake as an `OperatorError`.
    """

    __slots__ = ("_inputs", "_node")

    def __init__(self, node: Node, inputs: Sequence[TensorType | None] = ()) -> None:
        self._node, self._inputs = node, inputs

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None or not isinstance(error, Exception):
            return
        node, where = self._node, f"node {self._node}{_given(self._inputs)}: "
        if isinstance(error, OperatorError):
            if error.node is None:
                error.message = where + error.message
                error.node = node.name  # read by tools; set once so that nested contexts do not repeat it
        elif isinstance(error, UsageError):  # such as a work size that is not positive
            raise OperatorError(where + error.message, hint=error.hint) from error
        elif isinstance(error, MemoryError) and not isinstance(error, DovetailError):
            text = str(error) or "the host has no memory left"
            raise OutOfMemory(where + text, hint="use smaller inputs or batches") from error
        elif not isinstance(error, DovetailError):
            raise OperatorError(f"{where}the operator raised {type(error).__name__}: {error}") from error


def _given(inputs: Sequence[TensorType | None]) -> str:
    return f" with inputs ({', '.join('-' if t is None else str(t) for t in inputs)})" if inputs else ""
