"""RotaryEmbedding by NumPy on whole heads."""

from collections.abc import Callable, Iterable
from functools import lru_cache, partial

import numpy as np

from dovetail.device import Accepted, DType, Reason, Refusal, TypedNode
from dovetail_cpu_onednn.kernel import given
from dovetail_cpu_onednn.python_kernel import Array, Call, PythonKernel, Values, quiet
from dovetail_ops_onnx.rotary_embedding import RotaryEmbedding
from dovetail_ops_onnx.rotation import rotation, work_shapes


class Pairs(PythonKernel):
    """Two products of whole heads. Nodes of equal sizes share their work arrays."""

    name = "pairs"

    def supports(self, node: TypedNode) -> Accepted | Refusal:
        if node.post_ops:
            return Refusal(Reason.POST_OP, "NumPy's calls take none")
        if given(node, 0).dtype is not DType.FLOAT32:
            return Refusal(Reason.DTYPE, f"{given(node, 0).dtype}; accepted: float32")
        return Accepted(self.name)

    def bind(self, node: TypedNode, array: Values) -> Iterable[Call]:
        assert isinstance(node.op, RotaryEmbedding)
        x = given(node, 0)
        inputs = [array(name) for name in node.node.inputs if name]
        calls = rotation(node.op, x, inputs, array(node.node.outputs[0]), array.shared(_work(work_shapes(node.op, x))))
        return [quiet(call) for call in calls]


@lru_cache(64)
def _work(shapes: tuple[tuple[int, ...], ...]) -> Callable[[], tuple[Array, ...]]:
    """The function that makes the work arrays, one for equal shapes."""
    return partial(_arrays, shapes)


def _arrays(shapes: tuple[tuple[int, ...], ...]) -> tuple[Array, ...]:
    return tuple(np.empty(shape, np.float32) for shape in shapes)


KERNELS = (Pairs(),)
