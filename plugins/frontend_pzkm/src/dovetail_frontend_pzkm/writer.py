"""`Model` to bytes: each node one layer or a few, every shape known."""

import dataclasses
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from dovetail.frontend import Copy, FormatError, Graph, Model, Node, UsageError, printable
from dovetail_frontend_pzkm.draft import Draft, Tensors
from dovetail_frontend_pzkm.nodes import WRITERS, rsqrt
from dovetail_frontend_pzkm.schema import Layer, PModel, Time
from dovetail_frontend_pzkm.wire import write_tables

__all__ = ["write"]

_TIME = re.compile(r"(\d{1,9})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)")


def write(model: Model, identifier: bool = True) -> bytes:
    """The file of a model whose operators are bound and typed. What has been read is written again as it was.

    Metadata is taken from `pzkm.author`, `pzkm.version`, `pzkm.name` and `pzkm.time` (`2022-06-29T09:46:19`); without a time the
    format's default is kept, so that equal models give equal files. Raises `FormatError` naming the node that no layer can hold.
    """
    graph = model.graph
    tensors = Tensors(graph)
    inputs = _ids(tensors, graph.inputs, "input")
    layers = [dataclasses.replace(layer, id=i) for i, layer in enumerate(_layers(graph, tensors))]
    outputs = _ids(tensors, graph.outputs, "output")
    stored = tuple(tensors.found.values())
    root = PModel(
        author=model.metadata.get("pzkm.author", ""),
        create_time=_time(model.metadata.get("pzkm.time")),
        version=model.metadata.get("pzkm.version", ""),
        model_name=model.metadata.get("pzkm.name", graph.name),
        model_runtime_input_num=len(inputs),
        model_runtime_output_num=len(outputs),
        model_runtime_input_id=inputs,
        model_runtime_output_id=outputs,
        all_tensor_num=len(stored),
        tensor_buffer=stored,
        layer_num=len(layers),
        layer_buffer=tuple(layers),
    )
    return write_tables(root, identifier)


def _ids(tensors: Tensors, names: Iterable[str], what: str) -> tuple[int, ...]:
    try:
        return tuple(tensors.id_of(name) for name in names)
    except FormatError as error:
        raise FormatError(f"a .pzkm cannot hold this {what} of the model: {error.message}", hint=error.hint) from None


def _layers(graph: Graph, tensors: Tensors) -> Iterator[Layer]:
    roots = _rsqrts(graph)
    absorbed = {root.name for root in roots.values()}
    for node in graph.nodes:
        if node.name in absorbed:
            continue
        try:
            yield from _written(Draft(tensors, node), roots.get(node.name))
        except FormatError as error:
            raise FormatError(f"a .pzkm cannot hold node {node}: {error.message}", hint=error.hint) from None


def _written(draft: Draft, root: Node | None) -> Sequence[Layer]:
    op: Any = draft.op
    if isinstance(op, Copy):
        return (draft.layer("OutputLayer"),)
    if op.domain or op.op_type not in WRITERS:
        raise FormatError(f"the format has no layer for {printable(op.key)}", hint=f"accepted: {', '.join(sorted(WRITERS))}")
    made = rsqrt(draft, root.inputs[0]) if root else WRITERS[op.op_type](draft)
    return (made,) if isinstance(made, Layer) else made


def _rsqrts(graph: Graph) -> dict[str, Node]:
    """Name of a Reciprocal -> the Sqrt that only it reads: one layer together."""
    found = {}
    for node in graph.nodes:
        root = graph.producers.get(node.inputs[0]) if node.op.key == "Reciprocal" else None
        if root and root.op.key == "Sqrt" and len(graph.consumers[root.outputs[0]]) == 1 and root.outputs[0] not in graph.outputs:
            found[node.name] = root
    return found


def _time(text: str | None) -> Time | None:
    if text is None:
        return None
    match = _TIME.fullmatch(text)
    if match is None:
        raise UsageError(f"the metadata pzkm.time is '{printable(text)}'", hint="write it as 2022-06-29T09:46:19")
    return Time(*(int(part) for part in match.groups()))
