"""BatchNormalization of inference: oneDNN's batch normalisation."""

from dovetail.device import Reason, TypedNode
from dovetail_cpu_onednn.binding import INFERENCE, Arg, Flag
from dovetail_cpu_onednn.chain import attach
from dovetail_cpu_onednn.kernel import AnyLayoutKernel, Argument, Recipe, Refused, given
from dovetail_cpu_onednn.layouts import describe, plain
from dovetail_cpu_onednn.library import library
from dovetail_ops_onnx.batch_normalization import BatchNormalization


class BatchNorm(AnyLayoutKernel):
    """Scale and shift of each channel by given statistics."""

    name = "batch_normalization"

    def recipe(self, node: TypedNode, free: bool, shared: bool) -> Recipe:
        op, src = node.op, given(node, 0)
        if not isinstance(op, BatchNormalization):
            raise Refused(Reason.ATTRIBUTE, "the operator as it was before version 9")
        if op.training_mode or not 2 <= src.rank <= 5:
            raise Refused(Reason.ATTRIBUTE, f"training or {src}; accepted: inference, two to five dimensions")
        flags = Flag.USE_GLOBAL_STATS | Flag.USE_SCALE | Flag.USE_SHIFT
        desc, vector = describe(src), plain(src.dims[1:2])
        chain = attach(node, False, False, plain_relu=True)
        args = (INFERENCE, desc, desc, op.epsilon, flags)
        pd = library().describe("batch_normalization_forward", *args, attr=chain.attr)
        arguments = [Argument(Arg.SRC, "input", 0, desc), Argument(Arg.DST, "output", 0, desc)]
        for index, arg in enumerate((Arg.SCALE, Arg.SHIFT, Arg.MEAN, Arg.VARIANCE), 1):
            arguments.append(Argument(arg, "input", index, vector))
        return Recipe(chain.stages(pd, arguments, desc), chain.shared)


KERNELS = (BatchNorm(),)
