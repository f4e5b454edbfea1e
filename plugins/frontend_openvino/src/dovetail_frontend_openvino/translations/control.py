"""If, Loop and TensorIterator: sub-graphs that read the values around them by name."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from dovetail.frontend import DType, FormatError, Graph, GraphError, TensorType, UnboundOperator
from dovetail_frontend_openvino.call import Call, Outputs, Table, Value
from dovetail_frontend_openvino.emit import ONNX_VERSION, Emitter
from dovetail_frontend_openvino.layers import Body, Layer, PortMapping

__all__ = ["TABLE"]

_LARGEST = 2**63 - 1
_SCALAR_INT = TensorType(DType.INT64, ())
_SCALAR_BOOL = TensorType(DType.BOOL, ())


def _body(call: Call, tag: str) -> Body:
    body = call.layer.bodies.get(tag)
    if body is None:
        raise FormatError(f"the layer has no <{tag}>")
    return body


def _outer(call: Call, mapping: PortMapping) -> Value:
    for port, value in zip(call.layer.inputs, call.inputs, strict=True):
        if port.id == mapping.external:
            return value
    raise GraphError(f"line {mapping.line}: external_port_id is {mapping.external}, no input port of the layer")


def _inner(body: Body, id: int, kind: str, line: int) -> Layer:
    layer = body.net.layers.get(id)
    if layer is None or layer.type.lower() != kind:
        raise GraphError(f"line {line}: layer {id} of the body is not a {kind.capitalize()}")
    return layer


def _results(results: Mapping[int, Value], body: Body, mapping: PortMapping) -> Value:
    return results[_inner(body, mapping.internal, "result", mapping.line).id]


def _add(emitter: Emitter, call: Call, op_type: str, *inputs: str, **attributes: int) -> str:
    return emitter.node(UnboundOperator("", op_type, ONNX_VERSION, attributes), inputs, 1, call.layer.name)[0]


# --- If ------------------------------------------------------------------------------------------------------------


def _if(call: Call) -> Outputs:
    graphs = {f"{word}_branch": _branch(call, _body(call, f"{word}_body"), word) for word in ("then", "else")}
    return call.ops("If", len(call.layer.outputs), call.name(0), **graphs)


def _branch(call: Call, body: Body, word: str) -> Graph:
    inner = call.emitter.inside()
    given = {_inner(body, m.internal, "parameter", m.line).id: _outer(call, m) for m in body.inputs}
    results = call.link(body.net, inner, given)
    by_port = {m.external: _results(results, body, m) for m in body.outputs}
    missing = [port.id for port in call.layer.outputs if port.id not in by_port]
    if missing:
        raise GraphError(f"the {word} body gives nothing for output port {missing[0]}")
    outputs = tuple(_add(inner, call, "Identity", by_port[port.id].name) for port in call.layer.outputs)
    return inner.graph(outputs, word)


# --- Loop and TensorIterator -----------------------------------------------------------------------------------------


@dataclass
class _Iteration:
    """A loop in the making: `states` are Parameters by id with what they start from, `stacks` what is kept of each run."""

    call: Call
    body: Body
    inner: Emitter
    number: str
    given: dict[int, Value] = field(default_factory=dict)
    states: dict[int, str] = field(default_factory=dict)
    count: str = ""


def _loop(call: Call) -> Outputs:
    trips = call.index_list(0)
    known = call.known(0)
    if known is None:  # a negative number stands for no limit
        trips = call.op("Where", call.op("Less", trips, call.const([0])), call.const([_LARGEST]), trips)
    elif known.size != 1:
        raise FormatError(f"the trip count (input 0) has {known.size} elements", hint="accepted: one")
    return _looped(call, "" if known is not None and int(known.reshape(())) < 0 else trips, call.name(1))


def _tensor_iterator(call: Call) -> Outputs:
    return _looped(call, None, "")


def _looped(call: Call, trips: str | None, condition: str) -> Outputs:
    body, inner = _body(call, "body"), call.emitter.inside()
    loop = _Iteration(call, body, inner, inner.input(f"{call.layer.name}/iteration", _SCALAR_INT))
    going = inner.input(f"{call.layer.name}/condition", _SCALAR_BOOL)
    carried = {parameter: result for result, parameter in body.back_edges}
    if len(carried) < len(body.back_edges):
        raise GraphError("two back edges lead to one Parameter")
    for mapping in body.inputs:
        _enter(loop, mapping, carried)
    results = call.link(body.net, inner, loop.given)
    if trips is None:
        if not loop.count:
            raise FormatError("no input is sliced, so the number of iterations is not known")
        trips = loop.count
    return _leave(loop, results, carried, (trips, condition), going)


def _enter(loop: _Iteration, mapping: PortMapping, carried: Mapping[int, int]) -> None:
    """The value that a Parameter of the body stands for."""
    parameter = _inner(loop.body, mapping.internal, "parameter", mapping.line)
    if mapping.purpose == "current_iteration":
        shape = loop.inner.constant(np.array(_parameter_dims(parameter), np.int64), f"{parameter.name}/shape")
        number = _add(loop.inner, loop.call, "Reshape", loop.number, shape)
        dtype = parameter.outputs[0].dtype if parameter.outputs else None
        if dtype not in (None, DType.INT64):
            number = _add(loop.inner, loop.call, "Cast", number, to=dtype.onnx if dtype else 0)
        loop.given[parameter.id] = Value(number, dtype, parameter.outputs[0].shape)
        return
    value = _outer(loop.call, mapping)
    if mapping.axis is not None:
        loop.given[parameter.id] = _sliced(loop, mapping, value, parameter)
    elif parameter.id in carried:
        port = parameter.outputs[0] if parameter.outputs else None
        dtype = (port.dtype if port else None) or value.dtype
        if dtype is None:
            raise FormatError(f"the element type of '{parameter.name}' in the body is not declared")
        declared = TensorType(dtype, port.shape if port is not None else None)
        name = loop.inner.input(f"{loop.call.layer.name}/{parameter.name}", declared)
        loop.given[parameter.id] = Value(name, dtype, declared.shape)
        loop.states[parameter.id] = value.name
    else:
        loop.given[parameter.id] = value


def _parameter_dims(parameter: Layer) -> list[int]:
    shape = (parameter.outputs[0].shape if parameter.outputs else None) or ()
    return [d if isinstance(d, int) else 1 for d in shape]


def _sliced(loop: _Iteration, mapping: PortMapping, value: Value, parameter: Layer) -> Value:
    """A part of an input for each iteration, from its start or, with a negative stride, from its end."""
    if value.shape is None or mapping.stride == 0 or mapping.part_size < 1:
        raise FormatError(f"line {mapping.line}: an input of unknown rank, a stride of 0 or a part_size below 1 cannot be sliced")
    axis = loop.call.axis(mapping.axis or 0, len(value.shape))
    size = _size(loop, value, axis)
    if not loop.count:
        loop.count = _trips(loop, mapping, size)
    inner = loop.inner
    stride = inner.constant(np.array([mapping.stride]), f"{parameter.name}/stride")
    one = inner.constant(np.array([1]), f"{parameter.name}/one")
    moved = _add(inner, loop.call, "Mul", _add(inner, loop.call, "Reshape", loop.number, one), stride)
    first = _add(inner, loop.call, "Add", moved, _position(loop, mapping.start, size))
    part = inner.constant(np.array([mapping.part_size]), f"{parameter.name}/part_size")
    if mapping.stride > 0:
        begin, end = first, _add(inner, loop.call, "Add", first, part)
    else:
        begin, end = _add(inner, loop.call, "Sub", first, part), first
    axes = inner.constant(np.array([axis]), f"{parameter.name}/axis")
    name = _add(inner, loop.call, "Slice", value.name, begin, end, axes)
    return Value(name, value.dtype, tuple(mapping.part_size if i == axis else d for i, d in enumerate(value.shape)))


def _size(loop: _Iteration, value: Value, axis: int) -> str:
    """The length of an axis, computed outside of the body."""
    assert value.shape is not None
    size = value.shape[axis]
    return loop.call.const([size]) if isinstance(size, int) else loop.call.op("Shape", value.name, start=axis, end=axis + 1)


def _position(loop: _Iteration, position: int, size: str) -> str:
    """A bound of a slice; negative ones count from behind the end: -1 is the size."""
    call = loop.call
    return call.const([position]) if position >= 0 else call.op("Add", size, call.const([position + 1]))


def _trips(loop: _Iteration, mapping: PortMapping, size: str) -> str:
    call = loop.call
    space = call.op("Sub", _position(loop, mapping.end, size), _position(loop, mapping.start, size))
    return call.op("Div", call.op("Abs", space), call.const([abs(mapping.stride)]))


def _leave(
    loop: _Iteration, results: Mapping[int, Value], carried: Mapping[int, int], start: tuple[str, str], going: str
) -> Outputs:
    call, body = loop.call, loop.body
    condition = next((_results(results, body, m).name for m in body.outputs if m.purpose == "execution_condition"), going)
    kept = [m for m in body.outputs if m.external != -1]
    for parameter in loop.states:
        _inner(body, carried[parameter], "result", call.layer.line)
    states = [results[carried[parameter]].name for parameter in loop.states]
    final = {carried[parameter]: i for i, parameter in enumerate(loop.states)}
    stacks = [m for m in kept if m.axis is not None or m.internal not in final]
    names = [condition, *states, *(_results(results, body, m).name for m in stacks)]
    graph = loop.inner.graph(tuple(_add(loop.inner, call, "Identity", name) for name in names), "body")
    count = len(states) + len(stacks)
    if not count:
        raise GraphError("the loop gives nothing")
    written = call.ops("Loop", count, *start, *loop.states.values(), body=graph)
    by_port = {}
    for mapping in kept:
        if mapping.axis is None and mapping.internal in final:
            by_port[mapping.external] = written[final[mapping.internal]]
        else:
            stack = written[len(states) + stacks.index(mapping)]
            by_port[mapping.external] = _joined(call, mapping, stack, _results(results, body, mapping))
    missing = [port.id for port in call.layer.outputs if port.id not in by_port]
    if missing:
        raise GraphError(f"the body gives nothing for output port {missing[0]}")
    return tuple(by_port[port.id] for port in call.layer.outputs)


def _joined(call: Call, mapping: PortMapping, stack: str, part: Value) -> str:
    """The values of all iterations, along a new first axis: the last of them, or all joined along their axis."""
    if mapping.axis is None:
        return call.op("Gather", stack, call.emitter.constant(np.array(-1), "last"), axis=0)
    if part.shape is None:
        raise FormatError("the rank of a value that is joined is not declared")
    rank = len(part.shape)
    axis = call.axis(mapping.axis, rank)
    if mapping.stride < 0:
        ends = [call.const([end]) for end in (_LARGEST, -_LARGEST, 0, -1)]
        stack = call.op("Slice", stack, *ends)
    moved = call.transpose(stack, (*range(1, axis + 1), 0, *range(axis + 1, rank + 1)))
    if part.shape[axis] == 1:
        return call.op("Squeeze", moved, call.const([axis + 1]))
    behind = [d for d in part.shape[axis + 1 :] if isinstance(d, int)]
    if len(behind) != rank - axis - 1:
        raise FormatError("the shape of a value that is joined is open")
    return call.op("Reshape", moved, call.const([*[0] * axis, -1, *behind]))


TABLE: Table = {"If": _if, "Loop": _loop, "TensorIterator": _tensor_iterator}
