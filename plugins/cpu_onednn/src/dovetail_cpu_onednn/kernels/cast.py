"""Cast between data types where NumPy's conversion is ONNX's."""

from collections.abc import Callable, Iterable
from functools import partial

import numpy as np

from dovetail.device import DType, Reason, Refusal, TypedNode
from dovetail.op import INTEGERS
from dovetail_cpu_onednn.kernels._movement import StridedCopy
from dovetail_cpu_onednn.python_kernel import Array, Call
from dovetail_ops_onnx.cast import conversion

_WHOLE = INTEGERS | {DType.BOOL}
_WIDE = frozenset({DType.FLOAT32, DType.FLOAT64})
_HALF = frozenset({DType.FLOAT16, DType.FLOAT32})


class CastCopy(StridedCopy):
    """A converting copy. From float to integer it is undefined out of range, so that is left to the reference."""

    def refuse(self, node: TypedNode) -> Refusal | None:
        source, target = node.given(0).dtype, node.outputs[0].dtype
        if {source, target} == _HALF:
            return None
        if (source in _WHOLE and target in _WHOLE | _WIDE) or (source in _WIDE and target in _WIDE | {DType.BOOL}):
            return None
        return Refusal(Reason.DTYPE, f"from {source} to {target}")

    def pairs(self, node: TypedNode, array: Callable[[str], Array]) -> Iterable[tuple[Array, Array]]:
        yield array(node.node.outputs[0]), array(node.node.inputs[0])

    def binding(self, node: TypedNode) -> Callable[[Callable[[str], Array]], Iterable[Call]]:
        is_half = DType.FLOAT16 in (node.given(0).dtype, node.outputs[0].dtype)

        def bind(array: Callable[[str], Array]) -> Iterable[Call]:
            found = self.pairs(node, array)
            return [conversion(src, dst) if is_half else partial(np.copyto, dst, src, "unsafe") for dst, src in found]

        return bind


KERNELS = (CastCopy(),)
