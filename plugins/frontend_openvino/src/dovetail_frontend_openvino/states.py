"""ReadValue and Assign: variables, which become states of requests."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from dovetail.frontend import (
    FormatError,
    Graph,
    GraphError,
    Growth,
    Grown,
    Node,
    Shape,
    TensorType,
    UnboundOperator,
    printable,
)
from dovetail_frontend_openvino.call import Value
from dovetail_frontend_openvino.emit import ONNX_VERSION, Emitter
from dovetail_frontend_openvino.layers import Layer
from dovetail_frontend_openvino.text import element_type, shape

__all__ = ["States"]

_TOKENS = ("input_ids", "inputs_embeds")
"""The input with the new tokens, as optimum-intel and openvino-genai name it: [batch, tokens] or [batch, tokens, width]."""
_MASK, _MASK_RANK = "attention_mask", 2
_JOINED = 2


@dataclass
class States:
    """The variables of a model by their ids: the inputs that hold their values, these or the first ones, and the next ones."""

    inputs: dict[str, str] = field(default_factory=dict)
    read_as: dict[str, str] = field(default_factory=dict)
    written: dict[str, str] = field(default_factory=dict)

    def read(self, layer: Layer, inputs: tuple[Value, ...], emitter: Emitter) -> Value:
        """ReadValue: the value is an input of the graph. Where that is empty, a variable of an open shape has its first value.

        Raises `FormatError` for one of a fixed shape unless it is zeros at first.
        """
        key = _variable(layer)
        if key in self.inputs:
            raise GraphError(f"the variable '{printable(key)}' is read twice")
        if not layer.outputs:
            raise FormatError("the layer has no output port")
        port, given = layer.outputs[0], layer.attributes
        dtype = element_type(given.get("variable_type", "dynamic"), "variable_type") or port.dtype
        dims = shape(given.get("variable_shape", "..."), "a dimension of variable_shape")
        dims = port.shape if dims is None else dims
        if dtype is None or dims is None:
            raise FormatError("the type of the variable is open", hint="accepted: variable_type and variable_shape")
        self.inputs[key] = emitter.input(key, TensorType(dtype, dims))
        value = Value(self.inputs[key], dtype, dims)
        if None in dims and inputs:
            value = dataclasses.replace(value, name=_or_first(layer, value.name, inputs[0].name, emitter))
            self.read_as[key] = value.name
            return value
        first = [emitter.known(given.name) for given in inputs]
        if any(array is None or array.any() for array in first):
            raise FormatError("the first value of the variable is computed, or not zeros", hint="accepted: a constant of zeros")
        return value

    def write(self, layer: Layer, inputs: tuple[Value, ...], emitter: Emitter) -> Value:
        """Assign: its input is also an output of the graph, under a name of its own."""
        key = _variable(layer)
        if key in self.written or len(inputs) != 1:
            raise GraphError(f"the variable '{printable(key)}' is assigned twice, or {len(inputs)} values at once")
        identity = UnboundOperator("", "Identity", ONNX_VERSION, {})
        (self.written[key],) = emitter.node(identity, (inputs[0].name,), 1, layer.name)
        return inputs[0]

    def pairs(self, outputs: int) -> Mapping[str, int]:
        """Input -> the index of the output that continues it, after so many others. Raises `GraphError`."""
        if self.inputs.keys() != self.written.keys():
            alone = sorted(self.inputs.keys() ^ self.written.keys())[0]
            raise GraphError(f"the variable '{printable(alone)}' is read and never assigned, or assigned and never read")
        return {self.inputs[key]: outputs + index for index, key in enumerate(self.written)}


    def growth(self, graph: Graph) -> Growth | None:
        """How the variables grow where all are caches of a decoder: a Concat joins new rows along one axis, in the order of texts."""
        tokens = next((name for name in _TOKENS if len(_shape(graph, name)) > 1), "")
        mask = _MASK if len(_shape(graph, _MASK)) == _MASK_RANK else ""
        found = [_grown(graph, self.read_as.get(key, ""), self.written[key], name) for key, name in self.inputs.items()]
        kinds = {(axis, order) for one in found if one is not None for _, axis, order in [one]}
        if len(kinds) != 1 or None in found or not tokens:
            return None
        ((axis, order),) = kinds
        grown = (one[0] for one in found if one is not None)
        return Growth(dict(zip(self.inputs.values(), grown, strict=True)), axis, tokens, mask, order)


def _shape(graph: Graph, name: str) -> Shape:
    return (graph.types[name].shape or ()) if name in graph.inputs else ()


def _grown(graph: Graph, value: str, written: str, state: str) -> tuple[Grown, int, str] | None:
    """The value of a state and that with new rows, their axis, and the input with the order of the texts, if there is one."""
    joined = graph.producers[graph.producers[written].inputs[0]] if graph.producers[written].inputs[0] in graph.producers else None
    if joined is None or joined.op.op_type != "Concat" or len(joined.inputs) != _JOINED:
        return None
    dims, read, order = _shape(graph, state), joined.inputs[0], ""
    before = graph.producers.get(read)
    if before is not None and before.op.op_type == "Gather" and before.inputs[1] in graph.inputs:
        is_along_texts = len(_shape(graph, before.inputs[1])) == 1 and not _attribute(before, "axis", 0)
        value, order = (before.outputs[0] if before.inputs[0] == value and is_along_texts else ""), before.inputs[1]
    axis = _attribute(joined, "axis", 0) % len(dims)
    fixed = [size for at, size in enumerate(dims) if at not in (0, axis)]
    return (Grown(read, joined.outputs[0]), axis, order) if read == value and axis and None not in fixed else None


def _attribute(node: Node, name: str, default: int) -> int:
    return int(node.op.raw.get(name, default)) if isinstance(node.op, UnboundOperator) else default


def _or_first(layer: Layer, value: str, first: str, emitter: Emitter) -> str:
    """The value, or the first one where it is empty; which of them is known while planning."""

    def node(graph: Emitter, op_type: str, *inputs: str, **attributes: Graph) -> str:
        return graph.node(UnboundOperator("", op_type, ONNX_VERSION, attributes), inputs, 1, layer.name)[0]

    branches = {}
    for word, name in (("then", first), ("else", value)):
        inner = emitter.inside()
        branches[f"{word}_branch"] = inner.graph((node(inner, "Identity", name),), word)
    is_empty = node(emitter, "Equal", node(emitter, "Size", value), emitter.constant(np.int64(0), f"{layer.name}/constant"))
    return node(emitter, "If", is_empty, **branches)


def _variable(layer: Layer) -> str:
    key = layer.attributes.get("variable_id", "")
    if not key:
        raise FormatError("the attribute 'variable_id' is missing")
    return key
