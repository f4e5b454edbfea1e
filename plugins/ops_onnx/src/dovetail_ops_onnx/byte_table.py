"""A function of one byte by its table. Only the pass `tabulate_bytes` makes such nodes; it is not in the standard."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.op import NHWC, PLAIN, AbstractOperator, HostConfig, HostKernel, KernelSource, Port, PortConfig, TensorType

__all__ = ["ByteTable"]

Array = NDArray[Any]
Types = Sequence[TensorType | None]
_BLOCK = 1 << 16
"""Bytes that are looked up at a time, so that they stay in the cache."""


class Translation(HostKernel):
    """By `bytes.translate`, 0.5 ns a byte; `numpy.take` makes indexes of 8 bytes first and takes 0.8."""

    def configurations(self, op: "ByteTable", inputs: Types, outputs: Types) -> Sequence[HostConfig]:
        x, table = inputs
        assert x is not None
        assert table is not None
        # Devices with blocked layouts have bytes in these only.
        layouts = [layout for layout in (NHWC, PLAIN) if layout.fits(x.rank)]
        ports = [tuple(PortConfig(dtype, layout) for dtype in (x.dtype, table.dtype)) for layout in layouts]
        return [HostConfig((read, PortConfig(table.dtype)), (written,)) for read, written in ports]

    def execute(self, op: "ByteTable", config: HostConfig, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        self.bind(op, config, inputs, outputs)()

    def bind(self, op: "ByteTable", config: HostConfig, inputs: Sequence[Any], outputs: Sequence[Any]) -> Callable[[], object]:
        table = inputs[1].tobytes()
        source, result = (array.reshape(-1).view(np.uint8) for array in (inputs[0], outputs[0]))

        def run() -> None:
            for first in range(0, len(source), _BLOCK):
                found = source[first : first + _BLOCK].tobytes().translate(table)
                result[first : first + _BLOCK] = np.frombuffer(found, np.uint8)

        return run


@dataclass(frozen=True, eq=False)
class ByteTable(AbstractOperator):
    """Y = Table[X], for each element of X the element of Table [256] whose index has the same bits; all are int8 or uint8."""

    domain: ClassVar[str] = "dovetail"
    op_type: ClassVar[str] = "ByteTable"
    stem: ClassVar[str] = "byte_table"
    inputs: ClassVar[tuple[Port, ...]] = (Port("X"), Port("Table"))
    outputs: ClassVar[tuple[Port, ...]] = (Port("Y"),)
    kernels: ClassVar[tuple[KernelSource, ...]] = (Translation(),)
    propagates_nan = True

    def infer(self, X: TensorType, Table: TensorType) -> TensorType:
        """X's shape with Table's data type."""
        return X.with_shape(X.shape).with_dtype(Table.dtype)

    def reference(self, X: Array, Table: Array) -> Array:
        """The elements of the table."""
        return Table[X.view(np.uint8)]

    def flops(self, inputs: Types, outputs: Sequence[TensorType]) -> int:
        """None: bytes are looked up."""
        return 0
