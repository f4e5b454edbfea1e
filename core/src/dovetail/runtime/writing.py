"""Writes models as files of the formats that frontends write."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dovetail._files import check_target, write_file
from dovetail.errors import UnknownFormat, UsageError
from dovetail.graph.graph import Graph, Node
from dovetail.graph.model import Model
from dovetail.graph.reloadable import check_reloadable
from dovetail.internal.copy import Copy
from dovetail.plugins import PluginManager

__all__ = ["write"]


def write(
    plugins: PluginManager,
    model: Model,
    path: Path,
    format: str | None,
    options: Mapping[str, Any],
    analyzed: Callable[[Model], Graph],
) -> None:
    """As `Core.write_model`. `analyzed` gives the graph for formats that hold no open dimensions."""
    check_target(path)
    suffix = format or path.suffix.removeprefix(".").lower()
    if not suffix:
        hint = "add one, or give format=, on the command line --to"
        raise UnknownFormat(f"{str(path)!r} has no suffix that tells its format", hint=hint)
    plugins.require_writer(suffix)
    check_reloadable(model.graph.constants.values())
    if plugins.writes_unbound(suffix):
        write_file(path, plugins.write_model(model, suffix, options))
        return
    for name, tensor in model.inputs.items():
        if not tensor.is_static:
            hint = "say all of its shape: model.reshape, on the command line --shape"
            raise UsageError(f"input {name!r} of {model.source} is {tensor}", hint=hint)
    graph = _with_output_names(analyzed(model), model.graph)
    write_file(path, plugins.write_model(replace(model, graph=graph), suffix, options))


def _with_output_names(graph: Graph, original: Graph) -> Graph:
    """`graph` with the outputs called as in `original`: nodes that only hand their input on were left out."""
    pairs = [(now, name) for now, name in zip(graph.outputs, original.outputs, strict=True) if now != name]
    nodes = [Node(graph.free_name(original.producers[name].name), Copy(), (now,), (name,)) for now, name in pairs]
    types = {name: graph.types[now] for now, name in pairs if now in graph.types}
    return graph.replace(nodes=(*graph.nodes, *nodes), outputs=original.outputs, types={**graph.types, **types})
