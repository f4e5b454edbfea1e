"""Collects the nodes and constants of one graph, under names that are unique in the whole model."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dovetail.frontend import DType, Graph, Node, TensorType, UnboundOperator, as_constant, unique_name
from dovetail_frontend_openvino.indices import MOST, computed, is_arithmetic

__all__ = ["ONNX_VERSION", "Emitter", "Names"]

ONNX_VERSION = 24
"""The operator set of ONNX in whose terms operations are expressed."""


class Names:
    """Names that are taken: of nodes, and of values."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._counts: dict[str, int] = {}

    def unique(self, wanted: str) -> str:
        """`wanted`, or with a number behind it; taken from now on."""
        return unique_name(wanted, self._taken, self._counts)


class Emitter:
    """One graph in the making. `nodes_named` and `values` are shared by all graphs of a model."""

    def __init__(self, node_names: Names, values: Names) -> None:
        self.node_names = node_names
        self.values = values
        self.nodes: list[Node] = []
        self.inputs: list[str] = []
        self.constants: dict[str, NDArray[Any]] = {}
        self.types: dict[str, TensorType] = {}
        self.casts: dict[str, tuple[str, DType]] = {}
        self.computed: dict[str, NDArray[Any]] = {}

    def inside(self) -> "Emitter":
        """The emitter of a sub-graph, which may read constants of this one by name."""
        inner = Emitter(self.node_names, self.values)
        inner.casts = dict(self.casts)
        inner.computed = dict(self.computed)
        inner._outer = self
        return inner

    _outer: "Emitter | None" = None

    def input(self, wanted: str, tensor: TensorType) -> str:
        """Declare a graph input."""
        name = self.values.unique(wanted)
        self.inputs.append(name)
        self.types[name] = tensor
        return name

    def constant(self, array: ArrayLike, wanted: str = "constant") -> str:
        """A new constant."""
        name = self.values.unique(wanted)
        self.constants[name] = as_constant(np.asarray(array))
        self.types[name] = TensorType.of(self.constants[name], known=True)
        return name

    def known(self, name: str, most: int | None = None) -> NDArray[Any] | None:
        """Known facts about a value of this graph or one around it: constants, also behind conversions, and a few
        numbers that are computed from such. Else None, and for more than `most` elements.
        """
        found = self.constants.get(name, self.computed.get(name))
        if found is not None:
            return found if most is None or found.size <= most else None
        if name in self.casts:
            source, dtype = self.casts[name]
            array = self.known(source, most)
            return None if array is None else array.astype(dtype.numpy)
        return self._outer.known(name, most) if self._outer is not None else None

    def node(self, op: UnboundOperator, inputs: tuple[str, ...], outputs: int, layer: str) -> tuple[str, ...]:
        """Add a node for a layer; returns the names of its outputs."""
        name = self.node_names.unique(f"{layer}/{op.op_type}")
        written = tuple(self.values.unique(name if i == 0 else f"{name}:{i}") for i in range(outputs))
        self.nodes.append(Node(name, op, inputs, written, (), (name,)))
        if outputs == 1 and is_arithmetic(op):
            few = [array for name in inputs if (array := self.known(name, MOST)) is not None]
            result = computed(op, few) if len(few) == len(inputs) else None
            if result is not None:
                self.computed[written[0]] = result
        return written

    def graph(self, outputs: tuple[str, ...], name: str) -> Graph:
        """The graph so far."""
        return Graph(tuple(self.nodes), tuple(self.inputs), outputs, self.constants, self.types, name)
