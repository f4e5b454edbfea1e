"""Adds the node to errors that operators raise."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from dovetail.errors import DovetailError, OperatorError, OutOfMemory, UsageError
from dovetail.graph.graph import Node
from dovetail.graph.types import TensorType


@contextmanager
def node_context(node: Node, inputs: Sequence[TensorType | None] = ()) -> Iterator[None]:
    """Re-raise an `OperatorError` with node, operator and input types in front, and anything that an operator's
    code raises by mistake as an `OperatorError`.
    """
    try:
        yield
    except OperatorError as error:
        if error.node is None:
            error.message = f"node {node}{_given(inputs)}: {error.message}"
            error.node = node.name  # read by tools; set once so that nested contexts do not repeat it
        raise
    except UsageError as error:  # such as a work size that is not positive
        raise OperatorError(f"node {node}{_given(inputs)}: {error.message}", hint=error.hint) from error
    except DovetailError:
        raise
    except MemoryError as error:
        text = str(error) or "the host has no memory left"
        raise OutOfMemory(f"node {node}{_given(inputs)}: {text}", hint="use smaller inputs or batches") from error
    except Exception as error:
        raise OperatorError(f"node {node}{_given(inputs)}: the operator raised {type(error).__name__}: {error}") from error


def _given(inputs: Sequence[TensorType | None]) -> str:
    return f" with inputs ({', '.join('-' if t is None else str(t) for t in inputs)})" if inputs else ""
