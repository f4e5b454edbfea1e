"""Layers to a graph: in order of their edges, each translated, sub-graphs within their layers."""

import dataclasses
import re
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dovetail.frontend import (
    MAX_RANK,
    AttributeText,
    DType,
    FormatError,
    Graph,
    GraphError,
    Growth,
    OutOfMemory,
    TensorType,
    UnboundOperator,
    printable,
)
from dovetail_frontend_openvino.call import Call, Value
from dovetail_frontend_openvino.decompression import decompressed
from dovetail_frontend_openvino.emit import Emitter, Names
from dovetail_frontend_openvino.layers import Layer, Net, Port
from dovetail_frontend_openvino.states import States
from dovetail_frontend_openvino.text import element_type, shape
from dovetail_frontend_openvino.translations import translation
from dovetail_frontend_openvino.weights import Weights

__all__ = ["MAX_DEPTH", "Linker", "ordered"]

MAX_DEPTH = 32
"""Sub-graphs inside each other: Python's own stack sets the limit; models in use stay below five."""

_DOMAIN = re.compile(r"[A-Za-z0-9_.\-]+")
_LONG = 2000


@dataclass
class Linker:
    """Links one model. Once it is linked, `domains` are those that it uses besides ONNX's: extensions, operator sets, and
    this package's own; and `growth` says how its variables grow.
    """

    weights: Weights
    domains: set[str] = field(default_factory=set)
    growth: Growth | None = None
    values: Names = field(default_factory=Names)
    _depth: int = 0

    def link(self, net: Net) -> Graph:
        """The main graph. Raises `FormatError`, `GraphError`."""
        # The names that users see are taken before any other.
        names = {layer.id: self.values.unique(_input_name(layer)) for layer in net.layers.values() if _is(layer, "parameter")}
        names |= {layer.id: self.values.unique(_output_name(layer, net)) for layer in net.layers.values() if _is(layer, "result")}
        emitter = Emitter(Names(), self.values)
        linking = _Linking(self, net, emitter, {}, names, states=States())
        results = linking.link()
        outputs = tuple(results[key].name for key in net.layers if key in results)
        assert linking.states is not None
        pairs = linking.states.pairs(len(outputs))
        graph = emitter.graph((*outputs, *linking.states.written.values()), net.name).replace(states=pairs)
        self.growth = linking.states.growth(graph) if pairs else None
        return graph

    def body(self, net: Net, emitter: Emitter, given: Mapping[int, Value]) -> Mapping[int, Value]:
        """Link a sub-graph into its own emitter. Its Parameters are `given` by id; returns the values of its Results by id."""
        self._depth += 1
        try:
            if self._depth > MAX_DEPTH:
                raise GraphError(f"sub-graphs are nested more than {MAX_DEPTH} deep")
            return _Linking(self, net, emitter, given, {}).link()
        finally:
            self._depth -= 1


