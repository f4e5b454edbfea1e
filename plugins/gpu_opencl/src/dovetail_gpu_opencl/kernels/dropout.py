"""Dropout at inference with its mask; without it, it is a view."""

import math

import numpy as np

from dovetail.device import Reason, Refusal, TypedNode
from dovetail_gpu_opencl.kernel import spread
from dovetail_gpu_opencl.kernels._copy import WORDS, Move, MoveKernel
from dovetail_gpu_opencl.launch import Constant, Launch, Write
from dovetail_gpu_opencl.source import assemble

__all__ = ["KERNELS"]


class WithMask(MoveKernel):
    """A copy, and ones."""

    def check(self, node: TypedNode) -> Refusal | None:
        training = node.inputs[2] if len(node.inputs) > 2 else None
        drops = training is not None and (training.value is None or bool(training.value.any()))
        return Refusal(Reason.ATTRIBUTE, "training_mode") if drops else None

    def moves(self, node: TypedNode) -> list[Move]:
        size = (math.prod(node.outputs[0].dims),)
        return [Move(node.node.inputs[0], node.node.outputs[0], size, (1,), (1,))] if node.node.outputs[0] else []

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        mask = node.outputs[-1]
        defines = {"T": WORDS[mask.dtype.itemsize], "SIZE": mask.size, "SRC(o)": "0", "DST(o)": "(o)"}
        one = Constant(np.ones(1, mask.dtype.numpy))
        work, local = spread(mask.size, self.caps)
        ones = Launch("copy.cl", assemble("copy.cl", defines), "copy", (one, Write(node.node.outputs[1])), work, local)
        return (*super().launches(node), ones)


KERNELS = (WithMask(),)
