"""Which scale and zero point belong to an element: one for the tensor, for each place of an axis, or for blocks of an axis."""

import math
from collections.abc import Sequence
from typing import Any

from dovetail.dataclass import dataclass
from dovetail.device import PLAIN, DType, LayerConfig, TypedNode
from dovetail_gpu_opencl.capabilities import Capabilities
from dovetail_gpu_opencl.kernel import ceil_div, spread
from dovetail_gpu_opencl.launch import Argument, ints
from dovetail_gpu_opencl.narrow import NARROW

__all__ = ["REAL", "STORED", "Runs", "layouts_of"]

REAL = frozenset({DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16})
STORED = frozenset({DType.INT8, DType.UINT8, DType.INT16, DType.UINT16, *NARROW}) - {DType.BFLOAT16}


@dataclass(frozen=True, slots=True)
class Runs:
    """Contiguous elements that share their parameters, and the positions of these.

    `places` are inner, axis, block and three strides: element o has the parameters at
    o / (inner * axis) * outer_stride + o / inner % axis / block * block_stride + o % inner * inner_stride.
    """

    size: int
    length: int
    places: tuple[int, int, int, int, int, int]

    @staticmethod
    def of(node: TypedNode) -> "Runs":
        """The runs of a linear quantization's input."""
        x, scale = node.inputs[:2]
        assert x is not None
        assert scale is not None
        op: Any = node.op
        block: int = op.block_size
        if scale.rank == 0 or (scale.size == 1 and not block):
            return Runs(x.size, x.size, (1, 1, 1, 0, 0, 0))
        axis: int = op.axis % x.rank
        inner, size = math.prod(x.dims[axis + 1 :]), x.dims[axis]
        if block:
            length = min(block, size) if inner == 1 and size % block == 0 else 1
            return Runs(x.size, length, (inner, size, block, scale.dims[axis] * inner, inner, 1))
        return Runs(x.size, inner, (inner, size, 1, 0, 1, 0))

    @property
    def is_one(self) -> bool:
        """True when all elements share their parameters, so that their order does not matter."""
        return self.places[3:] == (0, 0, 0)

    def defines(self, caps: Capabilities) -> dict[str, object]:
        """RUN, whether runs of one element are taken one by one, and whether all elements share their parameters."""
        return {"RUN": self._run(caps), "ONE_BY_ONE": self.length == 1, "SHARED": self.is_one}

    def work(self, caps: Capabilities) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Global and local size."""
        if self.length == 1 or not self.size:
            return spread(self.size, caps)
        (work,), (local,) = spread(ceil_div(self.length, self._run(caps)), caps, 1 if caps.kind == "CPU" else 128)
        return (work, self.size // self.length), (local, 1)

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """Sizes and places as ints."""
        return ints(self.size, self.length, *self.places)

    def _run(self, caps: Capabilities) -> int:
        # Loops that drivers for CPUs turn into vectors; neighbouring items of a GPU read neighbouring elements.
        return 512 if caps.kind == "CPU" else 1


def layouts_of(node: TypedNode) -> Sequence[LayerConfig]:
    """Any layout, where one scale holds for all elements."""
    return (LayerConfig.elementwise(node) if Runs.of(node).is_one else LayerConfig.uniform(node, PLAIN),)
