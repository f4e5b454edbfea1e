"""RotaryEmbedding."""

from collections.abc import Iterable, Sequence

from dovetail.device import DType, Refusal, TensorType, TypedNode
from dovetail_cpu_numpy.kernel import Call, NumpyKernel, refuse_dtypes
from dovetail_cpu_numpy.launch import Launch, Spec
from dovetail_ops_onnx.rotary_embedding import RotaryEmbedding
from dovetail_ops_onnx.rotation import rotation, work_shapes


class Pairs(NumpyKernel):
    """Two products of whole heads."""

    name = "pairs"

    def refuse(self, node: TypedNode) -> Refusal | None:
        return refuse_dtypes(node.inputs[:3], frozenset({DType.FLOAT32}))

    def scratch(self, node: TypedNode) -> Sequence[Spec]:
        op, x = _given(node)
        return [(shape, x.dtype.numpy) for shape in work_shapes(op, x)]

    def bind(self, call: Call) -> Iterable[Launch]:
        inputs = [call.input(index) for index, array in enumerate(call.inputs) if array is not None]
        return rotation(*_given(call.node), inputs, call.outputs[0], tuple(call.scratch))


def _given(node: TypedNode) -> tuple[RotaryEmbedding, TensorType]:
    op, x = node.op, node.inputs[0]
    assert isinstance(op, RotaryEmbedding)
    assert x is not None
    return op, x


KERNELS = (Pairs(),)
