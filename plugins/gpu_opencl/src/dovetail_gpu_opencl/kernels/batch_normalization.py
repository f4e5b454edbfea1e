"""BatchNormalization for inference: elementwise, with one scale, B, mean and var for each channel."""

from dovetail.device import Reason, Refusal, TensorType, TypedNode
from dovetail_gpu_opencl.elementwise import elementwise_launch, vector_width
from dovetail_gpu_opencl.kernel import CLKernel
from dovetail_gpu_opencl.launch import Launch
from dovetail_gpu_opencl.source import accumulator, literal

__all__ = ["KERNELS"]


class Normalize(CLKernel):
    """(X - mean) / sqrt(var + epsilon) * scale + B."""

    name = "batch_normalization"
    half_by_load = True

    def check(self, node: TypedNode) -> Refusal | None:
        if len(node.outputs) > 1 or getattr(node.op, "training_mode", False):
            return Refusal(Reason.ATTRIBUTE, "training_mode")
        if len({t.dtype for t in node.inputs if t is not None}) > 1:
            return Refusal(Reason.DTYPE, "inputs of different types")
        return None

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        result = node.outputs[0]
        acc = accumulator(result.dtype)
        epsilon = literal(node.op.epsilon, acc)  # type: ignore[attr-defined]  # a BatchNormalization operator
        statement = f"const R s = (a - d) * (b / sqrt(e + {epsilon})) + c;"
        types = [_placed(t, node) for t in node.inputs if t is not None]
        vec = vector_width(result, self.caps)
        return (elementwise_launch(self.caps, node, node.node.inputs, types, statement, vec),)


def _placed(given: TensorType, node: TypedNode) -> TensorType:
    """The type of a parameter such that it broadcasts to X; X itself unchanged."""
    rank = node.outputs[0].rank
    if given.rank == 1 and rank > 1 and getattr(node.op, "spatial", True):
        return given.with_shape((*given.dims, *(1,) * (rank - 2)))
    return given


KERNELS = (Normalize(),)
