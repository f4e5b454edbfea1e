"""BatchNormalization: elementwise, with one scale, B, mean and var for each channel; in training mode by the input's own."""

import math
from collections.abc import Sequence
from dataclasses import replace

from dovetail.device import NHWC, PLAIN, LayerConfig, Reason, Refusal, TensorType, TypedNode
from dovetail_gpu_opencl import post_ops
from dovetail_gpu_opencl.elementwise import Load, elementwise_launch, vector_width
from dovetail_gpu_opencl.kernel import CLKernel, group_size
from dovetail_gpu_opencl.launch import Argument, Launch, Null, Read, Write, ints
from dovetail_gpu_opencl.source import accumulator, assemble, literal, storage
from dovetail_ops_onnx.batch_normalization import BatchNormalization, BatchNormalization_7

__all__ = ["KERNELS"]


class Normalize(CLKernel):
    """(X - mean) / sqrt(var + epsilon) * scale + B."""

    name = "batch_normalization"
    halves_by_load = True

    def check(self, node: TypedNode) -> Refusal | None:
        if len(node.outputs) > 1 or _trains(node):
            return Refusal(Reason.ATTRIBUTE, "training_mode")
        return None

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        found, result = [LayerConfig.uniform(node, PLAIN)], node.outputs[0].dims
        if len(result) == 4 and all(node.given(index).rank == 1 for index in range(1, 5)):
            operands = tuple(NHWC if operand.dims == result else PLAIN for operand in node.operands)
            found.append(LayerConfig((NHWC, *(PLAIN,) * (len(node.inputs) - 1)), (NHWC,), operands))
        return found

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        innermost, node = node.outputs[0].layout == NHWC, post_ops.in_memory_order(node)
        assert isinstance(node.op, BatchNormalization | BatchNormalization_7)
        result = node.outputs[0]
        acc = accumulator(result.dtype)
        epsilon = literal(node.op.epsilon, acc)
        statement = f"const R s = (a - d) * (b / sqrt(e + {epsilon})) + c;"
        given = [t for t in node.inputs if t is not None]
        # The only axis of a parameter is the last one in memory then.
        types = [given[0].with_shape(result.dims), *given[1:]] if innermost else [_placed(t, node) for t in given]
        same = len({accumulator(t.dtype) for t in types}) == 1
        vec = vector_width(result, self.caps) if same else 1
        loads = [Load(Read(name), tensor) for name, tensor in zip(node.node.inputs, types, strict=True)]
        return (elementwise_launch(self.caps, node, loads, statement, vec),)


def _placed(given: TensorType, node: TypedNode) -> TensorType:
    """The type of a parameter such that it broadcasts to X; X itself unchanged."""
    rank = node.outputs[0].rank
    each_element = isinstance(node.op, BatchNormalization_7) and not node.op.spatial
    if given.rank == 1 and rank > 1 and not each_element:
        return replace(given, shape=(*given.dims, *(1,) * (rank - 2)))
    return given


class Train(CLKernel):
    """batch_normalization_training.cl: a work group a channel."""

    name = "batch_normalization_training"
    halves_by_load = True
    has_epilogue = False

    def check(self, node: TypedNode) -> Refusal | None:
        if not node.outputs[0].size:
            return Refusal(Reason.SHAPE, f"the statistics of {node.outputs[0]}")
        return None if _trains(node) else Refusal(Reason.ATTRIBUTE, "no training_mode")

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        assert isinstance(node.op, BatchNormalization)
        dst, scale, mean = node.outputs[0], node.given(1), node.given(3)
        acc = accumulator(dst.dtype)
        group = 1 if self.caps.kind == "CPU" else group_size(self.caps, 256)
        numbers = {"EPSILON": node.op.epsilon, "MOMENTUM": node.op.momentum}
        defines = {
            **storage(dst.dtype),
            **storage(scale.dtype, "P"),
            **storage(mean.dtype, "M"),
            "ACC": acc,
            **{name: literal(number, acc) for name, number in numbers.items()},
            "GROUP": group,
        }
        channels = dst.dims[1] if dst.rank > 1 else 1
        written = [Write(name) if name else Null() for name in (*node.node.outputs, *[""] * 4)[:5]]
        sizes = ints(channels, dst.size // channels, math.prod(dst.dims[2:]))
        arguments: tuple[Argument, ...] = (*(Read(name) for name in node.node.inputs), *written, *sizes)
        source = assemble(f"{self.name}.cl", defines)
        return (Launch(f"{self.name}.cl", source, self.name, arguments, (channels * group,), (group,)),)


def _trains(node: TypedNode) -> bool:
    return isinstance(node.op, BatchNormalization) and node.op.training_mode


KERNELS = (Normalize(), Train())
