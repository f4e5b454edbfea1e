"""What composed operators promise, shown on those of the pack: a native kernel wins over the composition, at any depth."""

import dataclasses
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dovetail
from dovetail.device import (
    REFERENCE_KERNEL,
    Accepted,
    Device,
    DeviceInfo,
    Executable,
    ExecutableRequest,
    Graph,
    MemoryPlan,
    NodeReport,
    Reason,
    Refusal,
    TypedNode,
    run_reference,
)
from dovetail.errors import OperatorError
from dovetail.graph import GraphBuilder
from dovetail.op import FLOATS, OpenCLKernel, Operator
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_tim_vx import BidirectionalSequenceRnnExt, RNNCell, UnidirectionalSequenceRnn
from dovetail_ops_tim_vx.cases._sequences import BACKWARD, FORWARD, WAY, X, extended

Array = NDArray[Any]

DOUBLE = """
__kernel void doubled(__global const float *x, __global float *y)
{
    y[get_global_id(0)] = 2.0f * x[get_global_id(0)];
}
"""


class Doubled(Operator):
    """2 X: composed, with an OpenCL kernel besides."""

    domain = "test"
    inputs = ("X: T",)
    outputs = ("Y: T",)
    types = {"T": FLOATS}
    kernels = (OpenCLKernel(source=DOUBLE, entry={"float32": "doubled"}),)

    def compose(self, g: GraphBuilder, x: str) -> Any:
        given = g.type_of(x)
        assert given is not None
        return g.node(Mul(), x, g.constant(2.0, given.dtype), name="times_2")


class Quadrupled(Operator):
    """4 X, by Doubled and Doubled."""

    domain = "test"
    inputs = ("X: T",)
    outputs = ("Y: T",)
    types = {"T": FLOATS}

    def compose(self, g: GraphBuilder, x: str) -> Any:
        return g.node(Doubled(), g.node(Doubled(), x, name="first"), name="second")


class Looping(Operator):
    """An RNNCell, and then the operator itself."""

    domain = "test"
    inputs = ("X: T",)
    outputs = ("Y: T",)
    types = {"T": FLOATS}

    def compose(self, g: GraphBuilder, x: str) -> Any:
        return g.node(Looping(), g.node(RNNCell(), x, x, "", "", x))


class CellDevice(Device):
    """Runs references, and has a kernel of its own, `native`, for RNNCell."""

    info = DeviceInfo("CELLS", "CELLS", "CPU", "RNN cells")

    def supports(self, node: TypedNode) -> Accepted | Refusal:
        if node.post_ops:
            return Refusal(Reason.POST_OP, "has none")
        return Accepted("native" if isinstance(node.op, RNNCell) else REFERENCE_KERNEL)

    def compile(self, graph: Graph, options: Mapping[str, Any]) -> "CellExecutable":
        return CellExecutable(graph)


class CellExecutable(Executable):
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.memory = MemoryPlan(peak=0)
        self.reports = tuple(
            NodeReport(n.name, n.op.key, "native" if isinstance(n.op, RNNCell) else REFERENCE_KERNEL) for n in graph.nodes
        )

    def create_request(self) -> "CellRequest":
        return CellRequest(self.graph)


class CellRequest(ExecutableRequest):
    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def run(self, inputs: Sequence[Array]) -> Sequence[Array]:
        values = {**self.graph.constants, **dict(zip(self.graph.inputs, inputs, strict=True))}
        for node in self.graph.nodes:
            types = [self.graph.types[name] for name in node.writes]
            results = run_reference(node, [values[name] if name else None for name in node.inputs], types)
            values.update(zip(node.writes, results, strict=True))
        return [values[name] for name in self.graph.outputs]


