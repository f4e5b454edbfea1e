"""Kernels that work on one row at a time: softmax and normalization along an axis."""

from dataclasses import dataclass

from dovetail_gpu_opencl.capabilities import Capabilities
from dovetail_gpu_opencl.kernel import group_size

__all__ = ["Rows"]


@dataclass(frozen=True, slots=True)
class Rows:
    """`count` rows of `size` elements; element i of row r lies at r / inner * (size * inner) + r % inner + i * inner."""

    count: int
    size: int
    inner: int = 1

    def defines(self, caps: Capabilities, c_type: str) -> dict[str, int]:
        """Sizes and tunables for results of a C type: one work item a row with vectors on CPUs, one work group a row on GPUs."""
        vec = caps.lanes(c_type) if caps.kind == "CPU" and self.inner == 1 else 1
        return {"SIZE": self.size, "INNER": self.inner, "GROUP": self.group(caps), "VEC": vec}

    def group(self, caps: Capabilities) -> int:
        """Work items for each row."""
        return 1 if caps.kind == "CPU" else group_size(caps, min(256, max(32, 1 << (self.size - 1).bit_length())))

    def work(self, caps: Capabilities) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Global and local size."""
        group = self.group(caps)
        return (self.count * group,), (group,)
