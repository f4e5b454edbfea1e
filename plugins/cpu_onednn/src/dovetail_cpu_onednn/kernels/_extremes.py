"""ReduceMax and ReduceMin, which oneDNN computes without regard to NaN: NumPy's reductions, straight into the result."""

from collections.abc import Callable, Iterable
from functools import partial

import numpy as np

from dovetail.device import Accepted, Reason, Refusal, TypedNode
from dovetail_cpu_onednn.kernel import given
from dovetail_cpu_onednn.kernels._ufunc import NUMBERS
from dovetail_cpu_onednn.python_kernel import Array, Call, PythonKernel, quiet
from dovetail_ops_onnx.reduce_max import ReduceMax
from dovetail_ops_onnx.reduce_min import ReduceMin

__all__ = ["ExtremeKernel"]


class ExtremeKernel(PythonKernel):
    """By `numpy.maximum` or `numpy.minimum`, over constant axes."""

    name = "ufunc"

    def __init__(self, ufunc: np.ufunc) -> None:
        self._ufunc = ufunc

    def supports(self, node: TypedNode) -> Accepted | Refusal:
        if node.post_ops:
            return Refusal(Reason.POST_OP, "a ufunc takes none")
        if given(node, 0).dtype not in NUMBERS or not given(node, 0).size:
            return Refusal(Reason.DTYPE, f"{given(node, 0)}; accepted: numbers, at least one")
        if any(t is not None and t.value is None for t in node.inputs[1:]):
            return Refusal(Reason.DYNAMIC, "the axes are not constant")
        return Accepted(self.name)

    def bind(self, node: TypedNode, array: Callable[[str], Array]) -> Iterable[Call]:
        assert isinstance(node.op, ReduceMax | ReduceMin)
        src, dst = array(node.node.inputs[0]), array(node.node.outputs[0])
        given_axes = node.inputs[1] if len(node.inputs) > 1 else None
        axes = node.op.reduced_axes(src.ndim, None if given_axes is None else given_axes.value)
        kept = dst.reshape(tuple(1 if a in axes else d for a, d in enumerate(src.shape)))
        return [quiet(partial(self._ufunc.reduce, src, axis=axes, out=kept, keepdims=True))]
