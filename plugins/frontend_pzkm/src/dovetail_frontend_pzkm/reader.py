"""Bytes to `Model`: the file, its tables, tensors, then layers in any order."""

from collections.abc import Iterable, Sequence

from dovetail.errors import DovetailError
from dovetail.frontend import (
    FormatError,
    Graph,
    GraphError,
    Model,
    ModelSource,
    OutOfMemory,
    TensorType,
    printable,
    unique_name,
    validate,
)
from dovetail_frontend_pzkm.catalogue import layer_type
from dovetail_frontend_pzkm.layers import LAYERS
from dovetail_frontend_pzkm.schema import Connect, DataLayout, Layer, PModel, Tensor, Time
from dovetail_frontend_pzkm.schema import TensorType as Origin
from dovetail_frontend_pzkm.scope import OPSET, Construction, Scope, Value
from dovetail_frontend_pzkm.values import attribute_values, read_shape, tensor_array, tensor_dtype
from dovetail_frontend_pzkm.wire import read_tables

__all__ = ["read"]

FILE_LIMIT = 2**31 - 1
"""The offsets of a flatbuffer reach no further."""

_FOREIGN = (
    (b"\x89PNG", "a PNG image"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"\x7fELF", "a program or shared library"),
    (b"\x93NUMPY", "a NumPy array file"),
    (b"version https://git-lfs", "a Git-LFS pointer, not the file itself (run: git lfs pull)"),
    (b"<", "an XML or HTML file"),
    (b"{", "JSON"),
)


def read(source: ModelSource) -> Model:
    """The model, each layer as nodes of ONNX's operators (`UnboundOperator`).

    Raises `FormatError` for a malformed file, `GraphError` for an invalid graph, `OutOfMemory`; each names file and layer.
    """
    try:
        content = source.read(FILE_LIMIT)
        _check_foreign(content)
        return _model(read_tables(content, PModel), source.name)
    except (FormatError, GraphError, OutOfMemory) as error:
        if not error.message.startswith(source.name):
            error.message = f"{source.name}: {error.message}"
        raise
    except MemoryError:
        raise OutOfMemory(f"{source.name}: the model does not fit into memory") from None


def _check_foreign(content: bytes) -> None:
    for signature, what in _FOREIGN:
        if content.startswith(signature):
            raise FormatError(f"this is {what}, not a .pzkm model")
    if content[4:8] == b"TFL3":
        raise FormatError("this is a TensorFlow Lite model, not a .pzkm model")


def _model(stored: PModel, source: str) -> Model:
    construction = Construction()
    values = _tensors(stored, construction)
    inputs = _runtime(stored.model_runtime_input_id, stored.model_runtime_input_num, "input", values)
    outputs = _runtime(stored.model_runtime_output_id, stored.model_runtime_output_num, "output", values)
    _check_count("layer_num", stored.layer_num, len(stored.layer_buffer))
    for layer in stored.layer_buffer:
        _translate(layer, values, construction, {value.name for value in inputs})
    types = {value.name: TensorType(value.dtype, value.shape) for value in inputs}
    names = tuple(construction.name_of(value) for value in outputs)
    constants = construction.constants
    types |= {name: TensorType.of(array, known=True) for name, array in constants.items()}
    graph = Graph(tuple(construction.nodes), tuple(v.name for v in inputs), names, constants, types, stored.model_name or "graph")
    validate(graph)
    return Model(graph, {"": OPSET}, source, "pzkm", _metadata(stored))


# --- tensors --------------------------------------------------------------------------------------------------------------


def _tensors(stored: PModel, construction: Construction) -> dict[int, Value]:
    _check_count("all_tensor_num", stored.all_tensor_num, len(stored.tensor_buffer))
    found: dict[int, Value] = {}
    for tensor in stored.tensor_buffer:
        where = f"tensor {tensor.id} '{printable(tensor.name)}'"
        if tensor.id in found:
            raise FormatError(f"{where}: another tensor has the id {tensor.id}")
        name = unique_name(tensor.name or f"tensor_{tensor.id}", construction.taken)
        try:
            found[tensor.id] = _value(tensor, name)
        except FormatError as error:
            raise FormatError(f"{where}: {error.message}", hint=error.hint) from None
    return found