@pytest.fixture
def cells() -> dovetail.Core:
    """A session with CELLS beside what is installed."""

    @dovetail.hookimpl
    def dovetail_device_info(config: Mapping[str, Any]) -> list[DeviceInfo]:
        return [CellDevice.info]

    @dovetail.hookimpl
    def dovetail_device_open(info: DeviceInfo, options: Mapping[str, Any]) -> Device:
        return CellDevice()

    plugin = SimpleNamespace(
        dovetail_api="1.0", dovetail_device_info=dovetail_device_info, dovetail_device_open=dovetail_device_open
    )
    core = dovetail.Core()
    core.plugins.register(plugin, name="cells", kind="devices", key="cells")
    return core


def compiled(core: dovetail.Core, op: Operator, arrays: Sequence[Array], outputs: int, device: str) -> Any:
    g = GraphBuilder()
    names = [g.input(f"x{i}", "float32", a.shape) for i, a in enumerate(arrays)]
    g.node(op, *names, name="top", outputs=[f"y{i}" for i in range(outputs)])
    model = g.model([f"y{i}" for i in range(outputs)])
    return core.compile_model(dataclasses.replace(model, opsets={"tim.vx": 1}), device)


def test_a_native_kernel_of_the_device_stays_at_any_depth(cells: dovetail.Core) -> None:
    model = compiled(cells, BidirectionalSequenceRnnExt(activation="sigmoid"), extended(2), 2, "CELLS")
    results = model({f"x{i}": a for i, a in enumerate(extended(2))})
    np.testing.assert_allclose(results["y1"], np.stack([FORWARD["sigmoid"], BACKWARD["sigmoid"]], axis=1), atol=1e-4)
    native = [node for node in model.report().nodes if node.kernel == "native"]
    assert [node.op for node in native] == ["tim.vx::RNNCell"] * 4
    assert {node.name.rpartition("/")[0] for node in native} == {"top/rnn"}
    assert not any(node.op in ("Gemm", "Tanh", "Sigmoid") for node in model.report().nodes)


def test_the_same_model_is_expanded_on_a_device_without_such_a_kernel() -> None:
    model = compiled(dovetail.Core(), UnidirectionalSequenceRnn(activation="relu", time_major=True), (X, *WAY), 2, "NUMPY")
    np.testing.assert_allclose(model({f"x{i}": a for i, a in enumerate((X, *WAY))})["y1"], FORWARD["relu"], atol=1e-5)
    assert "tim.vx::RNNCell" not in [node.op for node in model.report().nodes]
    origins = {name for node in model.report().nodes for name in (node.name, *node.origins)}
    assert "top/rnn_cell_1/recurrent" in origins


@pytest.mark.parametrize(("op", "factor", "names"), [(Doubled(), 2, ["top"]), (Quadrupled(), 4, ["top/first", "top/second"])])
def test_an_opencl_kernel_of_a_composed_operator_wins_on_opencl_only(op: Operator, factor: int, names: list[str]) -> None:
    x = np.arange(6, dtype=np.float32)
    for device in ("OPENCL", "NUMPY"):
        model = compiled(dovetail.Core(), op, [x], 1, device)
        np.testing.assert_array_equal(model({"x0": x})["y0"], factor * x)
        ran = model.report().nodes
        if device == "OPENCL":
            assert [node.name for node in ran] == names
            assert {node.op for node in ran} == {"test::Doubled"}
            assert REFERENCE_KERNEL not in {node.kernel for node in ran}
        else:
            assert {node.op for node in ran} == {"Mul"}


def test_a_data_type_without_kernel_is_composed_on_opencl_too() -> None:
    g = GraphBuilder()
    y = g.node(Doubled(), g.input("x", "float64", [3]), name="top")
    model = dovetail.Core().compile_model(g.model([y]), "OPENCL")
    np.testing.assert_array_equal(model({"x": np.arange(3.0)})[y], [0, 2, 4])
    assert {node.op for node in model.report().nodes} == {"Mul"}


def test_a_composition_that_contains_itself_is_refused_with_the_chain() -> None:
    g = GraphBuilder()
    g.node(Looping(), g.input("x", "float32", [2, 2]), name="top", outputs=["y"])
    with pytest.raises(OperatorError, match="contains itself: test::Looping -> test::Looping"):
        dovetail.Core().compile_model(g.model(["y"]), "NUMPY")
