"""Clip of integers, and by limits that are known at run time only; other floating-point numbers are a chain of post-ops."""

import numpy as np

from dovetail.device import DType, Reason, Refusal, TypedNode
from dovetail_gpu_opencl import post_ops
from dovetail_gpu_opencl.elementwise import Load, as_chain, elementwise_launch
from dovetail_gpu_opencl.kernel import CLKernel
from dovetail_gpu_opencl.kernels._axis import NUMBERS
from dovetail_gpu_opencl.launch import Launch, Read
from dovetail_gpu_opencl.source import accumulator, literal

__all__ = ["KERNELS"]


class Clip(CLKernel):
    """min(max(x, low), high); NaN stays NaN. Limits left out are the finite range of the type."""

    name = "clip"
    elementwise = True
    halves_by_load = True
    dtypes = NUMBERS

    def check(self, node: TypedNode) -> Refusal | None:
        return post_ops.check(node) if as_chain(node) is None else Refusal(Reason.OPERATOR, "a chain of post-ops")

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        loads = [Load(Read(name), t) for name, t in zip(node.node.inputs, node.inputs, strict=True) if t is not None]
        low, high = (len(node.inputs) > i and node.inputs[i] is not None for i in (1, 2))
        steps = ["A s = a;"]
        bounds = _finite(node.outputs[0].dtype)
        for given, sign, bound, letter in ((low, "<", bounds[0], "b"), (high, ">", bounds[1], "c" if low else "b")):
            limit = f"(A){letter}" if given else bound
            steps += [f"s = s {sign} {limit} ? {limit} : s;"] if limit else []
        return (elementwise_launch(self.caps, node, loads, " ".join(steps), 1),)


def _finite(dtype: DType) -> tuple[str, str]:
    """C literals of the lowest and highest finite number; empty for integers, which have no others."""
    if not dtype.is_float:
        return "", ""
    # np.finfo does not know bfloat16: 8 bits of precision, the exponents of float32.
    largest = float.fromhex("0x1.fep127") if dtype is DType.BFLOAT16 else float(np.finfo(dtype.numpy).max)
    return literal(-largest, accumulator(dtype)), literal(largest, accumulator(dtype))


KERNELS = (Clip(),)
