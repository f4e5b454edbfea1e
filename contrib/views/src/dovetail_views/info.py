"""`dovetail info`: what a model consists of, what it costs, and which device runs which part of it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from dovetail.command import (
    DEFAULT_DEVICE,
    closed,
    command,
    complete_files,
    config_file_option,
    count,
    extension_option,
    make_core,
    print_table,
    remark,
    reshaped,
    shape_option,
    show,
    size,
    some,
)
from dovetail.errors import DovetailError, UnknownOption
from dovetail_views.subgraphs import planned_subgraphs, print_subgraphs, subgraphs_of

if TYPE_CHECKING:
    from dovetail.graph import AbstractOperator, Graph, Model, Node, Shape, TensorType
    from dovetail.runtime import Core, NodeSupport

__all__ = ["info"]


@command("dovetail info model.onnx --shape image=8,3,224,224")
@click.argument("model", shell_complete=complete_files)
@extension_option
@config_file_option
@shape_option
def info(model: str, extensions: tuple[str, ...], config_files: tuple[str, ...], shapes: tuple[str, ...], as_json: bool) -> None:
    """Show what MODEL consists of and which devices run it.

    Its inputs, outputs, operators, parameters and cost; which package defines each operator; for each device the package
    that serves it, how it runs each operator, and the nodes that it refuses, with the reason.

    An operator runs by a "kernel" of the device's package, by a "custom kernel" of the user's (-c), or by a part of its
    definition: its "own kernel" (a kernel source), a "composition" of other operators, or its "reference" in NumPy. Nodes that
    are "folded" are computed beforehand, those "left out" are not needed.

    FLOPs, memory and device support are for one set of input shapes: open dimensions are 1 unless --shape sets them. A
    multiply-add counts as two FLOPs. Device support is that of a plan before fusion: compositions expanded, batch norms
    folded; a refused node runs on the reference device.

    \b
    JSON: {"model", "format", "opsets": {domain: version},
           "inputs": {name: {"dtype", "shape", "used_shape"}}, "outputs": [],
           "overridable": [],
           "output_types": {name: {"dtype", "shape", "declared_shape"}},
           "nodes", "parameters", "parameter_bytes", "flops",
           "activation_bytes", "activation_bytes_unshared",
           "operators": [{"operator", "count", "analyzed", "flops", "provider"}],
           "subgraphs": [{"path", "operators": {operator: number}, "nodes":
             [{"node", "operator", "device", "kernel", "post_ops": []}]}],
           "devices": [{"device", "provider", "error", "accepted", "nodes",
             "operators": [{"operator", "way", "kernels": [], "provider",
               "nodes"}],
             "refused": [{"node", "operator", "reason", "detail"}]}]}
    Parameters are the elements of all constants; activation bytes the peak of
    intermediate values with and without reuse of memory; analyzed the number
    of nodes after folding. What is known only at run time is null. Overridable
    are constants that an input of that name replaces.
    A model with an operator that nothing defines, or that is wrong, is shown
    as far as it was read, without "devices", and the exit code is 1.
    """
    core = make_core(extensions)
    read = core.read_model(model)
    used = closed(reshaped(read, shapes))
    properties = {"CONFIG_FILE": list(config_files)} if config_files else {}
    described = {
        "model": model,
        "format": read.format,
        "opsets": dict(read.opsets),
        "inputs": {name: _input(tensor, used.inputs[name]) for name, tensor in read.inputs.items()},
        "outputs": list(read.outputs),
        "overridable": list(read.overridable),
        "nodes": len(read.graph.nodes),
        **_parameters(read.graph),
    }
    wrong = None
    try:
        graph = core.analyze(used, DEFAULT_DEVICE, properties) if properties else core.analyze(used)
        described |= _analyzed(core, read, used, graph, properties)
    except DovetailError as error:
        wrong = error
        described |= _only_read(core, read)
    show(described, as_json, _print)
    if wrong is not None:
        raise wrong


def _analyzed(core: "Core", read: "Model", used: "Model", graph: "Graph", properties: Mapping[str, Any]) -> dict[str, Any]:
    types = read.graph.types
    return {
        "output_types": {
            name: _output(graph, now, types.get(name)) for name, now in zip(read.outputs, graph.outputs, strict=True)
        },
        "flops": _sum([_flops(node, graph) for node in graph.nodes]),
        **_activations(graph),
        "operators": _operators(core, read, graph),
        "subgraphs": planned_subgraphs(core, used, properties),
        "devices": [_support(core, used, graph, device, properties) for device in core.available_devices],
    }


def _only_read(core: "Core", model: "Model") -> dict[str, Any]:
    """The operators by their names alone, and which of them anything defines."""
    from dovetail.op import UnboundOperator

    rows = []
    for key, number in Counter(node.op.key for node in model.graph.nodes).items():
        op = next(node.op for node in model.graph.nodes if node.op.key == key)
        try:
            unbound = isinstance(op, UnboundOperator)
            found = core.plugins.operator(op.domain, op.op_type, getattr(op, "version", 1)) if unbound else type(op)
            provider = core.plugins.provider(found)
        except DovetailError:
            provider = None
        rows.append({"operator": key, "count": number, "analyzed": 0, "flops": None, "provider": provider})
    unknown = dict.fromkeys(("flops", "activation_bytes", "activation_bytes_unshared"))
    return {
        "output_types": {name: _declared(model, name) for name in model.outputs},
        **unknown,
        "operators": rows,
        "subgraphs": subgraphs_of(model.graph),
        "devices": [],
    }


def _declared(model: "Model", name: str) -> dict[str, Any] | None:
    """The type that the model declares for an output, where it declares one."""
    tensor = model.graph.types.get(name)
    if tensor is None or (tensor.shape is None and not _is_container(tensor)):
        return None
    return _type(tensor, shape=tensor.shape, declared_shape=tensor.shape)


def _input(declared: "TensorType", used: "TensorType") -> dict[str, Any]:
    return _type(declared, shape=declared.shape, used_shape=None if _is_container(declared) else used.dims)


def _output(graph: "Graph", name: str, declared: "TensorType | None") -> dict[str, Any] | None:
    """The type of an output, and the shape that the model declares for it; None for one that is known only at run time."""
    tensor = graph.types.get(name)
    if tensor is None or not (_is_container(tensor) or tensor.is_static):
        return None
    return _type(tensor, shape=tensor.shape, declared_shape=None if declared is None else declared.shape)


def _type(tensor: "TensorType", **shapes: "Shape | None") -> dict[str, Any]:
    """The data type and the shapes, with names for what is open; a sequence, map or optional has none."""
    if _is_container(tensor):
        return {"dtype": str(tensor), **dict.fromkeys(shapes)}
    return {"dtype": tensor.dtype.value, **{key: None if dims is None else list(dims) for key, dims in shapes.items()}}


def _is_container(tensor: "TensorType") -> bool:
    from dovetail.graph import TensorType

    return type(tensor) is not TensorType


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

    op = _known(node)
    # Nodes after a shape that depends on data, and the nodes of sub-graphs, are known only at run time.
    if op is None or op.subgraphs or not graph.types.keys() >= {*node.reads, *node.writes}:
        return None
    typed = TypedNode.of(node, graph)
    return int(op.flops(typed.inputs, typed.outputs)) if typed.is_static else None


def _sum(numbers: Sequence[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None


def _activations(graph: "Graph") -> dict[str, int | None]:
    from dovetail.device import plan_graph

    written = {name for node in graph.nodes for name in node.writes}
    if not graph.types.keys() >= written or not all(t.is_static for t in graph.types.values()):
        return {"activation_bytes": None, "activation_bytes_unshared": None}
    plan = plan_graph(graph, lambda node: node.inputs if node.op.in_place else ())
    return {"activation_bytes": plan.peak, "activation_bytes_unshared": plan.unshared}


def _operators(core: "Core", model: "Model", graph: "Graph") -> list[dict[str, Any]]:
    """One row an operator, the most expensive first: how often it is in the file, and after folding, and who defines it."""
    providers = {node.op.key: core.plugins.provider(cls) for node in graph.nodes if (cls := _definition(node)) is not None}
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


def _definition(node: "Node") -> "type[AbstractOperator] | None":
    """The class that defines the node's operator; None where only the user's kernel knows it."""
    op = _known(node)
    return None if op is None else type(op)


def _known(node: "Node") -> "AbstractOperator | None":
    """The node's operator as its class reads it; None where only the user's kernel knows it."""
    from dovetail.device import OpaqueOperator

    return node.op.known if isinstance(node.op, OpaqueOperator) else node.op


def _support(core: "Core", model: "Model", graph: "Graph", device: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    # Answers are for the model's nodes, of which some have become others before they are requested.
    operators = {node.name: node.op.key for node in (*model.graph.nodes, *graph.nodes)}
    row: dict[str, Any] = {
        "device": device,
        "provider": core.plugins.owner("devices", device.partition(".")[0].lower()).provider,
        "error": None,
        "accepted": 0,
        "nodes": len(graph.nodes),
        "operators": [],
        "refused": [],
    }
    try:
        try:
            answers = core.query_support(model, device, properties)
        except UnknownOption:
            answers = core.query_support(model, device)
    except DovetailError as error:
        return row | {"error": str(error)}
    refused = [
        {"node": name, "operator": operators[name], "reason": answer.refusal.reason.value, "detail": answer.refusal.detail}
        for name, answer in answers.items()
        if answer.refusal is not None
    ]
    served = _served(operators, answers)
    return row | {"accepted": len(answers) - len(refused), "nodes": len(answers), "operators": served, "refused": refused}


def _served(operators: Mapping[str, str], answers: "Mapping[str, NodeSupport]") -> list[dict[str, Any]]:
    """How nodes run, and by whose kernels: those that do so alike in one row."""
    rows = Counter(
        (operators[name], answer.way, answer.kernels, answer.provider)
        for name, answer in answers.items()
        if answer.refusal is None
    )
    return [
        {"operator": operator, "way": way, "kernels": list(kernels), "provider": provider, "nodes": number}
        for (operator, way, kernels, provider), number in rows.items()
    ]


def _print(described: dict[str, Any]) -> None:
    print_table(described["model"], ("property", "value"), _properties(described))
    devices = described["devices"]
    columns = ["operator", ">count", ">FLOPs", ">share", *(d["device"] for d in devices), "defined by"]
    print_table("Operators", columns, [_operator_row(row, described) for row in described["operators"]])
    print_subgraphs(described["subgraphs"])
    if devices:
        print_table("Devices", ("device", "served by", ">nodes"), [_device_row(device) for device in devices])
    for device in devices:
        if device["error"]:
            remark(f"{device['device']}: {device['error']}")
    if others := _other_rows(devices):
        print_table("Not by kernels of the device's package", ("operator", "device", "runs by", "kernels", "from"), others)
    if refused := _refused_rows(devices):
        print_table("Refused", ("device", "operator", "reason", "nodes"), refused)


def _device_row(device: dict[str, Any]) -> tuple[str, str, str]:
    return device["device"], device["provider"], "error" if device["error"] else f"{device['accepted']} of {device['nodes']}"


def _other_rows(devices: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """One row for the devices that run an operator alike; references of dovetail's own operators are left to the other table."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for device in devices:
        for row in device["operators"]:
            if row["way"] not in ("kernel", "reference"):
                key = row["operator"], row["way"], ", ".join(row["kernels"]), row["provider"]
                groups.setdefault(key, []).append(device["device"])
    return [(operator, ", ".join(dict.fromkeys(names)), *rest) for (operator, *rest), names in groups.items()]


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
        *([("overridable", some(described["overridable"]))] if described["overridable"] else []),
        *((f"output {name}", _output_text(described["output_types"][name], described)) for name in described["outputs"]),
        ("nodes", count(described["nodes"])),
        ("parameters", f"{count(described['parameters'])} ({size(described['parameter_bytes'])})"),
        ("FLOPs", _flops_when_known(described) if described["flops"] is None else count(described["flops"])),
        ("activation memory", _activation_text(described)),
    ]


