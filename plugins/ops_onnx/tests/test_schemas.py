"""Every standard operator against ONNX's schemas, from operator set 7 on: attributes, ports, data types and versions."""

import functools
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.defs import OpSchema

from dovetail.graph import DType
from dovetail.op import Operator
from dovetail.operators.ports import Port
from dovetail_ops_onnx import find_all

_OLDEST = 7
_KINDS = {
    "INT": {"int", "bool", "DType"},
    "FLOAT": {"float"},
    "STRING": {"str"},
    "TENSOR": {"NDArray"},
    "GRAPH": {"Graph"},
    "INTS": {"tuple[int, ...]"},
    "FLOATS": {"tuple[float, ...]"},
    "STRINGS": {"tuple[str, ...]"},
    "TYPE_PROTO": {"str"},
}
_REFUSED = {("Constant", "sparse_value")}
"""Attributes that an operator refuses by name, with a message of its own."""
_ONNX_NAMES = {"float": "float32", "double": "float64", "float8e8m0": "float8_e8m0fnu", "float4e2m1": "float4_e2m1fn"}
_ONNX_NAMES |= {f"float6{kind}": f"float6_{kind}fn" for kind in ("e2m3", "e3m2")}
_ONNX_NAMES |= {f"float8{kind}": f"float8_{kind}" for kind in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz")}

_CLASSES = find_all()
_every_class = pytest.mark.parametrize("cls", _CLASSES, ids=lambda cls: cls.__name__)


@functools.cache
def _schemas(cls: type[Operator]) -> tuple[OpSchema, ...]:
    """The schemas of the versions for which `cls` is the definition, oldest first."""
    later = [c.since for c in _CLASSES if c.op_type == cls.op_type and c.since > cls.since]
    last = min(later, default=onnx.defs.onnx_opset_version() + 1) - 1
    schemas = (onnx.defs.get_schema(cls.op_type, version) for version in range(max(cls.since, _OLDEST), last + 1))
    return tuple({schema.since_version: schema for schema in schemas}.values())


@functools.cache
def _versions() -> dict[str, set[int]]:
    """Operator of the standard domain -> the versions in which onnx has a schema of it."""
    found = defaultdict[str, set[int]](set)
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "":
            found[schema.name].add(schema.since_version)
    return found


def _newest(cls: type[Operator]) -> OpSchema:
    return onnx.defs.get_schema(cls.op_type)


@_every_class
def test_the_version_is_one_of_onnx(cls: type[Operator]) -> None:
    versions = _versions()[cls.op_type]
    assert cls.since in versions or (cls.since < min(versions) <= _OLDEST) or (cls.since <= _OLDEST and min(versions) <= _OLDEST)
    assert _schemas(cls), "no operator set from 7 on uses this class"


@_every_class
def test_attributes(cls: type[Operator]) -> None:
    for schema in _schemas(cls):
        for name, attribute in schema.attributes.items():
            if (cls.op_type, name) in _REFUSED:
                continue
            if name in cls.legacy_attributes:
                assert cls.legacy_attributes[name] in [port.name for port in cls.inputs]
                continue
            assert name in cls.attributes, f"{name} of version {schema.since_version}"
            _check_attribute(cls, name, attribute)
    later = {*_newest(cls).attributes, *cls.legacy_attributes, cls.output_count}
    assert {name for name in cls.attributes if not any(name in s.attributes for s in _schemas(cls))} <= later


def _check_attribute(cls: type[Operator], name: str, attribute: OpSchema.Attribute) -> None:
    spec = cls.attributes[name]
    assert spec.type_name in _KINDS[attribute.type.name], name
    relaxed = name in _newest(cls).attributes and not _newest(cls).attributes[name].required
    assert spec.required == attribute.required or (not spec.required and relaxed), name
    if attribute.default_value.name:
        _check_default(spec.default, onnx.helper.get_attribute_value(attribute.default_value))


def _check_default(own: Any, theirs: Any) -> None:
    if isinstance(theirs, bytes):
        assert own == theirs.decode()
    elif isinstance(theirs, float):
        assert np.float32(own) == np.float32(theirs)
    elif isinstance(own, DType):
        assert own.onnx == theirs
    elif isinstance(theirs, (list, tuple)):
        assert own == tuple(item.decode() if isinstance(item, bytes) else item for item in theirs)
    else:
        assert own == theirs


@_every_class
def test_inputs(cls: type[Operator]) -> None:
    for schema in _schemas(cls):
        _check_ports(cls.inputs, schema.inputs, _newest(cls).inputs)
        for extra in cls.inputs[len(schema.inputs) :]:
            assert extra.optional or extra.name in cls.legacy_attributes.values(), extra.name


@_every_class
def test_outputs(cls: type[Operator]) -> None:
    for schema in _schemas(cls):
        _check_ports(cls.outputs, schema.outputs, _newest(cls).outputs)
        assert len(cls.outputs) == len(schema.outputs) or all(p.optional for p in cls.outputs[len(schema.outputs) :])


def _check_ports(
    own: Sequence[Port], theirs: Sequence[OpSchema.FormalParameter], newest: Sequence[OpSchema.FormalParameter]
) -> None:
    """Names and marks agree, or are those of the newest version. Optional ports at the end may be missing: they are refused."""
    assert all(formal.option == OpSchema.FormalParameterOption.Optional for formal in theirs[len(own) :])
    for index, (port, formal) in enumerate(zip(own, theirs, strict=False)):
        accepted = [_described(formal), *([_described(newest[index])] if index < len(newest) else [])]
        assert (port.name, port.optional, port.variadic) in accepted


def _described(formal: OpSchema.FormalParameter) -> tuple[str, bool, bool]:
    options = OpSchema.FormalParameterOption
    return formal.name, formal.option == options.Optional, formal.option == options.Variadic


def _accepted(cls: type[Operator], port: Port) -> frozenset[DType] | None:
    """None for a port that takes every type."""
    if not port.type:
        return None
    return cls.types[port.type] if port.type in cls.types else frozenset({DType.of(port.type)})


def _has_typed_ports(cls: type[Operator]) -> bool:
    return any(_accepted(cls, port) is not None for port in (*cls.inputs, *cls.outputs))


@pytest.mark.parametrize("cls", [cls for cls in _CLASSES if _has_typed_ports(cls)], ids=lambda cls: cls.__name__)
def test_every_data_type_of_the_standard_is_accepted_and_no_other(cls: type[Operator]) -> None:
    schemas = _schemas(cls)
    newest = _newest(cls)
    for side in ("inputs", "outputs"):
        for index, port in enumerate(getattr(cls, side)):
            own = _accepted(cls, port)
            if own is None:
                continue
            theirs = [_types(getattr(s, side)[index]) for s in schemas if index < len(getattr(s, side))]
            assert all(types <= own for types in theirs), (port.name, [sorted(d.value for d in t - own) for t in theirs])
            allowed = frozenset().union(*theirs)
            allowed |= _types(getattr(newest, side)[index]) if index < len(getattr(newest, side)) else frozenset()
            assert own <= allowed, (port.name, sorted(d.value for d in own - allowed))


def _types(formal: OpSchema.FormalParameter) -> frozenset[DType]:
    """The tensor types of a formal parameter that dovetail knows."""
    names = [t.removeprefix("tensor(").removesuffix(")") for t in formal.types if t.startswith("tensor(")]
    known = {d.value: d for d in DType}
    return frozenset(known[name] for name in (_ONNX_NAMES.get(n, n) for n in names) if name in known)
