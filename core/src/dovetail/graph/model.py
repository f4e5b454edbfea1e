"""A model: the graph that a frontend read, with where it came from."""

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from dovetail.dataclass import dataclass, field
from dovetail.errors import UsageError, did_you_mean
from dovetail.graph.graph import Graph, Node
from dovetail.graph.post_ops import PostOp, PostOps
from dovetail.graph.rewriting import with_constants
from dovetail.graph.source import FileRead
from dovetail.graph.types import ANONYMOUS, CONTAINERS, Dim, TensorType, as_constant
from dovetail.html_table import html_table
from dovetail.names import printable

if TYPE_CHECKING:
    from dovetail.graph.growth import Growth

__all__ = ["Model", "specialised"]


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """Result of a frontend: a graph whose operators are named but not yet looked up, and where it came from.

    `opsets` maps each operator domain to the version the model was written for. `source` is the path or `<bytes>`.
    `overridable` has constants of the graph that a run may replace by an input of that name, with the types declared for them.
    `growth` says how the states grow, if they do in a way that is known; requests keep room for more rows then.
    `files` are those that it was read from; none for a model made in memory, read with options, or changed since.
    """

    graph: Graph
    opsets: Mapping[str, int] = field(default_factory=dict)
    source: str = "<memory>"
    format: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    overridable: Mapping[str, TensorType] = field(default_factory=dict)
    growth: "Growth | None" = None
    files: tuple[FileRead, ...] = field(default=(), init=False)  # `dataclasses.replace` does not copy it

    @property
    def inputs(self) -> Mapping[str, TensorType]:
        """Input name -> declared type, in order; states left out."""
        return {name: self.graph.types[name] for name in self.graph.inputs if name not in self.graph.states}

    @property
    def outputs(self) -> tuple[str, ...]:
        """Output names, in order; those that continue states left out."""
        return tuple(name for i, name in enumerate(self.graph.outputs) if i not in self.graph.states.values())

    def __repr__(self) -> str:
        return f"<Model {printable(self.source)}: {self.graph.summary}>"

    def _repr_html_(self) -> str:
        declared = [(name, self.graph.types.get(name, "")) for name in self.outputs]
        rows = [*(("input", *pair) for pair in self.inputs.items()), *(("output", *pair) for pair in declared)]
        title = f"{self.source}: {len(self.graph.nodes)} nodes, {self.format or 'made in memory'}"
        return html_table(title, ("", "name", "type"), rows)

    def reshape(self, shapes: Mapping[str, Sequence[Dim]]) -> "Model":
        """A copy whose inputs have other shapes: input name -> dimensions (a number, a symbol, or None). Itself without any.

        Raises `UsageError` for something else than a mapping, an unknown input or a rank that differs from the declared one.
        """
        if not hasattr(shapes, "items"):
            hint = f"for example {{{next(iter(self.inputs), 'x')!r}: [1, 3, 224, 224]}}"
            raise UsageError(f"shapes are a {type(shapes).__name__}; accepted: a mapping from input names", hint=hint)
        if not shapes:
            return self
        checked = {name: _checked_shape(self, name, shape) for name, shape in shapes.items()}
        given = {name: self.graph.types[name].with_shape(shape) for name, shape in checked.items()}
        return dataclasses.replace(self, graph=self.graph.replace(types=_types_with_inputs(self.graph, given)))

    def with_states(self, pairs: str) -> "Model":
        """A copy whose requests keep the values of some inputs: zeros at first, after each run those of an output.

        `pairs` is `input:output`, several with commas between; `*` in both stands for any text: `past.*:present.*`. These inputs
        and outputs are no longer given and returned; see `InferRequest.query_state`. Raises `UsageError` for unknown names and
        for something else than text.
        """
        if not issubclass(type(pairs), str):
            hint = "several pairs have commas between them: 'past_key:present_key,past_value:present_value'"
            raise UsageError(f"STATE is a {type(pairs).__name__}; accepted: text 'input:output'", hint=hint)
        outputs, states = self.graph.outputs, dict[str, int]()
        for past, colon, present in (pair.strip().partition(":") for pair in pairs.split(",")):
            if not colon:
                raise UsageError(f"STATE: {past!r} names no output; accepted: input:output, several with commas between them")
            pattern = re.compile("(.*)".join(map(re.escape, past.split("*", 1))))
            found = [(name, match.groups()) for name in self.graph.inputs if (match := pattern.fullmatch(name))]
            if not found:
                raise UsageError(f"STATE: {self.source} has no input {past!r}", hint=did_you_mean(past, self.graph.inputs))
            for name, texts in found:
                output = present.replace("*", texts[0]) if texts else present
                if output not in outputs:
                    raise UsageError(f"STATE: {self.source} has no output {output!r}", hint=did_you_mean(output, outputs))
                if name in states or outputs.index(output) in states.values():
                    raise UsageError(f"STATE: the pair {name}:{output} has an input or output of an earlier pair")
                states[name] = outputs.index(output)
        return dataclasses.replace(self, graph=self.graph.replace(states=states))

    def overriding(self, names: Iterable[str]) -> "Model":
        """A copy that takes some of its overridable constants as inputs, after its own and in the order of `overridable`.

        Raises `UsageError` for other names.
        """
        chosen = set(names)
        for name in chosen - self.overridable.keys():
            raise UsageError(f"{self.source} has no overridable constant {name!r}", hint=did_you_mean(name, self.overridable))
        added = {name: tensor for name, tensor in self.overridable.items() if name in chosen}
        graph = self.graph.replace(
            inputs=(*self.graph.inputs, *added),
            constants={name: array for name, array in self.graph.constants.items() if name not in chosen},
            types={**self.graph.types, **added},
        )
        rest = {name: tensor for name, tensor in self.overridable.items() if name not in chosen}
        return dataclasses.replace(self, graph=graph, overridable=rest)

    @property
    def affinities(self) -> Mapping[str, str]:
        """Node name -> the device that is to run it, for the nodes that have one."""
        return {node.name: node.affinity for node in self.graph.nodes if node.affinity}

    def with_affinities(self, devices: Mapping[str, object]) -> "Model":
        """A copy whose nodes of these names are to run on these devices, where the device that it is compiled for places nodes.

        An answer of `query_model` fits: what is not a string changes nothing. `""` takes an affinity away. Raises `UsageError`
        for an unknown node.
        """
        given = {name: device for name, device in devices.items() if isinstance(device, str)}
        known = [node.name for node in self.graph.nodes]
        for name in given.keys() - set(known):
            raise UsageError(f"{self.source} has no node {name!r}", hint=did_you_mean(name, known))
        nodes = (dataclasses.replace(n, affinity=given.get(n.name, n.affinity)) for n in self.graph.nodes)
        return dataclasses.replace(self, graph=self.graph.replace(nodes=tuple(nodes)))

    def with_post_ops(
        self, node: str, post_ops: Iterable[PostOp], constants: Mapping[str, ArrayLike] = MappingProxyType({})
    ) -> "Model":
        """A copy in which the node of this name applies a chain (a `PostOps`, which is copied) to its output 0 before storing it.

        A chain that the node has already comes first. Operands are names of values of the model, or of `constants`, which are
        added to it. A device that does not take the whole chain into its kernel runs the rest as nodes; the report says why.

        Raises `UsageError` for an unknown node or operand, a name that is taken, and more than 32 post-ops.
        """
        found = next((one for one in self.graph.nodes if one.name == node), None)
        if found is None:
            raise UsageError(f"{self.source} has no node {node!r}", hint=did_you_mean(node, [n.name for n in self.graph.nodes]))
        changed = dataclasses.replace(found, post_ops=PostOps.copied((*found.post_ops, *post_ops)))
        added = {name: as_constant(np.array(value)) for name, value in constants.items()}
        _check_operands(self, changed, added)
        graph = self.graph.replace(nodes=tuple(changed if one is found else one for one in self.graph.nodes))
        return dataclasses.replace(self, graph=with_constants(graph, added))


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


