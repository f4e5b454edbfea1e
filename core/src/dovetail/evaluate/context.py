"""Adds the node to errors that operators raise; NumPy's settings while they run."""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from contextvars import Context

import numpy as np

from dovetail.errors import DovetailError, GraphError, InferError, OperatorError, OutOfMemory, UsageError, raised_by_handler
from dovetail.graph.graph import AbstractOperator, Node
from dovetail.graph.types import TensorType


def node_context(node: Node, inputs: Iterable[TensorType | None] = ()) -> AbstractContextManager[None]:
    """Re-raise an `OperatorError` with node, operator and input types in front, and anything that an operator's
    code raises by mistake as an `OperatorError`, `SystemExit` included; `KeyboardInterrupt` and what a handler of a signal
    raises are the user's.
    """
    return _NodeContext(node, inputs)


class _NodeContext:  # a generator would take three times as long
    __slots__ = ("_inputs", "_node")

    def __init__(self, node: Node, inputs: Iterable[TensorType | None]) -> None:
        self._node, self._inputs = node, inputs

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None or not isinstance(error, Exception | SystemExit) or raised_by_handler(error):
            return
        node = self._node
        if isinstance(error, OperatorError):
            if error.node is None:
                error.message = f"node {node}{_given(self._inputs)}: {error.message}"
                error.node = node.name  # read by tools; set once so that nested contexts do not repeat it
        elif isinstance(error, UsageError | GraphError):  # such as a work size that is not positive
            raise OperatorError(f"node {node}{_given(self._inputs)}: {error.message}", hint=error.hint) from error
        elif isinstance(error, DovetailError):
            pass
        elif isinstance(error, MemoryError):
            text = str(error) or "the host has no memory left"
            raise OutOfMemory(f"node {node}{_given(self._inputs)}: {text}", hint="use smaller inputs or batches") from error
        else:
            what, hint = _explained(error, node.op)
            raise OperatorError(f"node {node}{_given(self._inputs)}: the operator raised {what}", hint=hint) from error


def node_failure(device: str, node: Node, error: BaseException) -> InferError:
    """The error that a device raises for what the kernel or operator of a node raised in a run.

    Raises the error itself where a handler of a signal raised it.
    """
    if raised_by_handler(error):
        raise error
    where = f"{device}, node {node}"
    if isinstance(error, MemoryError):
        return OutOfMemory(f"{where}: {str(error) or 'the host has no memory left'}")
    if isinstance(error, DovetailError):
        return InferError(f"{where}: {error.message}", hint=error.hint)
    text, hint = _explained(error, node.op)
    return InferError(f"{where}: {text}", hint=hint)


def quiet_context(buffer_size: int | None = None) -> Context | None:
    """A context in which NumPy takes infinities and NaN as results like others, and ufuncs buffer `buffer_size` elements.

    To enter it takes 0.1 us, `np.errstate` 1.7. None before NumPy 2, whose settings belong to the thread.
    """
    context, before = Context(), np.getbufsize()
    context.run(np.setbufsize, 2 * before)
    if np.getbufsize() != before:
        np.setbufsize(before)
        return None
    context.run(np.setbufsize, buffer_size or before)
    context.run(np.seterr, all="ignore")
    return context


def _explained(error: BaseException, op: AbstractOperator) -> tuple[str, str]:
    """An error that an operator's code raised by mistake, with the line of its package that it came from; and a hint, or ""."""
    written = isinstance(error, ValueError) and "read-only" in str(error)
    hint = "inputs are read-only: change a copy, X = X.copy()" if written else ""
    return located(error, op.package), hint


def located(error: BaseException, package: str) -> str:
    """An error in words, with the line of a package that it came from."""
    place, frame = "", error.__traceback__
    while frame is not None:
        code = frame.tb_frame.f_code
        if frame.tb_frame.f_globals.get("__name__", "").partition(".")[0] == package:
            place = f" ({code.co_filename.replace(chr(92), '/').rpartition('/')[2]}, line {frame.tb_lineno}, in {code.co_name})"
        frame = frame.tb_next
    return f"{type(error).__name__}: {error}{place}"


def _given(inputs: Iterable[TensorType | None]) -> str:
    types = ", ".join("-" if t is None else str(t) for t in inputs)
    return f" with inputs ({types})" if types else ""
