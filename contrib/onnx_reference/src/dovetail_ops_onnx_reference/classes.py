"""Operator classes made of ONNX's schemas: attributes, ports and data types are theirs."""

import types
from collections.abc import Iterator
from typing import Any

import onnx
from numpy.typing import NDArray
from onnx.defs import OpSchema

import dovetail_ops_onnx as ops
from dovetail.op import DType, Graph, Operator, Port
from dovetail_ops_onnx_reference.operator import ReferenceOperator
from dovetail_ops_onnx_reference.optimizers import OptimizerOperator

__all__ = ["operator_classes"]

_ATTRIBUTES: dict[str, Any] = {
    "INT": int,
    "FLOAT": float,
    "STRING": str,
    "TENSOR": NDArray[Any],
    "GRAPH": Graph,
    "INTS": tuple[int, ...],
    "FLOATS": tuple[float, ...],
    "STRINGS": tuple[str, ...],
}

_WITHOUT = {("ai.onnx.preview.training", "Gradient")}
"""The operators that onnx.reference does not compute."""


def operator_classes(domain: str) -> Iterator[type[Operator]]:
    """A class for each version of each operator of the domain, but for those that dovetail defines itself."""
    for schema in onnx.defs.get_all_schemas_with_history():
        known = (schema.domain, schema.name) in _WITHOUT or (not domain and ops.versions(schema.name))
        if schema.domain == domain and not schema.deprecated and not known:
            yield _class(schema)


def _class(schema: OpSchema) -> type[Operator]:
    annotations, defaults = {}, {}
    for name, attribute in schema.attributes.items():
        kind = _ATTRIBUTES[str(attribute.type).rpartition(".")[2]]
        annotations[name] = kind if attribute.required else kind | None
        if not attribute.required:
            defaults[name] = _default(attribute)
    sequences = {variable.type_param_str for variable in schema.type_constraints if not _tensor_types(variable.allowed_type_strs)}
    variables = {
        variable.type_param_str: _tensor_types(variable.allowed_type_strs)
        for variable in schema.type_constraints
        if variable.type_param_str not in sequences
    }
    body = {
        "__annotations__": annotations,
        "__doc__": f"{schema.name} of ONNX's domain {schema.domain or 'ai.onnx'} from version {schema.since_version} on.",
        "__module__": __name__,
        "domain": schema.domain,
        "op_type": schema.name,
        "since": schema.since_version,
        "inputs": tuple(_port(formal, variables) for formal in schema.inputs),
        "outputs": tuple(_port(formal, variables) for formal in schema.outputs),
        "types": variables,
        **defaults,
    }
    base = OptimizerOperator if schema.domain == "ai.onnx.preview.training" else ReferenceOperator
    return types.new_class(f"{schema.name}_{schema.since_version}", (base,), exec_body=lambda own: own.update(body))


def _default(attribute: OpSchema.Attribute) -> Any:
    if not attribute.default_value.name:
        return None
    value = onnx.helper.get_attribute_value(attribute.default_value)
    if isinstance(value, onnx.TensorProto):
        # It stands for "none given" (LabelEncoder); onnx.reference takes its own default for it.
        return None
    if isinstance(value, bytes):
        return value.decode()
    return tuple(v.decode() if isinstance(v, bytes) else v for v in value) if isinstance(value, (list, tuple)) else value


def _port(formal: OpSchema.FormalParameter, variables: dict[str, frozenset[DType]]) -> Port:
    options = OpSchema.FormalParameterOption
    fixed = next(iter(_tensor_types([formal.type_str])), None)
    heterogeneous = formal.option == options.Variadic and not formal.is_homogeneous
    kind = formal.type_str if formal.type_str in variables and not heterogeneous else fixed.value if fixed else ""
    return Port(formal.name, formal.option == options.Optional, formal.option == options.Variadic, kind)


def _tensor_types(names: Any) -> frozenset[DType]:
    """The tensor types among ONNX's type names; empty when there are other types as well, which dovetail does not check."""
    found = set()
    for name in names:
        if not name.startswith("tensor("):
            return frozenset()
        number = onnx.TensorProto.DataType.Value(_NUMBERS.get(name[7:-1], name[7:-1].upper()))
        found.add(DType.from_onnx(number))
    return frozenset(found)


_NUMBERS = {"float8e8m0": "FLOAT8E8M0"}
