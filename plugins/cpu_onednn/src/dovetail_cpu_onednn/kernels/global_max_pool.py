"""GlobalMaxPool: oneDNN's pooling with a window as large as the input, NumPy's maximum for sequences."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np

from dovetail.device import PLAIN, Accepted, DType, LayerConfig, Layout, Reason, Refusal, TypedNode
from dovetail_cpu_onednn.kernel import OnednnKernel
from dovetail_cpu_onednn.kernels._pool import MaximumKernel, whole
from dovetail_cpu_onednn.python_kernel import Array, Call, PythonKernel, quiet
from dovetail_cpu_onednn.reorder import logical
from dovetail_ops_onnx.spatial import ConvGeometry

__all__ = ["KERNELS"]

CHANNELS_LAST = Layout("BYXF")


class SequenceKernel(PythonKernel):
    """The largest number of each channel of a sequence, plain or channels-last, NaN where there is one."""

    name = "ufunc"

    def supports(self, node: TypedNode) -> Accepted | Refusal:
        src = node.given(0)
        if node.post_ops:
            return Refusal(Reason.POST_OP, "a ufunc takes none")
        if src.rank != 3 or src.dtype is not DType.FLOAT32 or not src.size:
            return Refusal(Reason.SHAPE, f"{src}; accepted: float32 of three dimensions, at least one number")
        return Accepted(self.name)

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        return [LayerConfig.uniform(node, layout) for layout in (PLAIN, CHANNELS_LAST)]

    def bind(self, node: TypedNode, array: Callable[[str], Array]) -> Iterable[Call]:
        src, dst = logical(array(node.node.inputs[0]), node.given(0)), logical(array(node.node.outputs[0]), node.outputs[0])
        return [quiet(partial(np.maximum.reduce, src, axis=2, keepdims=True, out=dst))]


class Pooling(MaximumKernel):
    """The largest element of each channel."""

    def geometry(self, node: TypedNode) -> ConvGeometry:
        return whole(node)


KERNELS: tuple[OnednnKernel, ...] = (SequenceKernel(), Pooling())
