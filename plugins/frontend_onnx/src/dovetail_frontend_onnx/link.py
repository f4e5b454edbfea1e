"""Templates to graphs: names nodes, expands local functions, and makes each operator."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass, field
from dovetail.frontend import FormatError, Graph, GraphError, Node, TensorType, UnboundOperator, as_constant, free_name, printable
from dovetail_frontend_onnx.context import Context, label, located
from dovetail_frontend_onnx.messages import AttributeProto
from dovetail_frontend_onnx.templates import Attribute, FunctionTemplate, GraphTemplate, NodeTemplate, Reference

__all__ = ["MAX_DEPTH", "FunctionId", "Linker"]


MAX_DEPTH = 64
"""Functions and sub-graphs inside each other. Python's own stack sets the limit; models in use stay below ten."""

_OF_ONE_MACHINE = "com.microsoft.nchwc"
"""The domain of operators whose weights are stored in blocks as wide as the vectors of the machine that saved the file."""

_NODE_BYTES = 500
_NAME_BYTES = 150
"""Bytes of memory of a node and of a value of an expanded function, about, besides their characters."""

_EXPANDING = "the local functions are expanded"
_GRAPHS = (AttributeProto.GRAPH, AttributeProto.GRAPHS)
_NUMBERS: dict[tuple[str, int], type] = {
    ("value_float", AttributeProto.FLOAT): np.float32,
    ("value_floats", AttributeProto.FLOATS): np.float32,
    ("value_int", AttributeProto.INT): np.int64,
    ("value_ints", AttributeProto.INTS): np.int64,
}
_TENSORS = {("value", AttributeProto.TENSOR), ("sparse_value", AttributeProto.SPARSE_TENSOR)}
"""Attributes that were read as arrays, sparse ones as dense arrays."""
_Item = TypeVar("_Item")

FunctionId = tuple[str, str, str]
"""Domain, name and overload."""


