"""`compare --bisect` finds kernels that are wrong only when they are merged."""

import math
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dovetail
from dovetail import GraphBuilder, Model, hookimpl
from dovetail.device import (
    Accepted,
    Device,
    DeviceInfo,
    Executable,
    ExecutableRequest,
    Graph,
    MemoryPlan,
    Node,
    NodeReport,
    Refusal,
    TypedNode,
    node_reference,
)  # fmt: skip
from dovetail.plugins import temporary
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.softmax import Softmax
from dovetail_views.bisect import bisect
from dovetail_views.peers import DovetailPeer, OnnxRuntimePeer
from dovetail_views.program import program

Array = NDArray[Any]
Fault = Callable[[Node, Sequence[Array | None], Sequence[Array], Array], Array]
INFO = DeviceInfo("FAULTY", "FAULTY", "NPU", "a device with a planted fault")


class FaultyDevice(Device):
    """Runs nodes and their post-ops by references, and spoils results of merged nodes."""

    info = INFO

    def __init__(self, fault: Fault) -> None:
        self._fault = fault

    def supports(self, node: TypedNode) -> Accepted | Refusal:
        return Accepted("merged" if node.post_ops else "single")

    def compile(self, graph: Graph, options: Mapping[str, Any]) -> Executable:
        return _Executable(graph, self._fault)


class _Executable(Executable):
    def __init__(self, graph: Graph, fault: Fault) -> None:
        self.graph, self.fault, self.memory = graph, fault, MemoryPlan()
        names = [tuple(p.kind for p in node.post_ops) for node in graph.nodes]
        self.reports = tuple(
            NodeReport(node.name, node.op.key, "merged" if chain else "single", False, chain, node.origins)
            for node, chain in zip(graph.nodes, names, strict=True)
        )

    def create_request(self) -> ExecutableRequest:
        return _Request(self)


class _Request(ExecutableRequest):
    def __init__(self, executable: _Executable) -> None:
        self._executable = executable

    def run(self, inputs: Sequence[Array]) -> Sequence[Array]:
        graph = self._executable.graph
        values = {**graph.constants, **dict(zip(graph.inputs, inputs, strict=True))}
        for node in graph.nodes:
            given = [values[name] if name else None for name in node.inputs]
            operands = [values[name] for name in node.operands]
            results = node_reference(node, given, operands)
            if node.post_ops:
                results[0] = self._executable.fault(node, given, operands, results[0])
            values.update(zip(node.writes, results, strict=True))
        return [values[name] for name in graph.outputs]


def wrong_post_op(node: Node, given: Sequence[Array | None], operands: Sequence[Array], result: Array) -> Array:
    """The last post-op of a product is forgotten."""
    if node.op.op_type != "MatMul" or len(node.post_ops) < 2:
        return result
    kept = Node(node.name, node.op, node.inputs, node.outputs, node.post_ops[:-1])
    return node_reference(kept, given, operands)[0]


def wrong_layout(node: Node, given: Sequence[Array | None], operands: Sequence[Array], result: Array) -> Array:
    """A merged convolution writes its channels last."""
    if node.op.op_type != "Conv":
        return result
    return np.ascontiguousarray(result.transpose(0, 2, 3, 1)).reshape(result.shape)


def wrong_tail(node: Node, given: Sequence[Array | None], operands: Sequence[Array], result: Array) -> Array:
    """A merged node with a last dimension of 7 leaves out what is after the last whole block of 4."""
    if node.op.op_type != "Softmax" or result.shape[-1] != 7:
        return result
    spoiled = result.copy()
    spoiled[..., 4:] = 0
    return spoiled


