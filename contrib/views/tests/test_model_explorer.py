"""The adapter for Model Explorer, with classes that take the fields of its own."""

from types import SimpleNamespace

import dovetail
from dovetail import Model
from dovetail_views.graph_page import graph_data
from dovetail_views.model_explorer.graphs import graphs

BUILDER = SimpleNamespace(
    Graph=lambda id, nodes: (id, nodes),
    GraphNode=SimpleNamespace,
    KeyValue=lambda key, value: (key, value),
    IncomingEdge=lambda sourceNodeId, targetNodeInputId: (sourceNodeId, targetNodeInputId),  # its names
    MetadataItem=lambda id, attrs: (id, attrs),
)


def test_plan_and_model_as_graphs(chain: Model) -> None:
    core = dovetail.Core()
    with core.compile_model(chain, "NUMPY") as compiled:
        data = graph_data(chain, compiled, core.analyze(chain).types)
    (plan_id, plan), (model_id, model) = graphs(data, BUILDER)
    assert (plan_id, model_id) == ("plan as run", "model as read")
    assert [node.label for node in plan] == ["MatMul", "Softmax"]
    assert ("origins", "product, total, positive") in plan[0].attrs
    assert [node.incomingEdges for node in model] == [[], [("0", "0")], [("1", "0")], [("2", "0")]]
    assert plan[1].outputsMetadata == [("0", [("tensor", "shares:0: float32[3, 5] PLAIN")])]


def test_names_are_layers(looping: Model) -> None:
    core = dovetail.Core()
    with core.compile_model(looping, "NUMPY") as compiled:
        data = graph_data(looping, compiled, core.analyze(looping).types)
    _, (_, model) = graphs(data, BUILDER)
    assert {(node.label, node.namespace) for node in model} >= {("Loop", ""), ("MatMul", "loop/body")}
