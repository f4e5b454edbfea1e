"""Nodes for which the user gave a device a kernel: typed as the model declares, and left whole by every pass."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import dovetail_ops_onnx as ops
from dovetail.device import Accepted, Device, DeviceInfo, Executable, Graph, Node, Reason, Refusal, TensorType, TypedNode
from dovetail.errors import ShapeError, UnknownOperator
from dovetail.evaluate.reference import run_reference
from dovetail.graph import DType, GraphBuilder
from dovetail.internal.opaque import OpaqueOperator, PinnedOperator
from dovetail.op import Operator, UnboundOperator
from dovetail.passes.constant_folding import fold_constants
from dovetail.passes.opaque import declare, pin


class Prescriber(Device):
    """Has a kernel of the user's for some names, which takes float32 only, and one of its own for everything."""

    info = DeviceInfo("D", "D", "CPU", "D")

    def __init__(self, *names: str) -> None:
        self.names = names

    def prescribes(self, domain: str, op_type: str) -> bool:
        return op_type in self.names

    def supports(self, node: TypedNode) -> Accepted | Refusal:
        if isinstance(node.op, OpaqueOperator) and (node.op.op_type not in self.names or node.inputs[0].dtype is not F32):
            return Refusal(Reason.DTYPE)
        return Accepted("k")

    def compile(self, graph: Graph, options: Mapping[str, Any]) -> Executable:
        raise AssertionError("nothing is compiled here")


F32 = DType.FLOAT32


def find(domain: str, op_type: str, version: int) -> type[Operator]:
    found = None if domain else ops.find(op_type, version)
    if found is None:
        raise UnknownOperator(f"no operator {domain}::{op_type} is known")
    return found


def unbound(op_type: str, result: TensorType | None, dims: tuple[int, ...] = (2, 3)) -> Graph:
    types = {"x": TensorType(F32, dims)} | ({} if result is None else {"y": result})
    return Graph((Node("n", UnboundOperator("my", op_type, 1, {"k": 2}), ("x",), ("y",)),), ("x",), ("y",), {}, types)


def test_an_unknown_operator_has_the_types_that_the_model_declares() -> None:
    graph = declare(unbound("Twist", TensorType(F32, (3, 2))), find, [Prescriber(), Prescriber("Twist")])
    op = graph.nodes[0].op
    assert isinstance(op, OpaqueOperator)
    assert (op.key, op.raw, op.known) == ("my::Twist", {"k": 2}, None)
    assert fold_constants(graph).types["y"] == TensorType(F32, (3, 2))
    assert not op.has_reference()


def test_an_operator_that_no_device_prescribes_stays_unbound() -> None:
    graph = unbound("Twist", TensorType(F32, (3, 2)))
    assert declare(graph, find, [Prescriber("Other")]) is graph


@pytest.mark.parametrize(("result", "said"), [(None, "nothing"), (TensorType(F32, ("N", 2)), r"float32\[N, 2\]")])
def test_without_declared_shapes_the_error_says_what_to_write(result: TensorType | None, said: str) -> None:
    graph = declare(unbound("Twist", result), find, [Prescriber("Twist")])
    with pytest.raises(ShapeError, match=f"node 'n'.*my::Twist.*declares {said} for output 0") as raised:
        fold_constants(graph)
    assert "Operator class with infer()" in str(raised.value)


def test_declared_shapes_hold_for_the_declared_inputs_only() -> None:
    graph = declare(unbound("Twist", TensorType(F32, (3, 2))), find, [Prescriber("Twist")])
    changed = graph.replace(types={**graph.types, "x": TensorType(F32, (4, 3))})
    with pytest.raises(ShapeError, match=r"declares float32\[2, 3\] for input 0"):
        fold_constants(changed)


def typed(dtype: str) -> Graph:
    g = GraphBuilder()
    x = g.input("x", dtype, (2, 3))
    relu, conv = find("", "Relu", 20), find("", "LeakyRelu", 20)
    y = g.node(conv(alpha=0.5), g.node(relu(), x, name="first"), name="second")
    return fold_constants(g.graph([y]))


def test_a_pinned_node_offers_passes_nothing_but_computes_elsewhere() -> None:
    graph = pin(typed("float32"), [Prescriber("LeakyRelu")])
    first, second = graph.nodes
    assert type(first.op) is find("", "Relu", 20)
    assert isinstance(second.op, PinnedOperator)
    assert (second.op.key, second.op.raw) == ("LeakyRelu", {"alpha": 0.5})
    assert second.op.post_ops([graph.types["x"]], ["x"], 0) is None
    assert fold_constants(graph).types == graph.types
    array = np.array([[-2.0, 0, 3], [1, -1, 4]], np.float32)
    got = run_reference(second, [array], [graph.types[second.outputs[0]]])
    np.testing.assert_array_equal(got[0], np.where(array < 0, array / 2, array))


def test_a_node_that_the_kernel_refuses_or_that_runs_elsewhere_is_not_pinned() -> None:
    graph = pin(typed("float64"), [Prescriber("LeakyRelu")])
    assert not any(isinstance(node.op, PinnedOperator) for node in graph.nodes)
    graph = pin(typed("float32"), [Prescriber(), Prescriber("LeakyRelu")])
    assert not any(isinstance(node.op, PinnedOperator) for node in graph.nodes)
