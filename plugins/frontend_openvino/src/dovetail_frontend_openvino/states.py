"""ReadValue and Assign: variables, which become states of requests."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from dovetail.frontend import FormatError, Graph, GraphError, Growth, TensorType, UnboundOperator, printable
from dovetail_frontend_openvino.call import Value
from dovetail_frontend_openvino.emit import ONNX_VERSION, Emitter
from dovetail_frontend_openvino.growth import Variable, growth
from dovetail_frontend_openvino.layers import Layer
from dovetail_frontend_openvino.text import element_type, shape

__all__ = ["States"]


@dataclass
class States:
    """The variables of a model by their ids: the inputs that hold their values, and the outputs with the next ones.

    `open` has those of open shapes: the value in use, which is the first one or the input's, and the first one.
    """

    inputs: dict[str, str] = field(default_factory=dict)
    open: dict[str, tuple[str, str]] = field(default_factory=dict)
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
            self.open[key] = value.name, inputs[0].name
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
        """How the variables of the graph grow, where all are caches of a decoder."""
        caches = [
            Variable(self.inputs[key], *self.open[key], graph.producers[self.written[key]].inputs[0])
            for key in self.inputs
            if key in self.open
        ]
        return growth(graph, caches) if len(caches) == len(self.inputs) else None


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