def _value(tensor: Tensor, name: str) -> Value:
    if tensor.data_layout not in list(DataLayout):
        raise FormatError(f"the data layout has the unknown number {tensor.data_layout}; known: 0 to 3")
    if tensor.tesor_type not in list(Origin):
        raise FormatError(f"the tensor type has the unknown number {tensor.tesor_type}; known: 0 (const), 1 (dynamic)")
    shape = read_shape(tensor.shape)
    array = tensor_array(tensor, shape) if tensor.tesor_type == Origin.CONST else None
    return Value(name, shape, tensor_dtype(tensor), array, tensor.data_layout)


def _runtime(ids: Sequence[int], number: int, what: str, values: dict[int, Value]) -> list[Value]:
    _check_count(f"model_runtime_{what}_num", number, len(ids))
    for one in ids:
        if one not in values:
            raise GraphError(f"the model's {what} is tensor {one}, which the file does not have")
    found = [values[one] for one in ids]
    if what == "input" and (constant := next((v for v in found if v.array is not None), None)):
        raise GraphError(f"the model's input '{constant.label}' is a constant tensor")
    return found


def _check_count(name: str, stated: int, actual: int) -> None:
    if stated != actual:
        raise FormatError(f"{name} is {stated}, but there are {actual}", hint="the file is damaged, or was cut off")


# --- layers ---------------------------------------------------------------------------------------------------------------


def _translate(layer: Layer, values: dict[int, Value], construction: Construction, model_inputs: set[str]) -> None:
    where = f"layer {layer.id} '{printable(layer.name)}' ({printable(layer.type)})"
    try:
        kind = layer_type(layer.type)
        inputs = _ports(kind.inputs, layer.input_id, values, "input")
        outputs = _ports((), layer.output_id, values, "output")
        if _is_marker(layer, outputs, model_inputs):
            return
        name = unique_name(layer.name or f"{layer.type}_{layer.id}", construction.node_names)
        made = [value for value in outputs if value is not None]
        if layer.type == "ConstantLayer" and made and made[0].array is not None:
            return  # the tensor is a constant as it is
        if not made or any(value.array is not None for value in made):
            raise FormatError("the layer has no output" if not made else f"its output '{made[0].label}' is a constant tensor")
        scope = Scope(construction, layer, name, attribute_values(kind, layer.attrs), inputs, made)
        if layer.type != "SplitterLayer" and len(made) != 1:
            raise FormatError(f"the layer has {len(made)} outputs; accepted: 1")
        LAYERS[layer.type](scope)
    except (FormatError, GraphError) as error:
        raise type(error)(f"{where}: {error.message}", hint=error.hint) from None
    except DovetailError as error:
        raise FormatError(f"{where}: {error.message}", hint=error.hint) from error


def _is_marker(layer: Layer, outputs: Iterable[Value | None], model_inputs: set[str]) -> bool:
    """True for a layer that only says where the model begins or ends."""
    if layer.type == "InputLayer" and not layer.input_id:
        return all(value is not None and value.name in model_inputs for value in outputs)
    return layer.type == "OutputLayer" and not layer.output_id


def _ports(names: Sequence[str], given: Sequence[Connect], values: dict[int, Value], what: str) -> list[Value | None]:
    """The tensors at the ports: by name where the layer type names its ports and the file does too, else in order."""
    by_name = {connect.name: connect for connect in given}
    if names and len(by_name) == len(given) and set(by_name) <= set(names):
        ordered: list[Connect | None] = [by_name.get(name) for name in names]
    else:
        ordered = list(given)
    found = [_tensor_at(connect, values, what) if connect else None for connect in ordered]
    while found and found[-1] is None:
        found.pop()
    return found


def _tensor_at(connect: Connect, values: dict[int, Value], what: str) -> Value | None:
    value = values.get(connect.tensor_id)
    if value is None and connect.necessary:
        raise GraphError(f"its {what} '{printable(connect.name)}' is tensor {connect.tensor_id}, which the file does not have")
    return value


def _metadata(stored: PModel) -> dict[str, str]:
    time = stored.create_time
    entries = {"author": stored.author, "version": stored.version, "name": stored.model_name, "time": time and _time_text(time)}
    return {f"pzkm.{key}": value for key, value in entries.items() if value}


def _time_text(time: Time) -> str:
    """ISO 8601, without a zone: the file has none."""
    return f"{time.year:04}-{time.month:02}-{time.day:02}T{time.hour:02}:{time.min:02}:{time.sec:02}"
