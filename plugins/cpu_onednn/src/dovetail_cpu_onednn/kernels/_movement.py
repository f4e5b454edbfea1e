"""Operators that copy between an array and strided views of others, in any data type, which oneDNN's reorder does not support."""

from abc import abstractmethod
from collections.abc import Callable, Iterable
from functools import partial

import numpy as np

from dovetail.device import Accepted, DType, Reason, Refusal, TypedNode
from dovetail_cpu_onednn.python_kernel import Array, Call, PythonKernel

__all__ = ["StridedCopy"]


class StridedCopy(PythonKernel):
    """Pairs of (destination, source), both views, copied one after the other."""

    name = "copy"

    def supports(self, node: TypedNode) -> Accepted | Refusal:
        if node.post_ops:
            return Refusal(Reason.POST_OP, "a copy takes none")
        if any(t is not None and t.dtype is DType.STRING for t in (*node.inputs, *node.outputs)):
            return Refusal(Reason.DTYPE, "string")
        refusal = self.refuse(node)
        return Accepted(self.name) if refusal is None else refusal

    def refuse(self, node: TypedNode) -> Refusal | None:
        """Why this kernel does not run the node; None when it does."""
        return None

    @abstractmethod
    def pairs(self, node: TypedNode, array: Callable[[str], Array]) -> Iterable[tuple[Array, Array]]:
        """The views to copy between: each element of the outputs once."""

    def bind(self, node: TypedNode, array: Callable[[str], Array]) -> Iterable[Call]:
        return [partial(np.copyto, dst, src) for dst, src in self.pairs(node, array) if dst.size]
