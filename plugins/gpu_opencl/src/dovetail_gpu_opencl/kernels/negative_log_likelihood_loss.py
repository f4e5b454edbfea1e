"""NegativeLogLikelihoodLoss."""

import math

from dovetail.device import DType, Reason, Refusal, TypedNode
from dovetail_gpu_opencl.kernel import FLOATS, CLKernel, group_size, spread
from dovetail_gpu_opencl.launch import Argument, Fault, Launch, Null, Read, Write, ints
from dovetail_gpu_opencl.source import C_TYPES, accumulator, assemble, storage
from dovetail_ops_onnx.negative_log_likelihood_loss import NegativeLogLikelihoodLoss

__all__ = ["KERNELS"]


class Loss(CLKernel):
    """negative_log_likelihood_loss.cl: a work item a target, or one work group for the sum of all."""

    name = "negative_log_likelihood_loss"
    halves_by_load = True
    has_epilogue = False
    dtypes = FLOATS | {DType.INT32, DType.INT64}

    def check(self, node: TypedNode) -> Refusal | None:
        scores = node.given(0)
        return None if scores.size else Refusal(Reason.SHAPE, f"input is {scores}")

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        assert isinstance(node.op, NegativeLogLikelihoodLoss)
        scores, target = node.given(0), node.given(1)
        reduction, ignored = node.op.reduction, node.op.ignore_index
        group = 1 if self.caps.kind == "CPU" else group_size(self.caps, 256)
        defines = {
            **storage(scores.dtype),
            "ACC": accumulator(scores.dtype),
            "INDEX": C_TYPES[target.dtype],
            "IGNORED": False if ignored is None else f"({ignored})",
            "REDUCED": reduction != "none",
            "MEAN": reduction == "mean",
            "GROUP": group if reduction != "none" else 1,
        }
        names = node.node.inputs
        weight: Argument = Read(names[2]) if len(names) > 2 and names[2] else Null()
        classes = scores.dims[1]
        arguments: tuple[Argument, ...] = (
            Read(names[0]),
            Read(names[1]),
            weight,
            Write(node.node.outputs[0]),
            *ints(target.size, classes, math.prod(scores.dims[2:])),
            Fault(f"a target is not a class; accepted: 0 to {classes - 1}, or ignore_index"),
        )
        source = assemble(f"{self.name}.cl", defines)
        work, local = spread(target.size, self.caps) if reduction == "none" else ((group,), (group,))
        return (Launch(f"{self.name}.cl", source, self.name, arguments, work, local),)


KERNELS = (Loss(),)
