"""The bench for kernels and the reference device: what they build, run and refuse."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.device import DeviceInfo, Eltwise, ExecutableRequest, Graph
from dovetail.errors import UsageError
from dovetail.testing import KernelBench, ReferenceDevice, passed, register_device
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.sub import Sub

INFO = DeviceInfo("TOY.0", "TOY", "CPU", "a toy")
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_a_graph_of_one_node() -> None:
    graph, feeds = KernelBench.single(Add(), [X, X[:1]], constants=[1])
    assert (graph.inputs, graph.outputs, [n.name for n in graph.nodes]) == (("x0",), ("y0",), ["node"])
    assert graph.types["y0"].dims == (2, 3)
    assert len(feeds) == 1
    assert feeds[0] is X
    np.testing.assert_array_equal(graph.constants["x1"], X[:1])


def test_operands_of_post_ops_are_inputs() -> None:
    graph, feeds = KernelBench.single(Relu(), [X], post_ops=[Eltwise("tanh")], operands={"o": X[0]})
    assert graph.inputs == ("x0", "o")
    assert graph.nodes[0].post_ops == (Eltwise("tanh"),)
    assert [a.shape for a in feeds] == [(2, 3), (3,)]


def test_types_that_are_there_are_kept() -> None:
    graph, _ = KernelBench.single(Relu(), [X])
    odd = graph.replace(types={**graph.types, "y0": graph.types["y0"].with_shape((3, 2))})
    assert KernelBench.typed(odd).types["y0"].dims == (3, 2)


def test_inputs_that_are_not_contiguous() -> None:
    bench = KernelBench(ReferenceDevice(INFO))
    graph, feeds = bench.single(Sub(), [X[:, ::-1], np.float32(1)[()].reshape(())])
    (y,) = bench.run(graph, feeds)
    np.testing.assert_array_equal(y, [[1, 0, -1], [4, 3, 2]])


def test_cases_of_a_stem_run() -> None:
    bench = KernelBench(ReferenceDevice(INFO))
    cases = bench.cases("pow")
    assert len(cases) > 3
    for case in cases:
        graph, feeds = bench.single(case.op, case.inputs, case.constants)
        assert passed(case, bench.run(graph, feeds)) == ""
    with pytest.raises(UsageError, match=r"no installed pack .* has cases for 'odd'"):
        bench.cases("odd")


def test_a_refused_node_fails_with_the_reason() -> None:
    bench = KernelBench(ReferenceDevice(INFO, lambda node: node.op.op_type == "Relu"))
    with pytest.raises(AssertionError, match=r"'node' \(Relu\).*operator"):
        bench.run(*bench.single(Relu(), [X]))
    with pytest.raises(AssertionError, match="runs no post-ops"):
        bench.run(*bench.single(Add(), [X, X], post_ops=[Eltwise("tanh")]))


class Drifting(ReferenceDevice):
    """Adds the number of the run to each result."""

    def compile(self, graph: Graph, options: Mapping[str, Any]) -> Any:
        executable = super().compile(graph, options)
        make = executable.create_request

        def create() -> ExecutableRequest:
            request, runs = make(), [0]
            run = request.run

            def counted(inputs: Sequence[Any]) -> Any:
                runs[0] += 1
                return [a + runs[0] for a in run(inputs)]

            request.run = counted
            return request

        executable.create_request = create
        return executable


def test_two_runs_that_differ_fail() -> None:
    bench = KernelBench(Drifting(INFO))
    with pytest.raises(AssertionError, match="two runs of one request differ"):
        bench.run(*bench.single(Relu(), [X]))


def test_a_reference_device_in_a_session() -> None:
    opened = []

    def make(info: DeviceInfo) -> ReferenceDevice:
        opened.append(ReferenceDevice(info))
        return opened[-1]

    with dovetail.Core() as core:
        register_device(core, INFO, make)
        g = dovetail.GraphBuilder()
        with core.compile_model(g.model([g.node(Relu(), g.input("x", "float32", (3,)))]), "TOY") as compiled:
            assert compiled(np.array([-1, 0, 2], np.float32))[0].tolist() == [0, 0, 2]
            assert [node.kernel for node in compiled.report().nodes] == ["ref"]
    assert [[n.op.op_type for n in graph.nodes] for graph in opened[0].compiled] == [["Relu"]]
