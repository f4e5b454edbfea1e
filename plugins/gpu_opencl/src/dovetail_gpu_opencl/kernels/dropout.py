"""Dropout at inference with its mask; without it, it is a view."""

import math

import numpy as np

from dovetail.device import Reason, Refusal, TypedNode
from dovetail_gpu_opencl.kernels._copy import Move, MoveKernel
from dovetail_gpu_opencl.launch import Constant, Launch

__all__ = ["KERNELS"]


class WithMask(MoveKernel):
    """A copy, and ones."""

    only_moves = False

    def check(self, node: TypedNode) -> Refusal | None:
        training = node.inputs[2] if len(node.inputs) > 2 else None
        drops = training is not None and (training.value is None or bool(training.value.any()))
        return Refusal(Reason.ATTRIBUTE, "training_mode") if drops else None

    def moves(self, node: TypedNode) -> list[Move]:
        size = (math.prod(node.outputs[0].dims),)
        return [Move(node.node.inputs[0], node.node.outputs[0], size, (1,), (1,))] if node.node.outputs[0] else []

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        mask = node.outputs[-1]
        ones = Move(Constant(np.ones(1, mask.dtype.numpy)), node.node.outputs[1], (mask.size,), (0,), (1,))
        return (*super().launches(node), ones.launch(mask.dtype.itemsize, self.caps))


KERNELS = (WithMask(),)
