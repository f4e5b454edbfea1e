"""The kernels of this package by operator, and by the names by which merged operators refer to them, also in stored plans."""

from dovetail.device import AbstractOperator, KernelTable
from dovetail.errors import CompileError
from dovetail_gpu_opencl.elementwise import Chain
from dovetail_gpu_opencl.kernel import CLKernel

__all__ = ["TABLE", "listed", "named"]

TABLE: KernelTable[CLKernel] = KernelTable(
    "dovetail_gpu_opencl.kernels", ("dovetail", "dovetail_ops_onnx", "dovetail_gpu_opencl")
)
_CHAIN = Chain()


def listed(op: AbstractOperator) -> tuple[CLKernel, ...]:
    """The kernels for an operator, in the order in which they are asked, bound to no device."""
    return (*TABLE[op], _CHAIN)


def named(name: str, op: AbstractOperator, asking: CLKernel) -> CLKernel:
    """The kernel of this name for an operator, bound as the kernel that asks. Raises `CompileError` where there is none."""
    found = next((kernel for kernel in listed(op) if kernel.name == name), None)
    if found is None:
        raise CompileError(f"{op.key} has no kernel {name!r}", hint="export the plan again with this version")
    return found.on(asking.caps, asking.packed)