def _input_text(given: dict[str, Any]) -> str:
    shape = given["shape"]
    if given["used_shape"] is None:
        return str(given["dtype"])
    shown = "..." if shape is None else ", ".join("?" if d is None else str(d) for d in shape)
    used = "" if shape == given["used_shape"] else f", here {given['used_shape']}"
    return f"{given['dtype']}[{shown}]{used}"


def _output_text(known: dict[str, Any] | None, described: dict[str, Any]) -> str:
    if known is None:
        return _when_known(described)
    if known["shape"] is None:
        return str(known["dtype"])
    declared = known["declared_shape"]
    return _input_text({**known, "shape": known["shape"] if declared is None else declared, "used_shape": known["shape"]})


def _when_known(described: dict[str, Any]) -> str:
    return "known only at run time" if described["devices"] else "not known"


def _flops_when_known(described: dict[str, Any]) -> str:
    """Data decides about the size of values, and about sub-graphs; what a user's kernel costs is never known."""
    by_data = described["activation_bytes"] is None or described["subgraphs"]
    return _when_known(described) if by_data else "not known"


def _activation_text(described: dict[str, Any]) -> str:
    if described["activation_bytes"] is None:
        return _when_known(described)
    return f"{size(described['activation_bytes'])} ({size(described['activation_bytes_unshared'])} without reuse)"


def _operator_row(row: dict[str, Any], described: dict[str, Any]) -> list[str]:
    total, flops = described["flops"], row["flops"]
    share = f"{flops / total:.1%}" if total and flops is not None else "-"
    cells = [row["operator"], str(row["count"]), "?" if flops is None else count(flops), share]
    return [*cells, *(_support_cell(row, device) for device in described["devices"]), row["provider"] or "-"]


def _support_cell(row: dict[str, Any], device: dict[str, Any]) -> str:
    if device["error"]:
        return "error"
    ways = Counter[str]()
    for one in device["operators"]:
        if one["operator"] == row["operator"]:
            ways[one["way"]] += one["nodes"]
    if not row["analyzed"] and not ways:
        return "folded"
    ways["refused"] = sum(r["operator"] == row["operator"] for r in device["refused"])
    ways["left out"] = row["analyzed"] - ways.total()
    shown = {way: number for way, number in ways.items() if number > 0}
    return ", ".join(shown) if len(shown) == 1 else ", ".join(f"{number} {way}" for way, number in shown.items())
