"""The message classes by protobuf's C module and by its public functions, in processes of their own."""

import subprocess
import sys

import pytest

pytest.importorskip("google._upb._message")

PROGRAM = """
import sys
from dovetail_frontend_onnx.messages import *
model = ModelProto(ir_version=8)
model.graph.input.add(name="x").type.tensor_type.shape.dim.add(dim_param="N")
model.graph.node.add(op_type="Relu", input=["x"], output=["y"]).attribute.add(name="alpha", f=0.5)
model.graph.initializer.add(dims=[2]).segment.begin = 1
again = ModelProto.FromString(model.SerializeToString())
assert again == model and type(again.graph.node[0]) is NodeProto and isinstance(again.graph.initializer[0], TensorProto)
assert again.graph.input[0].type.tensor_type.shape.dim[0].WhichOneof("value") == "dim_param"
print(IR_VERSION, str(again).count("segment"), "google.protobuf.internal.python_message" in sys.modules)
import google.protobuf.message_factory, onnx
assert onnx.ModelProto.FromString(model.SerializeToString()).graph.node[0].op_type == "Relu"
"""


def printed(implementation: str) -> list[str]:
    program = f"import os; os.environ['PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION'] = {implementation!r}\n{PROGRAM}"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()


def test_the_classes_do_not_need_protobufs_implementation_in_python() -> None:
    by_c, public = printed("upb"), printed("python")
    assert by_c[:2] == public[:2]
    assert (by_c[2], public[2]) == ("False", "True")
