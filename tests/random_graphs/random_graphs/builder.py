"""The state of a graph while it is made, and the table of makers: one function makes a node of one operator."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import NodeProto, helper

from random_graphs.data import dtypes_of, random_array, random_shape

__all__ = ["MAKERS", "Builder", "Draft", "makes"]

Shape = Sequence[int]


@dataclass
class Draft:
    """A node to try: its inputs by name ("" for one left out), attributes for any version, and the number of outputs."""

    inputs: list[str]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1


Maker = Callable[["Builder"], Draft | None]
MAKERS: dict[str, Maker] = {}


def makes(*op_types: str) -> Callable[[Maker], Maker]:
    """Register a function that drafts a node of these operators; it returns None where it finds no values that fit."""

    def register(function: Maker) -> Maker:
        MAKERS.update(dict.fromkeys(op_types, function))
        return function

    return register


class Builder:
    """A graph in the making. `op` is the operator that is drafted, `schema` its definition in the graph's operator set.

    `least` is the least size of images.
    """

    least = 4

    def __init__(self, rng: np.random.Generator, opset: int) -> None:
        self.rng = rng
        self.opset = opset
        self.values: dict[str, NDArray[Any]] = {}
        self.inputs: dict[str, NDArray[Any]] = {}
        self.constants: dict[str, NDArray[Any]] = {}
        self.nodes: list[NodeProto] = []
        self.op = ""

    @property
    def schema(self) -> onnx.defs.OpSchema:
        """The definition of the operator that is drafted."""
        return onnx.defs.get_schema(self.op, self.opset)

    @property
    def version(self) -> int:
        """The version of the operator that is drafted."""
        return int(self.schema.since_version)

    def types(self, port: int = 0, *, output: bool = False) -> tuple[np.dtype[Any], ...]:
        """The data types that the schema allows for an input or output."""
        formals = self.schema.outputs if output else self.schema.inputs
        return dtypes_of(sorted(formals[min(port, len(formals) - 1)].types))

    def has(self, attribute: str) -> bool:
        """Whether the version has this attribute."""
        return attribute in self.schema.attributes

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def integer(self, low: int, high: int) -> int:
        """An integer from low to high, both included."""
        return int(self.rng.integers(low, high + 1))

    def one(self, choices: Sequence[Any]) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def constant(self, array: Any, dtype: Any = None) -> str:
        """A new constant."""
        return self._define(self.constants, np.asarray(array, dtype))

    def data(self, array: Any, dtype: Any = None) -> str:
        """A new value: a constant or an input of the graph."""
        return self._define(self.constants if self.chance(0.4) else self.inputs, np.asarray(array, dtype))

    def fresh(self, dtype: np.dtype[Any], shape: Shape, *, special: float = 0.2) -> str:
        """A new value with random content."""
        return self.data(random_array(self.rng, dtype, shape, special=special))

    def value(
        self,
        types: Sequence[np.dtype[Any]],
        ranks: Sequence[int] = (0, 1, 2, 3, 4),
        *,
        fits: Callable[[NDArray[Any]], bool] = lambda _: True,
        shape: Callable[[int], Shape] | None = None,
    ) -> str:
        """A value that is present, or a new one of a random shape (`shape(rank)`), of one of these types and ranks.

        `fits` limits which of those that are there are taken.
        """
        found = [n for n, a in self.values.items() if a.dtype in types and a.ndim in ranks and fits(a)]
        if found and self.chance(0.85):
            return str(found[-1 - int(self.rng.integers(min(len(found), 8)))])
        rank = int(self.one(ranks))
        return self.fresh(self.one(types), random_shape(self.rng, rank) if shape is None else shape(rank))

    def like(self, name: str, shape: Shape | None = None) -> str:
        """A value of the type of `name`, of the given shape or the same."""
        array = self.values[name]
        wanted = tuple(array.shape if shape is None else shape)
        found = [n for n, a in self.values.items() if a.dtype == array.dtype and a.shape == wanted and n != name]
        return self.one(found) if found and self.chance(0.5) else self.fresh(array.dtype, wanted)

    def array(self, name: str) -> NDArray[Any]:
        return self.values[name]

    def axis(self, rank: int) -> int:
        """An axis, from either end."""
        return self.integer(-rank, rank - 1) if self.version >= 11 else self.integer(0, rank - 1)

    def node(self, draft: Draft) -> NodeProto:
        """The draft as a node; attributes that this version lacks are left out."""
        known = {k: v for k, v in draft.attributes.items() if self.has(k) and v is not None}
        number = len(self.nodes)
        outputs = [f"v{number}" if draft.outputs == 1 else f"v{number}_{i}" for i in range(draft.outputs)]
        if (optional := self._optional_outputs(draft.outputs)) and self.chance(0.2):
            outputs[self.one(optional)] = ""
        inputs = list(draft.inputs)
        while inputs and not inputs[-1]:
            inputs.pop()
        return helper.make_node(self.op, inputs, outputs, name=f"{self.op}_{number}", **known)

    def _optional_outputs(self, count: int) -> list[int]:
        """Those of several outputs that may be left out; not for onnxruntime's BatchNormalization, which ends the process."""
        if count == 1 or self.op == "BatchNormalization":
            return []
        formals, option = self.schema.outputs, onnx.defs.OpSchema.FormalParameterOption.Optional
        return [i for i in range(count) if formals[min(i, len(formals) - 1)].option == option]

    def _define(self, where: dict[str, NDArray[Any]], array: NDArray[Any]) -> str:
        name = f"{'c' if where is self.constants else 'x'}{len(self.inputs) + len(self.constants)}"
        where[name] = self.values[name] = array
        return name
