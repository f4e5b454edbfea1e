"""Sub-graphs whose nodes take less time on the host than the way to the device and back."""

import numpy as np
import pytest

import dovetail
from dovetail.device import DeviceInfo, DType, Reason
from dovetail.graph import GraphBuilder, Model
from dovetail.op import FLOATS, OpenCLKernel, Operator, TensorType
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.concat import Concat
from dovetail_ops_onnx.equal import Equal
from dovetail_ops_onnx.identity import Identity
from dovetail_ops_onnx.if_ import If
from dovetail_ops_onnx.loop import Loop
from dovetail_ops_onnx.mat_mul import MatMul
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


def inner(scope: str) -> GraphBuilder:
    return GraphBuilder(scope)


def test_each_part_of_a_body_runs_where_it_takes_less(info: DeviceInfo) -> None:
    """The condition, a branch of one node, and what follows stay on the host; the other branch has a large product."""
    body, small, large = inner("body"), inner("small"), inner("large")
    number = body.input("i", "int64", ())
    same = body.node(Identity(), body.input("condition", "bool", ()))
    state = body.input("state", "float32", (1, 1000))
    first = body.node(Equal(), number, body.constant(np.int64(1)), name="first")
    branches = {
        "then_branch": small.graph([small.node(Tanh(), state, name="small")]),
        "else_branch": large.graph([large.node(MatMul(), large.node(Tanh(), state), "w", name="large")]),
    }
    after = body.node(Add(), body.node(If(**branches), first), state, name="after")
    g = GraphBuilder()
    count, x, _ = g.input("count", "int64", ()), g.input("x", "float32", (1, 1000)), g.input("w", "float32", (1000, 1000))
    compiled = dovetail.Core().compile_model(g.model([g.node(Loop(body=body.graph([same, after])), count, "", x)]), info.name)
    rng = np.random.default_rng(4)
    given, w = rng.standard_normal((1, 1000)).astype(np.float32), rng.standard_normal((1000, 1000)).astype(np.float32) / 100
    (got,) = compiled({"count": np.array(4), "x": given, "w": w}).values()
    wide = given.astype(np.float64)
    for number in range(4):
        wide = (np.tanh(wide) if number == 1 else np.tanh(wide) @ w) + wide
    np.testing.assert_allclose(got, wide, rtol=1e-4, atol=1e-4)
    devices = {node.path.rpartition("/")[2]: node.device for node in compiled.report().nodes}
    assert [devices[name] for name in ("first", "small", "large", "after")] == ["NUMPY", "NUMPY", info.name, "NUMPY"]


@pytest.mark.parametrize(("width", "runs"), [(3, "NUMPY"), (1000, "")])
def test_what_stays_the_same_of_a_growing_body_runs_where_it_takes_less(width: int, runs: str, info: DeviceInfo) -> None:
    body = inner("body")
    body.input("i", "int64", ())
    same = body.node(Identity(), body.input("condition", "bool", ()))
    row, rows = body.input("row", "float32", (1, width)), body.input("rows", "float32", None)
    turned = body.node(Tanh(), body.node(MatMul(), row, "w", name="product"), name="turned")
    g = GraphBuilder()
    count, x, _ = g.input("count", "int64", ()), g.input("x", "float32", (1, width)), g.input("w", "float32", (width, width))
    loop = Loop(body=body.graph([same, turned, body.node(Concat(axis=0), rows, turned, name="grown")]))
    ends = g.node(loop, count, "", x, x, outputs=2)
    compiled = dovetail.Core().compile_model(g.model([*ends]), info.name)
    rng = np.random.default_rng(4)
    given = rng.standard_normal((1, width)).astype(np.float32)
    w = (rng.standard_normal((width, width)) / np.sqrt(width)).astype(np.float32)
    for _ in range(2):
        _, found = compiled({"count": np.array(12), "x": given, "w": w}).values()
    expected = [given[0].astype(np.float64)]
    for _ in range(12):
        expected.append(np.tanh(expected[-1] @ w))
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
    devices = {node.path.rpartition("/")[2]: node.device for node in compiled.report().nodes}
    assert [devices[name] for name in ("product", "grown")] == [runs or info.name, "NUMPY"]
