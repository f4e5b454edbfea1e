"""A device's own pass over its part of a model: when it runs, and that what it gives is compiled."""

import dataclasses

import numpy as np

from dovetail.graph import Graph, GraphBuilder
from dovetail_ops_onnx.abs import Abs
from dovetail_ops_onnx.neg import Neg
from dovetail_ops_onnx.relu import Relu


def test_the_part_is_compiled_as_the_device_lowers_it(toy_core, monkeypatch):
    core, opened = toy_core(A=lambda node: node.op.key == "Neg", B=lambda node: False)
    seen: list[list[str]] = []

    def lower(self, graph: Graph) -> Graph:
        seen.append([self.info.name, *(node.op.key for node in graph.nodes)])
        swapped = (dataclasses.replace(n, op=Abs()) if isinstance(n.op, Relu) else n for n in graph.nodes)
        return graph.replace(nodes=tuple(swapped))

    monkeypatch.setattr("dovetail.device.Device.lower", lower)
    g = GraphBuilder()
    model = g.model([g.node(Neg(), g.node(Relu(), g.input("x", "float32", (3,))))])
    (got,) = core.compile_model(model, "TOGETHER:A,B")({"x": np.array([-1, 0, 2], np.float32)}).values()
    np.testing.assert_array_equal(got, [-1, 0, -2])
    assert seen == [["A.0", "Relu"], ["B.0", "Neg"]]
    assert [node.op.key for device in opened for graph in device.compiled for node in graph.nodes] == ["Abs", "Neg"]