@pytest.fixture
def planted(request: pytest.FixtureRequest) -> Iterator[dovetail.Core]:
    @hookimpl
    def dovetail_device_info(config: Mapping[str, Any]) -> list[DeviceInfo]:
        return [INFO]

    @hookimpl
    def dovetail_device_open(info: DeviceInfo, options: Mapping[str, Any]) -> Device:
        return FaultyDevice(request.param)

    plugin = SimpleNamespace(
        dovetail_api="1.0", dovetail_device_info=dovetail_device_info, dovetail_device_open=dovetail_device_open
    )
    with temporary(plugin, kind="devices", key="faulty", name="faulty"):
        yield dovetail.Core()


def floats(*shape: int) -> Array:
    """Positive and negative numbers, the same for the same shape, of which more are positive: sums stay above zero."""
    return (np.random.default_rng(shape).standard_normal(shape) + 0.5).astype(np.float32)


def network() -> Model:
    """Twenty-seven nodes in ten of the plan: four of Conv, Add, Relu; three of Softmax, Add; three of MatMul, Add, Relu."""
    g = GraphBuilder()
    value = g.input("x", "float32", (1, 3, 5, 7))
    for index in range(4):
        value = g.node(Conv(pads=(1, 1, 1, 1)), value, g.constant(floats(3, 3, 3, 3) / 4), name=f"conv_{index}")
        value = g.node(Relu(), g.node(Add(), value, g.constant(floats(3, 1, 1)), name=f"bias_{index}"), name=f"relu_{index}")
    for index in range(3):
        value = g.node(Add(), g.node(Softmax(), value, name=f"shares_{index}"), g.constant(floats(7)), name=f"shift_{index}")
    for index in range(3):
        value = g.node(MatMul(), value, g.constant(floats(7, 7) / 3), name=f"product_{index}")
        value = g.node(Relu(), g.node(Add(), value, g.constant(floats(7)), name=f"sum_{index}"), name=f"positive_{index}")
    return g.model([value], "network")


CASES = [
    pytest.param(wrong_post_op, "product_0", ("product_0", "sum_0", "positive_0"), id="post-op"),
    pytest.param(wrong_layout, "conv_0", ("conv_0", "bias_0", "relu_0"), id="layout"),
    pytest.param(wrong_tail, "shares_0", ("shares_0", "shift_0"), id="tail"),
]


