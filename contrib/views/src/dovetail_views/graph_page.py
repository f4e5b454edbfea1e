"""The graph page: a model as read and its plan, as one HTML file that loads nothing."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from string import Template
from typing import Any

import numpy as np

from dovetail.graph import Graph, Model, Node, TensorType
from dovetail.runtime import CompiledModel, NodePlacement, PlanReport, Slice, ValuePlacement

__all__ = ["graph_data", "graph_page", "measured"]

Record = dict[str, Any]

_SHOWN = 200
"""Characters of an attribute."""


def graph_page(data: Mapping[str, Any]) -> str:
    """The page for the result of `graph_data`."""
    here = files("dovetail_views")
    script, style, page = ((here / "data" / f"graph.{kind}").read_text(encoding="utf-8") for kind in ("js", "css", "html"))
    library = (here / "vendor" / "dagre" / "dagre.min.js").read_text(encoding="utf-8")
    # "</script>" in a name would end the element; JSON may write the character as an escape.
    content = json.dumps(data).replace("<", "\\u003c")
    title = data["title"].replace("&", "&amp;").replace("<", "&lt;")
    return Template(page).substitute(title=title, style=style, data=content, library=library, script=script)


def graph_data(
    model: Model, compiled: CompiledModel, types: Mapping[str, TensorType], times: Mapping[str, int] | None = None
) -> Record:
    """The content of the page. `types` has those of the model's values that are known without a run.

    `times` are nanoseconds by the path of a node of the plan; see `measured`.

    `views` has the graphs `model` and `plan`, each with `nodes`, whose `id` is the position, and `edges` between ids. Nodes of
    the model have `plan`, the ids of those that run them; nodes of the plan have `model`, the ids of those that they stand for.
    """
    report = compiled.report()
    found = list(_nodes(model.graph.replace(types={**types, **model.graph.types}), "", {}))
    nodes = _model(found)
    plan = _plan(report, times or {}, {one.path: one.node for one in found})
    _join(nodes["nodes"], plan["nodes"])
    facts = [
        ("device", compiled.device),
        ("nodes of the model", len(nodes["nodes"])),
        ("nodes of the plan", len(plan["nodes"])),
        ("reorders", report.reorders),
        *((f"planned peak on {device}", f"{nbytes:,} bytes") for device, nbytes in report.memory.items()),
        *((f"passed over: {device}", why) for device, why in report.passed_over.items()),
    ]
    return {"title": f"{model.source} on {compiled.device}", "facts": facts, "views": {"model": nodes, "plan": plan}}


def measured(slices: Iterable[Slice], runs: int) -> dict[str, int]:
    """Nanoseconds of a run by the path of each node of the plan: the mean of the last `runs` runs."""
    found = list(slices)
    starts = sorted(one.start for one in found if one.kind == "run")[-runs:]
    times: dict[str, int] = {}
    for one in found:
        if one.kind in ("kernel", "host") and isinstance(one.placed, NodePlacement) and starts and one.start >= starts[0]:
            path = f"{one.path}/{one.placed.name}" if one.path else one.placed.name
            times[path] = times.get(path, 0) + one.end - one.start
    return {path: total // len(starts) for path, total in times.items()}


# --- the plan ----------------------------------------------------------------------------------------------------


def _plan(report: PlanReport, times: Mapping[str, int], model: Mapping[str, Node]) -> Record:
    nodes = [_planned(index, node, times) for index, node in enumerate(report.nodes)]
    edges: list[Record] = []
    writers: dict[tuple[str, str], int] = {}
    by_path = {node.path: index for index, node in enumerate(report.nodes)}
    for index, node in enumerate(report.nodes):
        # The report has no values of nodes on the host, whose types only data tells.
        on_host = model.get(node.path) if not node.outputs else None
        read = {value.name: _typed(value) for value in node.inputs} if on_host is None else dict.fromkeys(on_host.reads, "")
        scopes = tuple(_scopes(report, by_path, node.holder))
        found = [(next((writers[s, name] for s in scopes if (s, name) in writers), None), name) for name in read]
        edges += [_edge(source, index, name, read[name]) for source, name in found if source is not None]
        holder = by_path.get(node.holder.rpartition("/")[0])
        if holder is not None:
            nodes[holder]["holds"] = True
            if all(source is None for source, _ in found):
                edges.append({"from": holder, "to": index, "inside": True})
        written = [value.name for value in node.outputs] if on_host is None else on_host.writes
        writers.update({(node.holder, name): index for name in written})
    return {"nodes": nodes, "edges": edges}


def _scopes(report: PlanReport, by_path: Mapping[str, int], holder: str) -> Iterator[str]:
    """Where a value that is read in a sub-graph can be written: there, or in what is around it."""
    yield holder
    while holder:
        outer = by_path.get(holder.rpartition("/")[0])
        holder = "" if outer is None else report.nodes[outer].holder
        yield holder


def _planned(index: int, node: NodePlacement, times: Mapping[str, int]) -> Record:
    stop = node.post_op_stop
    return {
        "id": index,
        "name": node.path,
        "op": node.op,
        "device": node.device,
        "kernel": node.kernel,
        "provider": node.provider,
        "post_ops": list(node.post_ops),
        "origins": list(node.origins),
        "holder": node.holder,
        "refusals": [f"{by}: {refusal}" for by, refusal in node.refusals],
        "stop": None if stop is None else f"{stop[0]}: {stop[1]}",
        "flops": node.flops,
        "time": times.get(node.path),
        "inputs": [f"{value.name}: {_typed(value)}" for value in node.inputs],
        "outputs": [f"{value.name}: {_typed(value)}" for value in node.outputs],
    }


def _typed(value: ValuePlacement) -> str:
    return f"{value.type.dtype}{list(value.type.dims)} {value.type.layout}"


def _edge(source: int, target: int, name: str, label: str) -> Record:
    return {"from": source, "to": target, "label": label, "title": name}


# --- the model ---------------------------------------------------------------------------------------------------


def _model(found: Sequence["_Found"]) -> Record:
    nodes = [_read(index, one) for index, one in enumerate(found)]
    ids = {one.path: index for index, one in enumerate(found)}
    edges = []
    for index, one in enumerate(found):
        read = [(one.writers[name], name) for name in one.node.reads if one.writers.get(name, one.path) != one.path]
        edges += [_edge(ids[source], index, name, str(one.types.get(name, ""))) for source, name in read]
        if one.holder and not read:
            edges.append({"from": ids[one.holder], "to": index, "inside": True})
    return {"nodes": nodes, "edges": edges}


@dataclass(frozen=True)
class _Found:
    """A node of the model with its path, that of the node whose sub-graph it is in, writers of values by name, and types."""

    path: str
    node: Node
    holder: str
    writers: Mapping[str, str]
    types: Mapping[str, Any]


def _nodes(graph: Graph, holder: str, outer: Mapping[str, str], prefix: str = "") -> Iterator[_Found]:
    writers = {**outer, **{name: f"{prefix}{node.name}" for node in graph.nodes for name in node.writes}}
    for node in graph.nodes:
        path = f"{prefix}{node.name}"
        yield _Found(path, node, holder, writers, graph.types)
        for attribute, inner in node.op.named_subgraphs.items():
            yield from _nodes(inner, path, writers, f"{path}/{attribute}/")


def _read(index: int, found: _Found) -> Record:
    node, types = found.node, found.types
    return {
        "id": index,
        "name": found.path,
        "op": node.op.key,
        "holds": bool(node.op.subgraphs),
        "attributes": [(name, _text(value)) for name, value in _attributes(node)],
        "inputs": [f"{name}: {types[name]}" if name in types else name for name in node.inputs if name],
        "outputs": [f"{name}: {types[name]}" if name in types else name for name in node.writes],
    }


def _attributes(node: Node) -> Sequence[tuple[str, Any]]:
    raw = getattr(node.op, "raw", None)
    named = dict(raw) if raw is not None else {name: getattr(node.op, name) for name in node.op.attributes}
    return [(name, value) for name, value in named.items() if not isinstance(value, Graph)]


def _text(value: Any) -> str:
    if isinstance(value, np.ndarray) and value.size > 8:
        return f"{value.dtype}{list(value.shape)}"
    text = str(value.tolist() if isinstance(value, np.ndarray) else value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _join(model: list[Record], plan: list[Record]) -> None:
    """Fill in `plan` and `model`. Origins are names within the sub-graph that the node of the plan is in."""
    by_name = {node["name"]: node["id"] for node in model}
    for node in model:
        node["plan"] = []
    for node in plan:
        prefix = f"{node['holder']}/" if node["holder"] else ""
        # Nodes that a pass made from one of the model have its name before a slash.
        names = dict.fromkeys(_known(f"{prefix}{origin}", by_name) for origin in node["origins"] or [node["name"]])
        node["model"] = [by_name[name] for name in names if name is not None]
        for index in node["model"]:
            model[index]["plan"].append(node["id"])


def _known(name: str, names: Mapping[str, int]) -> str | None:
    while name not in names:
        name, slash, _ = name.rpartition("/")
        if not slash:
            return None
    return name