@dataclass
class _Linking:
    """One graph. `names` are those of inputs and outputs of the main graph by layer id."""

    linker: Linker
    net: Net
    emitter: Emitter
    given: Mapping[int, Value]
    names: Mapping[int, str]
    values: dict[tuple[int, int], Value] = field(default_factory=dict)
    results: dict[int, Value] = field(default_factory=dict)
    states: States | None = None

    def __post_init__(self) -> None:
        self.net = decompressed(self.net)

    def link(self) -> dict[int, Value]:
        used = frozenset(self.net.edges.values())
        exits = self._exits()
        for layer in ordered(self.net):
            try:
                self._layer(layer, used, exits)
            except (FormatError, GraphError, OutOfMemory) as error:
                if len(error.message) < _LONG:
                    error.message = f"{layer}: {error.message}"
                raise
        return self.results

    def _exits(self) -> dict[tuple[int, int], str]:
        """Output port -> the name of the graph output that it feeds, the first of several."""
        exits: dict[tuple[int, int], str] = {}
        for layer in self.net.layers.values():
            if layer.id in self.names and _is(layer, "result"):
                for port in layer.inputs[:1]:
                    source = self.net.edges.get((layer.id, port.id))
                    if source is not None:
                        exits.setdefault(source, self.names[layer.id])
        return exits

    def _layer(self, layer: Layer, used: frozenset[tuple[int, int]], exits: Mapping[tuple[int, int], str]) -> None:
        inputs = tuple(self._input(layer, port) for port in layer.inputs)
        if layer.is_standard and _is(layer, "parameter"):
            self._define(layer, [self._parameter(layer)])
        elif layer.is_standard and _is(layer, "const"):
            self._define(layer, [self._const(layer)])
        elif layer.is_standard and _is(layer, "result"):
            self._result(layer, inputs)
        elif layer.is_standard and self.states is not None and _is(layer, "readvalue"):
            self._define(layer, [self.states.read(layer, inputs, self.emitter)])
        elif layer.is_standard and self.states is not None and _is(layer, "assign"):
            self._define(layer, [self.states.write(layer, inputs, self.emitter)])
        else:
            start = len(self.emitter.nodes)
            ports = frozenset(i for i, port in enumerate(layer.outputs) if (layer.id, port.id) in used)
            outputs = self._translated(layer, inputs, ports)
            self.linker.domains.update(domain for node in self.emitter.nodes[start:] if (domain := node.op.domain))
            self._define(layer, self._named(layer, start, outputs, exits))

    def _input(self, layer: Layer, port: Port) -> Value:
        source = self.net.edges.get((layer.id, port.id))
        if source is None:
            raise GraphError(f"no edge leads to its input port {port.id}", hint="every input port needs one")
        if source not in self.values:
            raise GraphError(f"its input port {port.id} is fed by port {source[1]} of layer {source[0]}, which gives no value")
        return self.values[source]

    def _define(self, layer: Layer, values: Iterable[Value]) -> None:
        # A port without a value is refused where an edge starts from it.
        for port, value in zip(layer.outputs, values, strict=False):
            self.values[layer.id, port.id] = value

    # --- inputs, constants, outputs -----------------------------------------------------------------------------------

    def _parameter(self, layer: Layer) -> Value:
        if layer.id in self.given:
            return self.given[layer.id]
        if layer.id not in self.names:
            raise GraphError("the layer around the sub-graph has nothing for this Parameter", hint="its port_map must name it")
        if len(layer.outputs) != 1:
            raise FormatError(f"a Parameter has one output port, not {len(layer.outputs)}")
        tensor = _declared_input(layer)
        name = self.names[layer.id]
        self.emitter.inputs.append(name)
        self.emitter.types[name] = tensor
        return Value(name, tensor.dtype, tensor.shape)

    def _const(self, layer: Layer) -> Value:
        array = self.linker.weights.constant(layer.attributes)
        if array.dtype == np.float16 and layer.outputs[0].dtype is DType.FLOAT32:  # see `decompression`
            array = array.astype(np.float32)
        name = self.emitter.constant(array, layer.name)
        return Value(name, self.emitter.types[name].dtype, array.shape)

    def _result(self, layer: Layer, inputs: tuple[Value, ...]) -> None:
        if layer.type != "Result":  # OpenVINO knows other types in any spelling, and drops such an output
            raise FormatError(f"its type is {printable(layer.type)!r}", hint="accepted for an output: 'Result'")
        if len(inputs) != 1:
            raise FormatError(f"a Result has one input port, not {len(inputs)}")
        value = inputs[0]
        wanted = self.names.get(layer.id, value.name)
        if wanted != value.name:
            start = len(self.emitter.nodes)
            written = self.emitter.node(UnboundOperator("", "Identity", 24, {}), (value.name,), 1, layer.name)
            self._rename(start, {written[0]: wanted})
            value = dataclasses.replace(value, name=wanted)
        self.results[layer.id] = value

    # --- operations -----------------------------------------------------------------------------------------------------

    def _translated(self, layer: Layer, inputs: tuple[Value, ...], used: frozenset[int]) -> tuple[str, ...]:
        translate = translation(layer) if layer.is_standard else None
        if translate is None:
            return self._custom(layer, inputs)
        outputs = translate(Call(layer, inputs, used, self.emitter, self.linker.body))
        return (outputs,) if isinstance(outputs, str) else outputs

    def _custom(self, layer: Layer, inputs: tuple[Value, ...]) -> tuple[str, ...]:
        """An operation for an op pack or a custom layer: of an extension, or of a set of OpenVINO's that has it but this package
        does not. With what the file declares of its values.
        """
        if not _DOMAIN.fullmatch(layer.opset) or not layer.outputs:
            what = f"the operator set is '{printable(layer.opset)}'" if layer.outputs else "the layer has no output port"
            raise FormatError(what, hint="accepted: opset1 and so on, or the name of an extension: letters, digits, . _ -")
        raw = {name: AttributeText(text) for name, text in layer.attributes.items()}
        op = UnboundOperator(layer.opset, layer.type, 1, raw)
        outputs = self.emitter.node(op, tuple(value.name for value in inputs), len(layer.outputs), layer.name)
        declared = [*inputs, *(Value(n, p.dtype, p.shape) for n, p in zip(outputs, layer.outputs, strict=True))]
        for value in declared:
            if value.dtype is not None:
                self.emitter.types.setdefault(value.name, TensorType(value.dtype, value.shape))
        return outputs

    def _named(self, layer: Layer, start: int, outputs: tuple[str, ...], exits: Mapping[tuple[int, int], str]) -> list[Value]:
        """The values of the output ports. The last node of the layer gets its name, graph outputs get theirs."""
        made = {name for node in self.emitter.nodes[start:] for name in node.outputs}
        renamed = {}
        # A port without a value is refused where an edge starts from it.
        for port, name in zip(layer.outputs, outputs, strict=False):
            if (layer.id, port.id) in exits and name in made and name not in renamed:
                renamed[name] = exits[layer.id, port.id]
        self._rename(start, renamed)
        if len(self.emitter.nodes) > start:
            last = self.emitter.nodes[-1]
            name = self.emitter.node_names.unique(layer.name)
            self.emitter.nodes[-1] = dataclasses.replace(last, name=name, origins=(name,))
        return [
            # Likewise.
            Value(renamed.get(name, name), port.dtype, port.shape)
            for port, name in zip(layer.outputs, outputs, strict=False)
        ]

    def _rename(self, start: int, renamed: Mapping[str, str]) -> None:
        if not renamed:
            return
        for index in range(start, len(self.emitter.nodes)):
            node = self.emitter.nodes[index]
            inputs = tuple(renamed.get(name, name) for name in node.inputs)
            outputs = tuple(renamed.get(name, name) for name in node.outputs)
            self.emitter.nodes[index] = dataclasses.replace(node, inputs=inputs, outputs=outputs)
        tables: tuple[dict[str, Any], ...] = (self.emitter.types, self.emitter.casts, self.emitter.computed)
        for table in tables:
            for old in renamed.keys() & table.keys():
                table[renamed[old]] = table.pop(old)


