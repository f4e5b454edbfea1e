"""BatchNormalization of inference: oneDNN's batch normalisation, or its binary primitive."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.device import PLAIN, Reason, TypedNode
from dovetail_cpu_onednn.binding import INFERENCE, Arg, Flag, Stream
from dovetail_cpu_onednn.descriptors import describe, plain
from dovetail_cpu_onednn.kernel import AnyLayoutKernel, Argument, NodePlan, Refused, is_constant, value_argument, value_of
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.nan.fused_steps import has_no_nan
from dovetail_cpu_onednn.post_ops import BINARY, attach
from dovetail_ops_onnx.batch_normalization import BatchNormalization


class BatchNorm(AnyLayoutKernel):
    """Scale and shift of each channel by given statistics, and relu.

    oneDNN's relu here is either a maximum, which gives 0 for NaN (jit), or a product with 0 or 1, which gives NaN for minus
    infinity (others). NaN is looked for before the first, and after the second as for relu elsewhere: see `fused_steps`.
    """

    name = "batch_normalization"

    def is_guarded(self, node: TypedNode) -> bool:
        found = self._attempt(node, lambda n: self.plan(n, False, False)) if node.post_ops else None
        return isinstance(found, NodePlan) and "bnorm_jit" in found.name

    def safety(self, node: TypedNode, array: Callable[[str], NDArray[Any]], stream: Stream) -> Callable[[], bool]:
        """Whether the input holds no NaN. From anything else constants that `_are_regular` make none."""
        return has_no_nan(array(node.node.inputs[0]), stream)

    def plan(self, node: TypedNode, free: bool, shared: bool) -> NodePlan:
        op, src = node.op, node.given(0)
        if not isinstance(op, BatchNormalization):
            raise Refused(Reason.ATTRIBUTE, "the operator as it was before version 9")
        if op.training_mode or not 2 <= src.rank <= 5:
            raise Refused(Reason.ATTRIBUTE, f"training or {src}; accepted: inference, two to five dimensions")
        if node.post_ops and not _are_regular(node, op.epsilon):
            raise Refused(Reason.POST_OP, "parameters that are not constant, or of which oneDNN makes NaN or infinities")
        if src.layout == PLAIN and math.prod(src.dims[2:]) > 1 and all(is_constant(node, index) for index in range(1, 5)):
            return _by_channel(node, op.epsilon)
        flags = Flag.USE_GLOBAL_STATS | Flag.USE_SCALE | Flag.USE_SHIFT
        desc, vector = describe(src), plain(src.dims[1:2])
        chain = attach(node, False, False, plain_relu=True)
        args = (INFERENCE, desc, desc, op.epsilon, flags)
        pd = library().describe("batch_normalization_forward", *args, attr=chain.attr)
        arguments = [Argument(Arg.SRC, "input", 0, desc), Argument(Arg.DST, "output", 0, desc)]
        for index, arg in enumerate((Arg.SCALE, Arg.SHIFT, Arg.MEAN, Arg.VARIANCE), 1):
            arguments.append(Argument(arg, "input", index, vector))
        return NodePlan(chain.stages(pd, arguments, desc), chain.shared)


def _by_channel(node: TypedNode, epsilon: float) -> NodePlan:
    """Plain data less the mean, times a factor, plus the shift, in one binary primitive.

    For such data oneDNN's batch normalization has only an implementation that is not compiled: 64 channels of 56 x 56 take it
    197 us, and the binary primitive 21 (one thread).
    """
    lib, src = library(), node.given(0)
    scale, shift, mean, variance = (value_of(node.given(index).value).astype(np.float64) for index in range(1, 5))
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + epsilon)
    args = (Arg.SRC_1, Arg.post_op(0, Arg.SRC_1), Arg.post_op(1, Arg.SRC_1))
    shape = (1, src.dims[1], *(1,) * (src.rank - 2))
    numbers = [
        value_argument(arg, v.astype(np.float32).reshape(shape)) for arg, v in zip(args, (mean, factor, shift), strict=True)
    ]
    desc, vector = describe(src), numbers[0].desc
    chain = attach(node, False, False, before=[("binary", (BINARY["mul"], vector)), ("binary", (BINARY["add"], vector))])
    pd = lib.describe("binary", BINARY["sub"], desc, vector, desc, attr=chain.attr)
    arguments = (Argument(Arg.SRC, "input", 0, desc), Argument(Arg.DST, "output", 0, desc), *numbers)
    return NodePlan(chain.stages(pd, arguments, desc), chain.shared)


def _are_regular(node: TypedNode, epsilon: float) -> bool:
    """Whether the factor and the offset of each channel, as oneDNN computes them, are finite, and no factor is 0."""
    values = [node.given(index).value for index in range(1, 5)]
    if any(value is None for value in values):
        return False
    scale, shift, mean, variance = (np.asarray(value, np.float32) for value in values)
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + np.float32(epsilon))
        return bool(np.isfinite(factor).all() and factor.all() and np.isfinite(shift - mean * factor).all())


KERNELS = (BatchNorm(),)