@dataclass(frozen=True, slots=True)
class _Scope:
    """The main graph, or one call of a function: how names and attributes are meant there.

    `values` maps every value name of the function; it is empty for the main graph. `calls` are the functions that lead here.
    """

    opsets: Mapping[str, int]
    prefix: str = ""
    values: Mapping[str, str] = field(default_factory=dict)
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    calls: tuple[FunctionId, ...] = ()

    def names(self, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(self.values[name] if name else "" for name in names) if self.calls else names

    def keys(self, by_name: Mapping[str, _Item]) -> dict[str, _Item]:
        return {self.values[name] if self.calls else name: item for name, item in by_name.items()}

    def inside(self, graph: GraphTemplate) -> "_Scope":
        """The scope of a sub-graph. Names that it defines for itself hide those of the function around it."""
        if not self.calls:
            return self
        own = {*graph.inputs, *graph.constants, *(name for node in graph.nodes for name in node.outputs if name)}
        return _Scope(self.opsets, self.prefix, {**self.values, **{n: self.prefix + n for n in own}}, self.attributes, self.calls)


@dataclass
class Linker:
    """Links the graph of one model. `function` gives a local function by its id, or None; `values` are the names in use."""

    context: Context
    function: Callable[[FunctionId], FunctionTemplate | None]
    values: set[str]
    _node_names: set[str] = field(default_factory=set)
    _counts: dict[str, int] = field(default_factory=dict)
    _renamed: list[str] = field(default_factory=list)
    _plain: dict[tuple[str, str, int], UnboundOperator] = field(default_factory=dict)

    def link(self, template: GraphTemplate, opsets: Mapping[str, int]) -> Graph:
        """The main graph. Raises `FormatError` and `GraphError`."""
        graph = self._graph(template, _Scope(opsets), "", 0)
        if self._renamed:
            import logging  # 4 ms

            logging.getLogger(__name__).info(
                "%s: nodes with the name of another node got one of their own: %d, such as '%s'",
                self.context.source.name,
                len(self._renamed),
                printable(self._renamed[0]),
            )
        return graph

    def _graph(self, template: GraphTemplate, scope: _Scope, unnamed: str, depth: int) -> Graph:
        _check_depth(depth)
        constants = scope.keys(template.constants)
        nodes = self._nodes(template.nodes, template.names, scope, unnamed, depth, constants)
        types = scope.keys(template.types)
        types.update({name: TensorType.of(array, known=True) for name, array in constants.items()})
        return Graph(tuple(nodes), scope.names(template.inputs), scope.names(template.outputs), constants, types, template.name)

    def _nodes(
        self,
        templates: Iterable[NodeTemplate],
        given: frozenset[str],
        scope: _Scope,
        unnamed: str,
        depth: int,
        constants: dict[str, NDArray[Any]],
    ) -> list[Node]:
        """The nodes. The values of Constant nodes go to `constants`, where no pass sees them as nodes."""
        nodes: list[Node] = []
        for index, template in enumerate(templates):
            array = _constant(template) if template.op_type == "Constant" and not template.domain else None
            if array is not None and (value := scope.names(template.outputs)[0]) not in constants:
                constants[value] = array
                continue
            name = self._node_name(template, index, given, scope, unnamed)
            try:
                if scope.calls:
                    self.context.spend(_NODE_BYTES + len(name), _EXPANDING)
                function = self.function((template.domain, template.op_type, template.overload))
                if function is not None:
                    nodes += self._expand(template, function, name, scope, depth, constants)
                else:
                    op = self._operator(template, name, scope, depth)
                    nodes.append(Node(name, op, scope.names(template.inputs), scope.names(template.outputs), (), (name,)))
            except (FormatError, GraphError) as error:
                raise located(label(name, template.domain, template.op_type), error) from None
        return nodes

    def _node_name(self, template: NodeTemplate, index: int, given: frozenset[str], scope: _Scope, unnamed: str) -> str:
        wanted = scope.prefix + template.name if template.name else f"{unnamed}{template.op_type}_{index}"
        own = frozenset() if template.name else given
        name = wanted
        if wanted in self._node_names or wanted in own:
            name = free_name(wanted, lambda found: found in self._node_names or found in own, self._counts)
        if template.name and name != wanted:
            self._renamed.append(name)
        self._node_names.add(name)
        return name

    # --- operators -------------------------------------------------------------------------------------------------

    def _operator(self, template: NodeTemplate, name: str, scope: _Scope, depth: int) -> UnboundOperator:
        if template.op is not None:
            return template.op
        if template.domain == _OF_ONE_MACHINE:
            raise FormatError(
                "ONNX Runtime saved the model with all optimizations, for the memory layout of one machine",
                hint="load the original model, or save it with ORT_ENABLE_EXTENDED or a lower level of optimization",
            )
        key = (template.domain, template.op_type, _version(template.domain, scope))
        if not template.attributes:
            return self._plain.get(key) or self._plain.setdefault(key, UnboundOperator(*key, {}))
        attributes = self._attributes(template, name, scope, depth)
        op = UnboundOperator(*key, {attribute: value for attribute, (_, value) in attributes.items()})
        if attributes is template.attributes:
            template.op = op
        return op

    def _attributes(self, template: NodeTemplate, name: str, scope: _Scope, depth: int) -> Mapping[str, Attribute]:
        """The attributes with references to the function's replaced, and graphs linked; the same mapping if there are none."""
        if not any(kind in _GRAPHS or isinstance(value, Reference) for kind, value in template.attributes.values()):
            return template.attributes
        found: dict[str, Attribute] = {}
        for key, (kind, value) in template.attributes.items():
            if isinstance(value, Reference):
                bound = _resolve(key, kind, value, scope)
                if bound is not None:
                    found[key] = bound
            elif kind in _GRAPHS:
                found[key] = Attribute(kind, self._subgraphs(value, f"{name}/{key}/", scope, depth))
            else:
                found[key] = Attribute(kind, value)
        return found

    def _subgraphs(self, value: GraphTemplate | tuple[GraphTemplate, ...], unnamed: str, scope: _Scope, depth: int) -> Any:
        if isinstance(value, tuple):
            return tuple(self._subgraphs(item, f"{unnamed}{i}/", scope, depth) for i, item in enumerate(value))
        return self._graph(value, scope.inside(value), unnamed, depth + 1)

    # --- functions -------------------------------------------------------------------------------------------------

    def _expand(
        self,
        call: NodeTemplate,
        function: FunctionTemplate,
        name: str,
        scope: _Scope,
        depth: int,
        constants: dict[str, NDArray[Any]],
    ) -> list[Node]:
        """The nodes of the function, with the names of this call."""
        identity = (call.domain, call.op_type, call.overload)
        calls = (*scope.calls, identity)
        if identity in scope.calls:
            chain = " -> ".join(function_label(*called) for called in calls[scope.calls.index(identity) :])
            raise GraphError(f"the local function calls itself: {chain}", hint="ONNX functions must not be recursive")
        _check_depth(depth)
        given = self._attributes(call, name, scope, depth)
        unknown = [key for key in given if key not in function.attributes and key not in function.defaults]
        if unknown:
            raise FormatError(f"the local function has no attribute '{printable(unknown[0])}'")
        formals = _formals(call, function, scope)
        prefix = self._prefix(name, function)
        values = {n: prefix + n for n in function.values} | formals
        inner = _Scope(function.opsets, prefix, values, {**function.defaults, **given}, calls)
        names = frozenset(prefix + n for n in function.names)
        nodes = self._nodes(function.nodes, names, inner, prefix, depth + 1, constants)
        return nodes + _passed_through(call, function, name, scope)

    def _prefix(self, name: str, function: FunctionTemplate) -> str:
        """`name/`, or with a number where that would give a value of this call the name of another value."""

        def is_taken(scope: str) -> bool:
            self.context.spend(sum(_NAME_BYTES + len(scope) + 1 + len(n) for n in function.values), _EXPANDING)
            return any(f"{scope}/{n}" in self.values for n in function.values)

        prefix = free_name(name, is_taken) + "/"
        self.values.update(prefix + n for n in function.values)
        return prefix


def function_label(domain: str, name: str, overload: str) -> str:
    """A local function for messages: `pkg::gelu`, with its overload if it has one."""
    return printable(f"{domain}::{name}" + (f":{overload}" if overload else ""))


def _constant(template: NodeTemplate) -> NDArray[Any] | None:
    """The value of a Constant node; None for one that binding refuses, has strings, or takes its value from a function's call."""
    if template.inputs or len(template.outputs) != 1 or not template.outputs[0] or len(template.attributes) != 1:
        return None
    ((key, (kind, value)),) = template.attributes.items()
    if isinstance(value, Reference):
        return None
    if (key, kind) in _TENSORS:
        found: NDArray[Any] = value
        return found
    dtype = _NUMBERS.get((key, kind))
    return None if dtype is None else as_constant(np.array(value, dtype))


def _check_depth(depth: int) -> None:
    if depth > MAX_DEPTH:
        raise GraphError(f"sub-graphs and functions are nested more than {MAX_DEPTH} deep")


def _resolve(key: str, kind: int, reference: Reference, scope: _Scope) -> Attribute | None:
    """The value that the function was called with; None if it was called without, which leaves the attribute out."""
    if not scope.calls:
        raise FormatError(
            f"attribute '{printable(key)}' refers to the attribute '{printable(reference.name)}' of a function, outside of one"
        )
    bound = scope.attributes.get(reference.name)
    if bound is not None and bound.kind != kind:
        names = AttributeProto.AttributeType.Name
        function_attribute = f"the function's '{printable(reference.name)}' is {names(bound.kind)}"
        raise FormatError(f"attribute '{printable(key)}' is {names(kind)}, but {function_attribute}")
    return bound


def _formals(call: NodeTemplate, function: FunctionTemplate, scope: _Scope) -> dict[str, str]:
    """The function's inputs and outputs -> the caller's values. Inputs left out are `""`; outputs left out are missing."""
    if len(call.inputs) > len(function.inputs) or len(call.outputs) > len(function.outputs):
        raise GraphError(
            f"the call has {len(call.inputs)} inputs and {len(call.outputs)} outputs",
            hint=f"accepted by the local function: at most {len(function.inputs)} and {len(function.outputs)}",
        )
    # A call may leave out trailing outputs and inputs.
    outputs = {f: a for f, a in zip(function.outputs, scope.names(call.outputs), strict=False) if a}
    inputs = dict.fromkeys(function.inputs, "") | dict(zip(function.inputs, scope.names(call.inputs), strict=False))
    return outputs | inputs


def _passed_through(call: NodeTemplate, function: FunctionTemplate, name: str, scope: _Scope) -> list[Node]:
    """An Identity for each output of the function that is one of its inputs, because a value has one name only."""
    formals = _formals(call, function, scope)
    found = []
    # A call may leave out trailing outputs.
    for formal, output in zip(function.outputs, scope.names(call.outputs), strict=False):
        if formal in function.inputs and output:
            own = f"{name}/Identity:{formal}"
            op = UnboundOperator("", "Identity", function.opsets.get("") or _version("", scope), {})
            found.append(Node(own, op, (formals[formal],), (output,), (), (own,)))
    return found


def _version(domain: str, scope: _Scope) -> int:
    """The imported version of a domain. A vendor's domain may be missing, as in models by NNCF, and has version 1 then."""
    version = scope.opsets.get(domain)
    if version is None and domain and not domain.startswith("ai.onnx"):
        return 1
    if version is None:
        owner = f"the local function {function_label(*scope.calls[-1])}" if scope.calls else "the model"
        raise FormatError(
            f"{owner} has no opset_import for the domain '{printable(domain) or 'ai.onnx'}'", hint="add one, with a version"
        )
    return version