def ordered(net: Net) -> list[Layer]:
    """The layers, each after those that feed it, else as in the file. Raises `GraphError` naming the layers of a cycle."""
    missing = dict.fromkeys(net.layers, 0)
    followers: dict[int, list[int]] = {key: [] for key in net.layers}
    for (target, _), (source, _) in net.edges.items():
        missing[target] += 1
        followers[source].append(target)
    ready = deque(key for key, count in missing.items() if not count)
    found = []
    while ready:
        current = ready.popleft()
        found.append(net.layers[current])
        for target in followers[current]:
            missing[target] -= 1
            if not missing[target]:
                ready.append(target)
    if len(found) < len(net.layers):
        raise GraphError(f"the layers form a cycle: {_cycle(net, {key for key, count in missing.items() if count})}")
    return found


def _cycle(net: Net, waiting: set[int]) -> str:
    before = {target: source for (target, _), (source, _) in net.edges.items() if source in waiting}
    current, seen = min(waiting), list[int]()
    while current not in seen and len(seen) < _LONG:
        seen.append(current)
        current = before[current]
    names = [f"'{printable(net.layers[key].name)}'" for key in seen[seen.index(current) if current in seen else 0 :][:5]]
    return " <- ".join(names) + (" <- ..." if len(names) == 5 else "")


def _is(layer: Layer, kind: str) -> bool:
    return layer.type.lower() == kind


def _declared_input(layer: Layer) -> TensorType:
    port = layer.outputs[0]
    attributes = layer.attributes
    dtype = element_type(attributes["element_type"], "element_type") if "element_type" in attributes else port.dtype
    if dtype is None:
        raise FormatError("the element type of the input is open", hint="accepted: a Parameter with an element_type such as f32")
    dims = shape(attributes["shape"], "a dimension of shape") if "shape" in attributes else port.shape
    if dims is not None and len(dims) > MAX_RANK:
        raise FormatError(f"the shape has {len(dims)} dimensions", hint=f"accepted: at most {MAX_RANK}")
    return TensorType(dtype, dims)


def _input_name(layer: Layer) -> str:
    return next((name for port in layer.outputs for name in port.names), layer.name)


def _output_name(layer: Layer, net: Net) -> str:
    """As OpenVINO calls the output: by the first name of its tensor, or else by the layer that computes it."""
    if layer.output_names:
        return layer.output_names[0]
    source = net.edges.get((layer.id, layer.inputs[0].id)) if layer.inputs else None
    if source is None:
        return layer.name
    producer = net.layers[source[0]]
    index, port = next((i, port) for i, port in enumerate(producer.outputs) if port.id == source[1])
    if port.names:
        return port.names[0]
    return producer.name if len(producer.outputs) == 1 else f"{producer.name}.{index}"
