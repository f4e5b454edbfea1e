"""Base of every class of this pack: types by ONNX's shape inference, values by `onnx.reference`."""

import re
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import onnx
from onnx import helper

from dovetail.errors import DataDependentShape, raised_by_handler
from dovetail.frontend import printable
from dovetail.op import DType, Operator, OperatorError, TensorType
from dovetail_ops_onnx_reference.protos import attribute_proto

__all__ = ["ReferenceOperator"]


_WORDS = {"pixel_format": ("RGB", "BGR", "Grayscale"), "mode": ("nesterov", "standard")}
"""Values of attributes of ImageDecoder and Momentum, which ONNX's inference does not check."""


class ReferenceOperator(Operator):
    """An operator by ONNX's own reference. Where ONNX's inference does not determine the shapes, the node runs on the host."""

    inputs: ClassVar[tuple[Any, ...]] = ()
    outputs: ClassVar[tuple[Any, ...]] = ()

    def __post_init__(self) -> None:
        for name in _WORDS.keys() & self.attributes:
            if (given := getattr(self, name)) not in _WORDS[name]:
                raise OperatorError(f"attribute {name!r} is '{printable(given, 40)}'; accepted: {', '.join(_WORDS[name])}")

    def infer(self, *inputs: Any, **_: Any) -> Any:
        """The outputs' types by ONNX's shape inference. Raises `DataDependentShape` where it does not know them."""
        node = self._node([t is not None for t in inputs], self._count(inputs))
        present = [
            (name, t) for name, t in zip(node.input, inputs, strict=False) if t is not None
        ]  # trailing ones may be missing
        types = {name: _type_proto(t) for name, t in present}
        data = {name: onnx.numpy_helper.from_array(t.value, name) for name, t in present if t.value is not None}
        schema = onnx.defs.get_schema(self.op_type, self.since, self.domain)
        try:
            found = onnx.shape_inference.infer_node_outputs(schema, node, types, data, opset_imports=self._opsets())
        except Exception as error:
            if raised_by_handler(error):
                raise
            raise OperatorError(f"ONNX's shape inference: {_first_line(error)}") from error
        return tuple(_known(found.get(name)) for name in node.output)

    def reference(self, *inputs: Any, **_: Any) -> Any:
        """The outputs by `onnx.reference`. Raises `OperatorError` with what it raises."""
        from onnx.reference import ReferenceEvaluator

        node = self._node([v is not None for v in inputs], self._count(inputs))
        names = [name for name in node.input if name]
        given = [v for v in inputs if v is not None]
        infos = [onnx.ValueInfoProto(name=n, type=_value_proto(v)) for n, v in zip(names, given, strict=True)]
        graph = helper.make_graph([node], "node", infos, [onnx.ValueInfoProto(name=name) for name in node.output])
        try:
            with np.errstate(all="ignore"):
                evaluator = ReferenceEvaluator(helper.make_model(graph, opset_imports=self._opsets()))
                results = evaluator.run(None, dict(zip(names, given, strict=True)))
        except Exception as error:
            if raised_by_handler(error):
                raise
            raise OperatorError(f"onnx.reference: {type(error).__name__}: {_first_line(error)}") from error
        return tuple(_ours(value) for value in results)

    def _count(self, inputs: Sequence[Any]) -> int:
        """How many outputs there are."""
        if any(port.variadic for port in self.outputs):
            raise OperatorError(f"{self.key} has a variable number of outputs, which this pack does not know")
        return len(self.outputs)

    def _opsets(self) -> list[onnx.OperatorSetIdProto]:
        standard = helper.make_opsetid("", onnx.defs.onnx_opset_version() if self.domain else self.since)
        return [standard, helper.make_opsetid(self.domain, self.since)] if self.domain else [standard]

    def _node(self, present: Sequence[bool], outputs: int) -> onnx.NodeProto:
        given = {name: value for name in self.attributes if (value := getattr(self, name)) is not None}
        names = [f"x{i}" if there else "" for i, there in enumerate(present)]
        while names and not names[-1]:
            names.pop()
        node = helper.make_node(self.op_type, names, [f"y{i}" for i in range(outputs)], domain=self.domain)
        for name, value in given.items():
            node.attribute.append(attribute_proto(name, value, self.attributes[name].type_name))
        return node


def _type_proto(t: TensorType) -> onnx.TypeProto:
    return helper.make_tensor_type_proto(t.dtype.onnx, t.shape)


def _value_proto(value: Any) -> onnx.TypeProto:
    if isinstance(value, list):
        element = _value_proto(value[0]) if value else helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, None)
        return helper.make_sequence_type_proto(element)
    return _type_proto(TensorType.of(np.asarray(value)))


def _known(proto: onnx.TypeProto | None) -> TensorType:
    tensor = None if proto is None or not proto.HasField("tensor_type") else proto.tensor_type
    if tensor is None or not tensor.elem_type or not tensor.HasField("shape"):
        raise DataDependentShape("ONNX's shape inference finds no type for an output", hint="the node runs on the host")
    dims = tuple(int(d.dim_value) if d.HasField("dim_value") else None for d in tensor.shape.dim)
    return TensorType(DType.from_onnx(tensor.elem_type), dims)


def _ours(value: Any) -> Any:
    """A result as the runtime has it: strings are objects, and an array owns what it shows."""
    if isinstance(value, list) or value is None:
        return value
    array = np.asarray(value)
    return array.astype(object) if array.dtype.kind in "US" else array


def _first_line(error: Exception) -> str:
    """The first line of the error's text, without addresses of objects, which differ in each run."""
    line = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return printable(re.sub(r" object at 0x[0-9a-fA-F]+>", ">", line), 200)
