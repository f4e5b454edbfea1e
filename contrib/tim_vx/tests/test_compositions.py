"""Properties of composed operators, tested on those of the pack: a native kernel wins over the composition, at any depth."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dovetail
from dovetail.device import REFERENCE_KERNEL, Accepted, DeviceInfo, Refusal, TypedNode
from dovetail.errors import OperatorError
from dovetail.graph import GraphBuilder
from dovetail.op import FLOATS, OpenCLKernel, Operator
from dovetail.testing import ReferenceDevice, register_device
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_tim_vx.bidirectional_sequence_rnn_ext import BidirectionalSequenceRnnExt
from dovetail_ops_tim_vx.cases._sequences import BACKWARD, FORWARD, WAY, X, extended
from dovetail_ops_tim_vx.rnn_cell import RNNCell
from dovetail_ops_tim_vx.unidirectional_sequence_rnn import UnidirectionalSequenceRnn

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


class CellDevice(ReferenceDevice):
    """Runs references, and names a kernel, `native`, for RNNCell."""

    def supports(self, node: TypedNode) -> Accepted | Refusal:
        answer = super().supports(node)
        return Accepted("native") if answer and isinstance(node.op, RNNCell) else answer


@pytest.fixture
def cells() -> dovetail.Core:
    """A session with CELLS beside what is installed."""
    core = dovetail.Core()
    register_device(core, DeviceInfo("CELLS", "CELLS", "CPU", "RNN cells"), CellDevice)
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