def _types_with_inputs(graph: Graph, given: Mapping[str, TensorType]) -> dict[str, TensorType]:
    """The graph's types with others for some inputs.

    Where a symbol of a declared shape becomes a size, it does so in what is declared for all values. Where a number becomes
    another one, what is declared for values that are neither inputs nor constants is forgotten: it was for other shapes.
    """
    # One of the two may have no shape; other ranks are refused before.
    pairs = [p for name, t in given.items() for p in zip(graph.types[name].shape or (), t.shape or (), strict=False)]
    stale = any(isinstance(declared, int) and declared != size for declared, size in pairs)
    sizes: dict[str, Dim] = {}
    for declared, size in pairs:
        if isinstance(declared, str):
            # A name with several sizes says nothing about the values that are declared with it.
            sizes[declared] = size if sizes.get(declared, size) == size and declared not in ANONYMOUS else None
    kept = {*graph.inputs, *graph.constants}
    types = {name: t for name, t in graph.types.items() if name in kept} if stale else dict(graph.types)
    types.update((name, _sized(types[name], sizes)) for name in graph.open_names if name in types and sizes)
    return types | dict(given)


def specialised(graph: Graph, shapes: Sequence[tuple[int, ...] | None] | None) -> Graph:
    """The graph with static input types; open dimensions become 1 when no shapes are given."""
    given = {}
    for index, name in enumerate(graph.inputs):
        declared = graph.types[name]
        shape = None if shapes is None else shapes[index]
        if shape is not None:
            given[name] = TensorType(declared.dtype, shape)
        elif not declared.is_static and not isinstance(declared, CONTAINERS):
            given[name] = declared.with_shape(tuple(d if isinstance(d, int) else 1 for d in declared.shape or ()))
    return graph.replace(types=_types_with_inputs(graph, given))


def _sized(tensor: TensorType, sizes: Mapping[str, Dim]) -> TensorType:
    shape = tensor.shape if isinstance(tensor, TensorType) else None
    if shape is None or sizes.keys().isdisjoint(shape):
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
