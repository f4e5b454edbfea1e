"""Nodes, graphs and models: immutable; a pass builds new ones."""

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dovetail._names import printable
from dovetail.errors import UsageError, did_you_mean
from dovetail.graph.post_ops import Eltwise, PostOp, PostOps
from dovetail.graph.types import Dim, TensorType, as_constant

if TYPE_CHECKING:
    from dovetail.op import Operator

__all__ = ["Graph", "Model", "Node"]


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One application of an operator. Values are named by strings; `""` is an optional input or output left out.

    `origins` are the names of the model's nodes that this one stands for, its own among them; reports use it.
    """

    name: str
    op: "Operator"
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    post_ops: tuple[PostOp, ...] = ()
    origins: tuple[str, ...] = ()

    @property
    def operands(self) -> tuple[str, ...]:
        """The values that post-ops read, in chain order."""
        return tuple(p.operand for p in self.post_ops if not isinstance(p, Eltwise)) if self.post_ops else ()

    @property
    def reads(self) -> tuple[str, ...]:
        """Every value this node depends on: present inputs, post-op operands, and what its sub-graphs take from outside."""
        captured = [name for graph in self.op.subgraphs for name in graph.captures]
        return (*filter(None, self.inputs), *self.operands, *captured)

    @property
    def writes(self) -> tuple[str, ...]:
        """The outputs that are present."""
        return tuple(filter(None, self.outputs))

    def __str__(self) -> str:
        return f"'{printable(self.name)}' ({printable(self.op.key)})"


@dataclass(frozen=True, eq=False)
class Graph:
    """Nodes with the values between them.

    `types` holds declared or inferred types; every input and constant has one. `constants` are read-only arrays.
    Nodes may stand in any order until `passes.schedule` has sorted them.
    """

    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    types: Mapping[str, TensorType] = field(default_factory=dict)
    name: str = "graph"

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}  # without the cached maps

    def replace(self, **changes: Any) -> "Graph":
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    @functools.cached_property
    def producers(self) -> Mapping[str, Node]:
        """Value name -> the node that writes it."""
        return MappingProxyType({name: node for node in self.nodes for name in node.writes})

    @functools.cached_property
    def consumers(self) -> Mapping[str, tuple[Node, ...]]:
        """Value name -> the nodes that read it, each once, in node order. Graph outputs do not count."""
        found: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(node.reads):
                found.setdefault(name, []).append(node)
        return MappingProxyType({name: tuple(nodes) for name, nodes in found.items()})

    @functools.cached_property
    def output_names(self) -> frozenset[str]:
        """The outputs, to ask whether a value is among them."""
        return frozenset(self.outputs)

    @functools.cached_property
    def captures(self) -> tuple[str, ...]:
        """The values that a sub-graph reads from the graph around it, in order of first use."""
        own = {*self.inputs, *self.constants, *self.producers}
        wanted = [*(name for node in self.nodes for name in node.reads), *self.outputs]
        return tuple(dict.fromkeys(name for name in wanted if name not in own))

    def type_of(self, name: str) -> TensorType | None:
        """The type of a value, with the content of a constant; None for `""`. Raises `KeyError` when it is not known."""
        return self.types[name] if name else None


@dataclass(frozen=True, eq=False)
class Model:
    """What a frontend returns: a graph whose operators are named but not yet looked up, and where it came from.

    `opsets` maps each operator domain to the version the model was written for. `source` is the path or `<bytes>`.
    """

    graph: Graph
    opsets: Mapping[str, int] = field(default_factory=dict)
    source: str = "<memory>"
    format: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def inputs(self) -> Mapping[str, TensorType]:
        """Input name -> declared type, in order."""
        return {name: self.graph.types[name] for name in self.graph.inputs}

    @property
    def outputs(self) -> tuple[str, ...]:
        """Output names, in order."""
        return self.graph.outputs

    def reshape(self, shapes: Mapping[str, Sequence[Dim]]) -> "Model":
        """A copy whose inputs have other shapes: input name -> dimensions (a number, a symbol, or None).

        Raises `UsageError` for an unknown input or a rank that differs from the declared one.
        """
        checked = {name: _checked_shape(self, name, shape) for name, shape in shapes.items()}
        given = {name: self.graph.types[name].with_shape(shape) for name, shape in checked.items()}
        return dataclasses.replace(self, graph=self.graph.replace(types=types_with_inputs(self.graph, given)))

    def with_post_ops(
        self, node: str, post_ops: Iterable[PostOp], constants: Mapping[str, ArrayLike] = MappingProxyType({})
    ) -> "Model":
        """A copy in which the node of this name applies a chain (a `PostOps`, which is copied) to its output 0 before storing it.

        A chain that the node has already goes before. Operands are names of values of the model, or of `constants`, which are
        added to it. A device that does not take the whole chain into its kernel runs the rest as nodes; the report says why.

        Raises `UsageError` for an unknown node or operand, a name that is taken, and more than 32 post-ops.
        """
        found = next((one for one in self.graph.nodes if one.name == node), None)
        if found is None:
            raise UsageError(f"{self.source} has no node {node!r}", hint=did_you_mean(node, [n.name for n in self.graph.nodes]))
        changed = dataclasses.replace(found, post_ops=PostOps.copied((*found.post_ops, *post_ops)))
        added = {name: as_constant(np.array(value)) for name, value in constants.items()}
        _check_operands(self, changed, added)
        graph = self.graph.replace(
            nodes=tuple(changed if one is found else one for one in self.graph.nodes),
            constants={**self.graph.constants, **added},
            types={**self.graph.types, **{name: TensorType.of(array, known=True) for name, array in added.items()}},
        )
        return dataclasses.replace(self, graph=graph)


def _check_operands(model: Model, node: Node, added: Iterable[str]) -> None:
    values = {*model.graph.inputs, *model.graph.constants, *model.graph.producers}
    for name in added:
        if name in values:
            raise UsageError(f"{model.source} has a value {name!r} already", hint="name the constant otherwise")
    known = {*values, *added}
    for name in node.operands:
        if name not in known:
            raise UsageError(
                f"a post-op of node {node} reads {name!r}, which {model.source} does not have", hint=did_you_mean(name, known)
            )


def types_with_inputs(graph: Graph, given: Mapping[str, TensorType]) -> dict[str, TensorType]:
    """The graph's types with others for some inputs.

    Where a symbol of a declared shape becomes a size, it does so in what is declared for all values. Where a number becomes
    another one, what is declared for values that are neither inputs nor constants is forgotten: it was for other shapes.
    """
    pairs = [p for name, t in given.items() for p in zip(graph.types[name].shape or (), t.shape or (), strict=False)]
    stale = any(isinstance(declared, int) and declared != size for declared, size in pairs)
    sizes = {declared: size for declared, size in pairs if isinstance(declared, str)}
    kept = {*graph.inputs, *graph.constants} if stale else graph.types.keys()
    types = {name: _sized(t, sizes) if sizes else t for name, t in graph.types.items() if name in kept}
    return types | dict(given)


def _sized(tensor: TensorType, sizes: Mapping[str, Dim]) -> TensorType:
    shape = tensor.shape if isinstance(tensor, TensorType) else None
    if shape is None or not any(isinstance(d, str) and d in sizes for d in shape):
        return tensor
    return tensor.with_shape(tuple(sizes.get(d, d) if isinstance(d, str) else d for d in shape))


def _checked_shape(model: Model, name: str, shape: Iterable[Dim]) -> tuple[Dim, ...]:
    if name not in model.graph.inputs:
        raise UsageError(f"{model.source} has no input {name!r}", hint=did_you_mean(name, model.graph.inputs))
    declared, wanted = model.graph.types[name].shape, tuple(shape)
    if declared is not None and len(declared) != len(wanted):
        raise UsageError(f"input {name!r} of {model.source} has rank {len(declared)}; {wanted} has rank {len(wanted)}")
    if any(isinstance(d, int) and d < 0 for d in wanted):
        raise UsageError(f"input {name!r} of {model.source}: a dimension of {wanted} is negative")
    return wanted
