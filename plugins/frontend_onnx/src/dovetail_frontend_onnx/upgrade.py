"""Models of operator sets before 7, brought to a newer one by the version converter of the package onnx, which is optional.

It ends the process for a LabelEncoder whose input has no type, which onnx's inference leaves behind a tree ensemble.
"""

import onnx
from onnx import ModelProto, helper, numpy_helper, shape_inference, version_converter

from dovetail.errors import raised_by_handler
from dovetail.frontend import FormatError, printable
from dovetail_frontend_onnx import messages
from dovetail_frontend_onnx.opsets import all_nodes, versions

__all__ = ["upgraded"]

_TARGET = 13
"""Broadcasting by axis, and attributes that became inputs, are gone there."""


def upgraded(proto: messages.ModelProto) -> messages.ModelProto:
    """A converted copy. Raises `FormatError`."""
    version = versions(proto)[0]
    hint = "accepted: 7 and later, and older ones that onnx.version_converter converts"
    if any(node.op_type == "LabelEncoder" for node in all_nodes(proto.graph)):
        raise FormatError(f"the model is of operator set {version} and has a LabelEncoder, which onnx cannot convert", hint=hint)
    if any(item.data_location == messages.TensorProto.EXTERNAL for item in proto.graph.initializer):
        raise FormatError(f"the model is of operator set {version} and has external data", hint=hint)
    try:
        # The converter trusts its input; the checker does not.
        copy = ModelProto.FromString(proto.SerializeToString())
        onnx.checker.check_model(copy)
        _slopes_by_channel(copy)
        content = version_converter.convert_version(copy, _TARGET).SerializeToString()
        converted: messages.ModelProto = messages.ModelProto.FromString(content)
        return converted
    except Exception as error:  # C++ code that raises what it likes for a malformed model
        if raised_by_handler(error):
            raise
        said = printable(" ".join(str(error).split()))
        raise FormatError(f"the model is of operator set {version}, and converting it failed: {said}", hint=hint) from None


def _slopes_by_channel(proto: ModelProto) -> None:
    """PRelu had one slope for each channel; from 7 on it broadcasts from the last axis, which the converter overlooks."""
    ranks = {}
    inferred = shape_inference.infer_shapes(proto).graph
    for item in (*inferred.input, *inferred.value_info):
        if item.type.tensor_type.HasField("shape"):
            ranks[item.name] = len(item.type.tensor_type.shape.dim)
    slopes = {item.name: item for item in proto.graph.initializer}
    declared = {item.name: item for item in proto.graph.input}
    for node in proto.graph.node:
        if node.op_type != "PRelu" or ranks.get(node.input[0], 2) == 2:
            continue
        rank, name = ranks[node.input[0]], node.input[1]
        if name in slopes:
            array = numpy_helper.to_array(slopes[name]).reshape(-1, *(1,) * (rank - 2))
            slopes[name].CopyFrom(numpy_helper.from_array(array, name))
            if name in declared:
                kind = declared[name].type.tensor_type.elem_type
                declared[name].CopyFrom(helper.make_tensor_value_info(name, kind, array.shape))
