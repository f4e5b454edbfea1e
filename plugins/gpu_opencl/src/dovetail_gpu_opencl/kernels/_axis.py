"""Kernels along one axis of a tensor [outer][size][inner]."""

import math

from dovetail.dataclass import dataclass
from dovetail.device import DType
from dovetail_gpu_opencl.capabilities import Capabilities
from dovetail_gpu_opencl.kernel import group_size, spread
from dovetail_gpu_opencl.launch import Scalar, ints
from dovetail_gpu_opencl.source import C_TYPES, accumulator

__all__ = ["NUMBERS", "Lines", "value_type"]

NUMBERS = frozenset(C_TYPES) - {DType.BOOL}


def value_type(dtype: DType) -> str:
    """The C type that elements are compared and stored in: float for float16."""
    return accumulator(dtype) if dtype.is_float else C_TYPES[dtype]


@dataclass(frozen=True, slots=True)
class Lines:
    """`count` lines of `size` elements at a stride of `inner`; line l begins at l / inner * (size * inner) + l % inner."""

    count: int
    size: int
    inner: int

    @staticmethod
    def of(dims: tuple[int, ...], axis: int, *, to_end: bool = False) -> "Lines":
        """Along `axis` of `dims`, or along all axes from it on."""
        if not dims:
            return Lines(1, 1, 1)
        at = axis % len(dims)
        size = math.prod(dims[at:]) if to_end else dims[at]
        inner = 1 if to_end else math.prod(dims[at + 1 :])
        return Lines(math.prod(dims[:at]) * inner, size, inner)

    @property
    def arguments(self) -> tuple[Scalar, ...]:
        """lines, size, inner."""
        return ints(self.count, self.size, self.inner)

    def group(self, caps: Capabilities) -> int:
        """Work items for each line: one on CPUs, where lines are spread over the cores, and where lines are short."""
        if caps.kind == "CPU" or self.size < 64:
            return 1
        return group_size(caps, min(256, 1 << (self.size - 1).bit_length()))

    def work(self, caps: Capabilities, group: int = 1) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Global and local size for `group` work items a line."""
        return ((self.count * group,), (group,)) if group > 1 else spread(self.count, caps, 16)
