"""Device kernels that an operator brings along as data, so that an op pack imports no device package."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from dovetail.errors import OperatorError
from dovetail.graph.dtype import DType
from dovetail.graph.types import TensorType

WorkSize = Callable[[Sequence[TensorType | None], Sequence[TensorType]], tuple[int, ...]]
"""Work size from input and output types: one to three positive numbers."""

SCALAR_TYPES = ("float", "int", "uint")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSource:
    """Base of kernels given as source text; `language` tells devices whether it is theirs."""

    language: ClassVar[str] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCLKernel(KernelSource):
    """An OpenCL C kernel (1.2). Its arguments are the inputs, then the outputs (`__global` pointers), then the scalars.

    `entry` is the kernel function, or a function for each data type of the first input (`{"float32": "hswish_f32"}`); a
    node of a data type that is not listed is refused. `scalars` are `(attribute, C type)` pairs in argument order, with the
    C types float, int and uint. `global_size` gives the NDRange; the default is one work item for each element of output 0.
    `local_size` None leaves the choice to the driver. `options` go to the compiler as they are.
    """

    language: ClassVar[str] = "opencl"

    source: str
    entry: str | Mapping[str, str]
    scalars: tuple[tuple[str, str], ...] = ()
    options: tuple[str, ...] = ()
    global_size: WorkSize | None = None
    local_size: tuple[int, ...] | None = None
    origin: str = field(default="<kernel source>")

    def __post_init__(self) -> None:
        for attribute, c_type in self.scalars:
            if c_type not in SCALAR_TYPES:
                raise OperatorError(
                    f"{self.origin}: scalar {attribute!r} has type {c_type!r}; accepted: {', '.join(SCALAR_TYPES)}"
                )

    def entry_for(self, dtype: DType) -> str | None:
        """The kernel function for a data type of the first input; None when there is none."""
        return self.entry if isinstance(self.entry, str) else self.entry.get(dtype.value)
