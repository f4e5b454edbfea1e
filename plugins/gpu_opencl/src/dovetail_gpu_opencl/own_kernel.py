"""Runs the OpenCL kernel that an operator brings along in its class (`OpenCLKernel`)."""

from collections.abc import Callable
from typing import Any

import numpy as np

from dovetail.device import OpenCLKernel, Reason, Refusal, TypedNode
from dovetail_gpu_opencl.kernel import CLKernel
from dovetail_gpu_opencl.launch import Argument, Launch, Read, Scalar, Write
from dovetail_gpu_opencl.source import C_TYPES

__all__ = ["OwnKernel"]

_NUMBERS: dict[str, Callable[[Any], np.generic]] = {"float": np.float32, "int": np.int32, "uint": np.uint32}


class OwnKernel(CLKernel):
    """The operator's own kernel: the first of its sources in OpenCL that has an entry for the data type."""

    name = "own"
    dtypes = frozenset(C_TYPES)
    has_epilogue = False
    from_operator = True

    def applies(self, node: TypedNode) -> Refusal | None:
        brought = any(isinstance(k, OpenCLKernel) for k in node.op.kernels)
        return None if brought else Refusal(Reason.OPERATOR, f"{node.op.key} brings no OpenCL kernel")

    def check(self, node: TypedNode) -> Refusal | None:
        first = node.inputs[0] if node.inputs else None
        if first is None or None in node.inputs:
            return Refusal(Reason.ATTRIBUTE, "an input is left out, and the operator's kernel takes all")
        if _source(node) is None:
            return Refusal(Reason.DTYPE, f"the operator's kernel has no entry for {first.dtype}")
        return None

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        source = _source(node)
        assert source is not None
        kernel, entry = source
        arguments: list[Argument] = [Read(name) for name in node.node.inputs]
        arguments += [Write(name) for name in node.node.writes]
        arguments += [Scalar(_NUMBERS[c_type](getattr(node.op, name))) for name, c_type in kernel.scalars]
        work, local = kernel.work_sizes(node.inputs, node.outputs)
        text = kernel.define_lines(node.op, node.inputs, node.outputs) + kernel.source
        return (Launch(kernel.origin, text, entry, tuple(arguments), work, local, kernel.options),)


def _source(node: TypedNode) -> tuple[OpenCLKernel, str] | None:
    first = node.inputs[0]
    assert first is not None
    for kernel in node.op.kernels:
        if isinstance(kernel, OpenCLKernel) and (entry := kernel.entry_for(first.dtype)) is not None:
            return kernel, entry
    return None
