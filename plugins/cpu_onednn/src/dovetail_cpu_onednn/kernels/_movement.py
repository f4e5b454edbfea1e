"""Operators that copy between an array and strided views of others, in any data type, which oneDNN's reorder does not support."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import ClassVar

import numpy as np

from dovetail.device import BYXF, PLAIN, Accepted, DType, LayerConfig, Reason, Refusal, TypedNode
from dovetail_cpu_onednn.python_kernel import Array, Call, PythonKernel
from dovetail_ops_onnx.runs import as_runs

__all__ = ["StridedCopy"]


class StridedCopy(PythonKernel):
    """Pairs of (destination, source), both views, copied one after the other."""

    name = "copy"
    binds_quickly = True
    data: ClassVar[int | None] = 0
    """How many of the first inputs may have channels last, as the outputs then have; the rest are parameters. None: all."""

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        found = [LayerConfig.uniform(node, PLAIN)]
        count = len(node.inputs) if self.data is None else self.data
        if count and all(BYXF.fits(t.rank) for t in (*node.inputs[:count], *node.outputs) if t is not None):
            inputs = tuple(BYXF if index < count else PLAIN for index in range(len(node.inputs)))
            found.append(LayerConfig(inputs, (BYXF,) * len(node.outputs)))
        return found

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
        """The views to copy between: each element of the outputs once. `array` gives values with their axes in order."""

    def pairing(self, node: TypedNode) -> Callable[[Callable[[str], Array]], Iterable[tuple[Array, Array]]]:
        """`pairs` of the node, after all that depends on no array."""
        return partial(self.pairs, node)

    def bind(self, node: TypedNode, array: Callable[[str], Array]) -> Iterable[Call]:
        return self.binding(node)(array)

    def binding(self, node: TypedNode) -> Callable[[Callable[[str], Array]], Iterable[Call]]:
        is_last, pairs = node.outputs[0].layout == BYXF, self.pairing(node)

        def bind(array: Callable[[str], Array]) -> Iterable[Call]:
            found = pairs((lambda name: np.moveaxis(array(name), -1, 1)) if is_last else array)
            return [partial(np.copyto, *as_runs(dst, src)) for dst, src in found if dst.size]

        return bind
