"""Sub-graphs whose nodes take less time on the host than the way to the device and back."""

import numpy as np
import pytest

import dovetail
from dovetail.device import DeviceInfo, DType, Reason
from dovetail.graph import GraphBuilder, Model
from dovetail.op import FLOATS, OpenCLKernel, Operator, TensorType
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.identity import Identity
from dovetail_ops_onnx.loop import Loop
from dovetail_ops_onnx.tanh import Tanh

pytestmark = pytest.mark.exhaustive(0.5)  # each test compiles programs


class Doubled(Operator):
    """Twice the input, by a kernel that its author gave OpenCL."""

    domain = "test"
    inputs = ("X: T",)
    types = {"T": FLOATS}
    kernels = (
        OpenCLKernel(
            source="__kernel void twice(__global const float* x, __global float* y) { y[0] = 2 * x[0]; }",
            entry="twice",
            global_size=lambda inputs, outputs: (1,),
        ),
    )

    def infer(self, x: TensorType) -> TensorType:
        return x

    def reference(self, x: np.ndarray) -> np.ndarray:
        return x + x


def model(width: int, op: Operator) -> Model:
    body = GraphBuilder(outer={"step": TensorType(DType.FLOAT32, (width,))})
    body.input("i", "int64", ())
    same = body.node(Identity(), body.input("condition", "bool", ()))
    state = body.input("state", "float32", (width,))
    moved = body.node(Add(), body.node(op, state, name="own"), "step", name="moved")
    g = GraphBuilder()
    count, x, _ = g.input("count", "int64", ()), g.input("x", "float32", (width,)), g.input("step", "float32", (width,))
    return g.model([g.node(Loop(body=body.graph([same, moved])), count, "", x)])


@pytest.mark.parametrize(
    ("width", "op", "runs"),
    [
        (9, Tanh(), "NUMPY"),
        (100_000, Tanh(), ""),
        (1, Doubled(), ""),
    ],
)
def test_bodies_run_where_they_take_less(width: int, op: Operator, runs: str, info: DeviceInfo) -> None:
    rng = np.random.default_rng(4)
    x, step = (rng.standard_normal(width).astype(np.float32) for _ in range(2))
    compiled = dovetail.Core().compile_model(model(width, op), info.name)
    (got,) = compiled({"count": np.array(5), "x": x, "step": step}).values()
    wide = x.astype(np.float64)
    for _ in range(5):
        wide = (np.tanh(wide) if isinstance(op, Tanh) else 2 * wide) + step
    np.testing.assert_allclose(got, wide, rtol=1e-5, atol=1e-6)
    nodes = [node for node in compiled.report().nodes if node.path.endswith(("/moved", "/own"))]
    assert {node.device for node in nodes} == {runs or info.name}
    said = {(by, refusal.reason) for node in nodes for by, refusal in node.refusals if by == info.name}
    assert said == ({(info.name, Reason.TIME)} if runs else set())
