"""The graphs of a page as those of Model Explorer."""

from collections.abc import Mapping
from typing import Any

__all__ = ["graphs"]


def graphs(data: Mapping[str, Any], builder: Any) -> list[Any]:
    """The plan and the model of `graph_data`, made of the classes of `builder`, which is `model_explorer.graph_builder`."""
    return [_graph(title, data["views"][name], builder) for name, title in (("plan", "plan as run"), ("model", "model as read"))]


def _graph(title: str, view: Mapping[str, Any], builder: Any) -> Any:
    incoming: dict[int, list[Mapping[str, Any]]] = {}
    for edge in view["edges"]:
        incoming.setdefault(edge["to"], []).append(edge)
    return builder.Graph(id=title, nodes=[_node(node, incoming.get(node["id"], []), builder) for node in view["nodes"]])


def _node(node: Mapping[str, Any], edges: list[Mapping[str, Any]], builder: Any) -> Any:
    return builder.GraphNode(
        id=str(node["id"]),
        label=node["op"],
        # Layers are the folders of a name: the scopes of exporters, and the sub-graphs.
        namespace=node["name"].strip("/").rpartition("/")[0],
        attrs=[builder.KeyValue(key=key, value=text) for key, text in _attributes(node)],
        incomingEdges=[
            builder.IncomingEdge(sourceNodeId=str(edge["from"]), targetNodeInputId=str(index)) for index, edge in enumerate(edges)
        ],
        outputsMetadata=[
            builder.MetadataItem(id=str(index), attrs=[builder.KeyValue(key="tensor", value=text)])
            for index, text in enumerate(node["outputs"])
        ],
    )


def _attributes(node: Mapping[str, Any]) -> list[tuple[str, str]]:
    named = [(key, node.get(key)) for key in ("name", "device", "kernel", "provider", "stop", "flops", "time")]
    listed = [(key, ", ".join(node.get(key) or ())) for key in ("post_ops", "origins", "refusals", "inputs")]
    return [(key, str(value)) for key, value in (*named, *listed, *node.get("attributes", ())) if value not in (None, "")]
