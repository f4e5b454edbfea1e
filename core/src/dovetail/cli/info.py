"""`dovetail info`: what a model consists of, what it costs, and which device runs which part of it."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from dovetail.cli._command import command as make_command
from dovetail.cli._command import extension_option, shape_option
from dovetail.cli._output import count, print_json, print_table, remark, size

if TYPE_CHECKING:
    from dovetail.graph import Graph, Model, Node, TensorType
    from dovetail.runtime import Core


@make_command("dovetail info model.onnx --shape image=8,3,224,224")
@click.argument("model")
@extension_option
@shape_option
def command(model: str, extensions: tuple[str, ...], shapes: tuple[str, ...], as_json: bool) -> None:
    """Show what MODEL consists of and which devices run it.

    That is its inputs, outputs, operators, parameters and cost; which package defines each operator; and for each device the
    package that serves it, the operators that it runs, and the nodes that it refuses, with the reason.
    FLOPs, memory and device support are for one set of input shapes: open dimensions are 1 unless --shape sets them. A
    multiply-add counts as two FLOPs. Device support is that of a plan before fusion: compositions expanded, batch norms
    folded; a refused node runs on the reference device.

    \b
    JSON: {"model", "format", "opsets": {domain: version},
           "inputs": {name: {"dtype", "shape", "used_shape"}}, "outputs": [],
           "output_types": {name: {"dtype", "shape"}},
           "nodes", "parameters", "parameter_bytes", "flops",
           "activation_bytes", "activation_bytes_unshared",
           "operators": [{"operator", "count", "analyzed", "flops", "provider"}],
           "devices": [{"device", "provider", "error", "accepted", "nodes",
             "refused": [{"node", "operator", "reason", "detail"}]}]}
    Parameters are the elements of all constants; activation bytes the peak of
    intermediate values with and without reuse of memory; analyzed the number
    of nodes after folding. What is known only at run time is null.
    """
    from dovetail.cli._models import closed, make_core, reshaped

    core = make_core(extensions)
    read = core.read_model(model)
    used = closed(reshaped(read, shapes))
    graph = core.analyze(used)
    described = {
        "model": model,
        "format": read.format,
        "opsets": dict(read.opsets),
        "inputs": {name: _input(tensor, used.inputs[name]) for name, tensor in read.inputs.items()},
        "outputs": list(read.outputs),
        "output_types": {name: _output(graph, now) for name, now in zip(read.outputs, graph.outputs, strict=True)},
        "nodes": len(read.graph.nodes),
        **_parameters(read.graph),
        "flops": _sum([_flops(node, graph) for node in graph.nodes]),
        **_activations(graph),
        "operators": _operators(core, read, graph),
        "devices": [_support(core, used, graph, device) for device in core.available_devices],
    }
    if as_json:
        print_json(described)
    else:
        _print(described)


def _input(declared: "TensorType", used: "TensorType") -> dict[str, Any]:
    shape = None if declared.shape is None else list(declared.shape)
    return {"dtype": declared.dtype.value, "shape": shape, "used_shape": list(used.dims)}


def _output(graph: "Graph", name: str) -> dict[str, Any] | None:
    """The type of an output; None for one that is known only at run time."""
    tensor = graph.types.get(name)
    return {"dtype": tensor.dtype.value, "shape": list(tensor.dims)} if tensor is not None and tensor.is_static else None


def _parameters(graph: "Graph") -> dict[str, int]:
    """Elements and bytes of the constants, those of sub-graphs included."""
    elements = nbytes = 0
    waiting = [graph]
    while waiting:
        current = waiting.pop()
        elements += sum(array.size for array in current.constants.values())
        nbytes += sum(array.nbytes for array in current.constants.values())
        waiting += [inner for node in current.nodes for inner in node.op.subgraphs]
    return {"parameters": elements, "parameter_bytes": nbytes}


def _flops(node: "Node", graph: "Graph") -> int | None:
    from dovetail.device import TypedNode

    typed = TypedNode.of(node, graph)
    return node.op.flops(typed.inputs, typed.outputs) if typed.is_static else None


def _sum(numbers: Sequence[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None


def _activations(graph: "Graph") -> dict[str, int | None]:
    from dovetail.passes.memory import plan_graph

    if not all(t.is_static for t in graph.types.values()):
        return {"activation_bytes": None, "activation_bytes_unshared": None}
    plan = plan_graph(graph, lambda node: node.inputs if node.op.in_place else ())
    return {"activation_bytes": plan.peak, "activation_bytes_unshared": plan.unshared}


def _operators(core: "Core", model: "Model", graph: "Graph") -> list[dict[str, Any]]:
    """One row an operator, the most expensive first: how often it is in the file, and after folding, and who defines it."""
    providers = {node.op.key: core.plugins.provider(type(node.op)) for node in graph.nodes}
    in_file = Counter(node.op.key for node in model.graph.nodes)
    analyzed: dict[str, list[int | None]] = {key: [] for key in in_file}
    for node in graph.nodes:
        analyzed.setdefault(node.op.key, []).append(_flops(node, graph))
    rows = [
        {
            "operator": key,
            "count": in_file[key],
            "analyzed": len(flops),
            "flops": _sum(flops),
            "provider": providers.get(key),
        }
        for key, flops in analyzed.items()
    ]
    return sorted(rows, key=lambda row: (-(row["flops"] or 0), row["operator"]))


def _support(core: "Core", model: "Model", graph: "Graph", device: str) -> dict[str, Any]:
    from dovetail.device import Refusal
    from dovetail.errors import DovetailError

    operators = {node.name: node.op.key for node in graph.nodes}
    provider = core.plugins.owner("devices", device.partition(".")[0].lower()).provider
    try:
        answers = core.query_model(model, device)
    except DovetailError as error:
        nodes = len(operators)
        return {"device": device, "provider": provider, "error": str(error), "accepted": 0, "nodes": nodes, "refused": []}
    refused = [
        {"node": name, "operator": operators[name], "reason": answer.reason.value, "detail": answer.detail}
        for name, answer in answers.items()
        if isinstance(answer, Refusal)
    ]
    return {
        "device": device,
        "provider": provider,
        "error": None,
        "accepted": len(answers) - len(refused),
        "nodes": len(answers),
        "refused": refused,
    }


def _print(described: dict[str, Any]) -> None:
    print_table(described["model"], ("property", "value"), _properties(described))
    devices = described["devices"]
    columns = ["operator", ">count", ">FLOPs", ">share", *(d["device"] for d in devices), "defined by"]
    print_table("Operators", columns, [_operator_row(row, described) for row in described["operators"]])
    print_table("Devices", ("device", "served by", ">nodes"), [_device_row(device) for device in devices])
    for device in devices:
        if device["error"]:
            remark(f"{device['device']}: {device['error']}")
    if refused := _refused_rows(devices):
        print_table("Refused", ("device", "operator", "reason", "nodes"), refused)


def _device_row(device: dict[str, Any]) -> tuple[str, str, str]:
    return device["device"], device["provider"], "error" if device["error"] else f"{device['accepted']} of {device['nodes']}"


def _refused_rows(devices: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """One row for the nodes that a device refuses for the same reason."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for device in devices:
        for node in device["refused"]:
            reason = f"{node['reason']}: {node['detail']}" if node["detail"] else node["reason"]
            groups.setdefault((device["device"], node["operator"], reason), []).append(node["node"])
    return [(*group, _some(nodes)) for group, nodes in groups.items()]


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _properties(described: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        ("format", described["format"]),
        ("operator sets", ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in described["opsets"].items())),
        *((f"input {name}", _input_text(given)) for name, given in described["inputs"].items()),
        *((f"output {name}", _output_text(described["output_types"][name])) for name in described["outputs"]),
        ("nodes", count(described["nodes"])),
        ("parameters", f"{count(described['parameters'])} ({size(described['parameter_bytes'])})"),
        ("FLOPs", _or_unknown(described["flops"], count)),
        ("activation memory", _activation_text(described)),
    ]


