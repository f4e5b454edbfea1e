"""Values that depend on how long caches are, computed while a model runs. Only the pass hold_caches makes such nodes."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.errors import DataDependentShape
from dovetail.op import AbstractOperator, HostConfig, HostKernel, KernelSource, OperatorError, Port, TensorType

__all__ = ["ByLength"]

Array = NDArray[Any]
Types = Sequence[TensorType | None]


class InOrder(HostKernel):
    """Runs the nodes one after the other: they are few, and their values are small."""

    def configurations(self, op: "ByLength", inputs: Types, outputs: Types) -> Sequence[HostConfig]:
        return (HostConfig.uniform(inputs, outputs),)

    def execute(self, op: "ByLength", config: HostConfig, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        op.write(inputs, outputs)


@dataclass(frozen=True, eq=False)
class ByLength(AbstractOperator):
    """The results of `nodes` for caches of which fewer than all `room` rows are in use.

    Inputs: the rows in use of each text [batch], all the same, and constants, the values of `names`. `grown` are those of them
    that are shapes, with the places of sizes that are smaller by the rows not in use. Outputs: the values of `results`, each with
    the axes that are shorter by as much; along these it has zeros in front.
    """

    domain: ClassVar[str] = "dovetail"
    op_type: ClassVar[str] = "ByLength"
    stem: ClassVar[str] = "by_length"
    inputs: ClassVar[tuple[Port, ...]] = (Port("lengths"), Port("values", variadic=True))
    outputs: ClassVar[tuple[Port, ...]] = (Port("results", variadic=True),)
    kernels: ClassVar[tuple[KernelSource, ...]] = (InOrder(),)

    nodes: tuple[Any, ...]
    names: tuple[str, ...]
    grown: Mapping[str, Sequence[int]]
    results: Mapping[str, Sequence[int]]
    room: int

    def infer(self, lengths: TensorType, *values: TensorType) -> tuple[TensorType, ...]:
        """The types for caches in full use. Raises `DataDependentShape` unless all values but the lengths are constants.

        They are computed for caches of one row: a model may have fewer positions than its caches have room.
        """
        known = {name: one.value for name, one in zip(self.names, values, strict=True)}
        if any(value is None for value in known.values()):
            raise DataDependentShape("what is computed from the length of caches depends on data, too")
        unused = min(int(known[name][at]) for name, places in self.grown.items() for at in places) - 1  # type: ignore[index]
        return tuple(
            TensorType.of(one).with_shape(tuple(size + unused * (axis in axes) for axis, size in enumerate(one.shape)))
            for one, axes in zip(self._computed(unused, known), self.results.values(), strict=True)
        )

    def reference(self, lengths: Array, *values: Array) -> tuple[Array, ...]:
        """Raises `OperatorError` for texts of different lengths."""
        types = self.infer(TensorType.of(lengths), *(TensorType.of(one, known=True) for one in values))
        outputs = tuple(np.empty(one.dims, one.dtype.numpy) for one in types)
        self.write((lengths, *values), outputs)
        return outputs

    def write(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """As `reference`, into these arrays."""
        lengths, *values = inputs
        length = int(lengths[0])
        if np.any(lengths != length):
            raise OperatorError(
                f"the texts have {lengths.tolist()} tokens; accepted: equal numbers, because the model counts them by its caches"
            )
        found = self._computed(self.room - length, dict(zip(self.names, values, strict=True)))
        for result, output in zip(found, outputs, strict=True):
            if result.shape != output.shape:
                output[...] = 0
            output[tuple(slice(full - size, None) for full, size in zip(output.shape, result.shape, strict=True))] = result

    def _computed(self, unused: int, given: Mapping[str, Any]) -> list[Array]:
        values = dict(given)
        for name, places in self.grown.items():
            values[name] = values[name].copy()
            values[name][list(places)] -= unused
        with np.errstate(all="ignore"):
            for node in self.nodes:
                results = node.op.reference(*(values[name] if name else None for name in node.inputs))
                results = results if isinstance(results, tuple) else (results,)
                values.update((name, np.asarray(one)) for name, one in zip(node.outputs, results, strict=False) if name)
        return [values[name] for name in self.results]