@pytest.mark.parametrize(("planted", "node", "origins"), CASES, indirect=["planted"])
def test_a_wrong_merged_kernel_is_found(planted: dovetail.Core, node: str, origins: tuple[str, ...], tmp_path: Path) -> None:
    model, inputs = network(), {"x": floats(1, 3, 5, 7)}
    subject = DovetailPeer(planted, "FAULTY")
    found = bisect(model, inputs, subject, DovetailPeer(planted, "NUMPY"), 1e-4)
    assert not found.agree
    assert found.node is not None
    assert (found.node.name, found.node.kernel, found.origins) == (node, "merged", origins)
    assert found.kept
    assert found.runs <= math.ceil(math.log2(found.nodes)) + 2
    assert found.passes == ("fuse_post_ops",)
    assert found.part is not None
    assert [one.name for one in found.part.model.graph.nodes] == list(origins)
    # On a device without the fault the program finds what the peer found.
    text = program(found.part, "planted", "NUMPY", {}, 1e-4)
    (tmp_path / "shows.py").write_text(text, encoding="utf-8")
    done = subprocess.run([sys.executable, tmp_path / "shows.py"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 of" in done.stdout


@pytest.mark.parametrize("planted", [wrong_tail], indirect=True)
def test_the_program_shows_the_difference(planted: dovetail.Core) -> None:
    model, inputs = network(), {"x": floats(1, 3, 5, 7)}
    found = bisect(model, inputs, DovetailPeer(planted, "FAULTY"), DovetailPeer(planted, "NUMPY"), 1e-4)
    assert found.part is not None
    code = compile(program(found.part, "planted", "FAULTY", {}, 1e-4), "shows.py", "exec")
    with pytest.raises(SystemExit) as ended:
        exec(code, {"__name__": "__main__"})
    assert ended.value.code == 1


@pytest.mark.parametrize("planted", [wrong_tail], indirect=True)
def test_another_property_set_as_the_peer(planted: dovetail.Core) -> None:
    model, inputs = network(), {"x": floats(1, 3, 5, 7)}
    peer = DovetailPeer(planted, "FAULTY", {"FUSION": False})
    found = bisect(model, inputs, DovetailPeer(planted, "FAULTY"), peer, 1e-4)
    assert found.origins == ("shares_0", "shift_0")
    assert peer.title == "FAULTY with FUSION=False"


def test_sides_that_agree() -> None:
    core = dovetail.Core()
    found = bisect(network(), {"x": floats(1, 3, 5, 7)}, DovetailPeer(core, "NUMPY"), DovetailPeer(core, "NUMPY"), 1e-6)
    assert found.agree
    assert found.runs == 2
    assert found.part is None


def onnx_file(path: Path) -> Path:
    import onnx
    from onnx import helper, numpy_helper

    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "product"),
        helper.make_node("Add", ["a", "b"], ["c"], "total"),
        helper.make_node("Relu", ["c"], ["d"], "positive"),
        helper.make_node("Softmax", ["d"], ["y"], "shares"),
    ]
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, 7]) for name in ("x", "y")]
    constants = [numpy_helper.from_array(floats(7, 7), "w"), numpy_helper.from_array(floats(7) - 2, "b")]
    graph = helper.make_graph(nodes, "small", ends[:1], ends[1:], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.parametrize("planted", [wrong_post_op], indirect=True)
def test_onnxruntime_as_the_peer(planted: dovetail.Core, tmp_path: Path) -> None:
    path = onnx_file(tmp_path / "small.onnx")
    found = bisect(planted.read_model(path), {"x": floats(2, 7)}, DovetailPeer(planted, "FAULTY"), OnnxRuntimePeer(path), 1e-4)
    assert found.origins == ("product", "total", "positive")


@pytest.mark.parametrize("planted", [wrong_post_op], indirect=True)
def test_the_command(planted: dovetail.Core, invoke: Any, tmp_path: Path) -> None:
    path = onnx_file(tmp_path / "small.onnx")
    result = invoke("compare", path, "-d", "FAULTY", "--bisect", "-o", "shows.py", "--json", code=1)
    assert '"origins": [\n    "product",\n    "total",\n    "positive"\n  ]' in result.stdout
    assert (tmp_path / "shows.py").read_text(encoding="utf-8").startswith('"""Made by')
    assert "all outputs agree" in invoke("compare", "--bisect", path, "-d", "NUMPY", "-d", "NUMPY").stdout


def test_what_onnxruntime_refuses_is_an_error_with_its_text(invoke: Any, tmp_path: Path) -> None:
    from onnx import TensorProto, helper, save

    unknown = helper.make_node("Twice", ["x"], ["y"], domain="com.acme")
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.acme", 1)]
    save(helper.make_model(helper.make_graph([unknown], "g", [x], [y]), opset_imports=opsets, ir_version=8), tmp_path / "m.onnx")
    (tmp_path / "twice.py").write_text(
        "from dovetail.op import operator\n\n\n@operator('com.acme')\ndef twice(X):\n    return X + X\n"
    )
    given = ("compare", tmp_path / "m.onnx", "--bisect", "-l", tmp_path / "twice.py")
    assert "Error: onnxruntime: " in invoke(*given, "-d", "NUMPY", "-d", "onnxruntime", code=1).stderr
    assert "-d DEVICE -d onnxruntime" in invoke(*given, "-d", "onnxruntime", code=2).stderr


def test_the_program_is_checked_before_the_search(invoke: Any, tmp_path: Path) -> None:
    path = onnx_file(tmp_path / "small.onnx")
    result = invoke("compare", path, "-d", "NUMPY", "--bisect", "-o", tmp_path / "none" / "shows.py", code=1)
    assert "cannot be written" in result.stderr