def _input_text(given: dict[str, Any]) -> str:
    shape = given["shape"]
    shown = "..." if shape is None else ", ".join("?" if d is None else str(d) for d in shape)
    used = "" if shape == given["used_shape"] else f", here {given['used_shape']}"
    return f"{given['dtype']}[{shown}]{used}"


def _output_text(known: dict[str, Any] | None) -> str:
    return "known only at run time" if known is None else f"{known['dtype']}[{', '.join(map(str, known['shape']))}]"


def _activation_text(described: dict[str, Any]) -> str:
    if described["activation_bytes"] is None:
        return "known only at run time"
    return f"{size(described['activation_bytes'])} ({size(described['activation_bytes_unshared'])} without reuse)"


def _or_unknown(number: int | None, shown: Any) -> str:
    return "known only at run time" if number is None else str(shown(number))


def _operator_row(row: dict[str, Any], described: dict[str, Any]) -> list[str]:
    total, flops = described["flops"], row["flops"]
    share = f"{flops / total:.1%}" if total and flops is not None else "-"
    cells = [row["operator"], str(row["count"]), "?" if flops is None else count(flops), share]
    return [*cells, *(_support_cell(row, device) for device in described["devices"]), row["provider"] or "-"]


def _support_cell(row: dict[str, Any], device: dict[str, Any]) -> str:
    refused = sum(r["operator"] == row["operator"] for r in device["refused"])
    if device["error"]:
        return "error"
    if not row["analyzed"]:
        return "folded"
    return "all" if not refused else f"{row['analyzed'] - refused} of {row['analyzed']}"
