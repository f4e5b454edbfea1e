"""Context for writing one node: its operator, the values around it, and the layer that it becomes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.frontend import DType, FormatError, Graph, Node, TensorType, free_name, printable
from dovetail_frontend_pzkm.catalogue import CATALOGUE
from dovetail_frontend_pzkm.schema import Connect, DataLayout, Layer, Tensor
from dovetail_frontend_pzkm.schema import TensorType as Origin
from dovetail_frontend_pzkm.values import number_of, write_attributes, write_shape, write_weights

__all__ = ["Draft", "Tensors"]

_MAX_PORTS = 255


@dataclass
class Tensors:
    """The tensors of the file: values of the graph, and constants in the form that a layer wants."""

    graph: Graph
    found: dict[str, Tensor] = field(default_factory=dict)

    def id_of(self, name: str) -> int:
        """The tensor of a value. Raises `FormatError` for a type that a file cannot hold."""
        if name not in self.found:
            known = self.graph.types.get(name)
            if known is None or not known.is_static:
                raise FormatError(f"the shape of '{printable(name)}' is known only at run time")
            self._add(name, known.dtype, known.dims, self.graph.constants.get(name))
        return self.found[name].id

    def constant(self, name: str, array: NDArray[Any]) -> str:
        """Add a constant, under this name if no other value has it; returns its name."""
        taken = self.found.keys() if name in self.graph.constants else self.graph.types.keys() | self.found.keys()
        free = free_name(name, taken.__contains__)
        self._add(free, DType.of(array.dtype), array.shape, array)
        return free

    def value(self, name: str, tensor: TensorType) -> str:
        """Add a value that the graph does not have, under this name if no other has it; returns its name."""
        free = free_name(name, (self.graph.types.keys() | self.found.keys()).__contains__)
        self._add(free, tensor.dtype, tensor.dims, None)
        return free

    def _add(self, name: str, dtype: DType, shape: tuple[int, ...], array: NDArray[Any] | None) -> None:
        number = number_of(dtype)
        if number is None:
            raise FormatError(
                f"'{printable(name)}' is {dtype}", hint="accepted: int4 to int32, uint4 to uint32, bool, float16, float32"
            )
        layout = DataLayout.NCHW if len(shape) == 4 else DataLayout.ND
        weights = None if array is None else write_weights(array)
        origin = Origin.DYNAMIC if array is None else Origin.CONST
        self.found[name] = Tensor(len(self.found), name, origin, number, layout, write_shape(shape), weights)


@dataclass
class Draft:
    """One node being written."""

    tensors: Tensors
    node: Node

    @property
    def op(self) -> Any:
        """The operator, with its attributes."""
        return self.node.op

    def has(self, index: int) -> bool:
        """True when the input is there."""
        return index < len(self.node.inputs) and bool(self.node.inputs[index])

    def type(self, index: int) -> TensorType:
        """The type of an input, with its content if that is a constant. Raises `FormatError` when its shape is not known."""
        return self._known(self.node.inputs[index])

    def result(self, index: int = 0) -> TensorType:
        """The type of an output."""
        return self._known(self.node.outputs[index])

    def _known(self, name: str) -> TensorType:
        found = self.tensors.graph.types.get(name)
        if found is None or not found.is_static:
            raise FormatError(f"the shape of '{printable(name)}' is known only at run time")
        return found

    def constant(self, index: int) -> NDArray[Any]:
        """The content of an input. Raises `FormatError` unless it is a constant."""
        name = self.node.inputs[index]
        if name not in self.tensors.graph.constants:
            raise FormatError(f"its input '{printable(name)}' is computed; accepted: a constant")
        return self.tensors.graph.constants[name]

    def scalar(self, index: int) -> float:
        """The one number of a constant input."""
        return float(self.constant(index).reshape(()))

    def require(self, holds: object, reason: str) -> None:
        """Raise `FormatError` with the reason unless it holds."""
        if not holds:
            raise FormatError(reason)

    def layer(
        self, kind: str, inputs: Sequence[str] | None = None, attributes: Mapping[str, Any] | None = None, outputs: int = 1
    ) -> Layer:
        """The layer of this type that gives the node's outputs: `inputs` are names of values, those of the node by default."""
        self.require(len(self.node.writes) == outputs, f"it has {len(self.node.writes)} outputs; accepted: {outputs}")
        return self._layer(self.node.name, kind, self.node.inputs if inputs is None else inputs, attributes, self.node.writes)

    def part(
        self, role: str, kind: str, inputs: Sequence[str], attributes: Mapping[str, Any], outputs: Sequence[TensorType]
    ) -> tuple[Layer, list[str]]:
        """A layer before the one that gives the node's outputs, and the names of the values that it gives, of these types."""
        made = [self.tensors.value(f"{self.node.name}/{role}", t) for t in outputs]
        return self._layer(f"{self.node.name}/{role}", kind, inputs, attributes, made), made

    def _layer(
        self, name: str, kind: str, inputs: Sequence[str], attributes: Mapping[str, Any] | None, outputs: Sequence[str]
    ) -> Layer:
        names = [name for name in inputs if name]
        for what, count in (("inputs", len(names)), ("outputs", len(outputs))):
            self.require(count <= _MAX_PORTS, f"a {kind} would have {count} {what}; accepted: at most {_MAX_PORTS}")
        described = CATALOGUE[kind]
        ports = described.inputs or ([f"input{i}" for i in range(len(names))] if len(names) > 1 else ["input"])
        self.require(len(names) <= len(ports), f"a {kind} would have {len(names)} inputs; accepted: {', '.join(ports)}")
        # A layer may leave out trailing inputs.
        given = tuple(Connect(port, True, self.tensors.id_of(name)) for port, name in zip(ports, names, strict=False))
        made = tuple(Connect(described.output, True, self.tensors.id_of(name)) for name in outputs)
        stored = write_attributes(described, dict(attributes or {}))
        return Layer(0, name, kind, len(given), len(made), given, made, bool(described.attributes), stored)

    def ints(self, index: int) -> tuple[int, ...]:
        """A constant input of integers."""
        return tuple(int(n) for n in np.ravel(self.constant(index)))
