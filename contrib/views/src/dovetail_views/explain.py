"""`dovetail explain`: how a model runs on a device, node by node, and why; what graph passes did; the order of nodes."""

import shutil
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import click

from dovetail.command import (
    closed,
    command,
    complete_files,
    config_file_option,
    count,
    device_option,
    duration,
    extension_option,
    make_core,
    print_table,
    remark,
    reshaped,
    shape_option,
    show,
    size,
)
from dovetail_views.inputs import input_option, model_and_inputs
from dovetail_views.passes_table import describe_passes, print_passes
from dovetail_views.schedule_table import describe_schedule, print_schedule
from dovetail_views.subgraphs import subgraphs_of

__all__ = ["explain"]

Node = dict[str, Any]

_ROOM = 120
"""Columns from which on a table of many columns fits."""


@command("dovetail explain model.onnx -d GPU\ndovetail explain model.onnx --schedule")
@click.argument("model", shell_complete=complete_files)
@device_option
@input_option
@click.option("--schedule", is_flag=True, help="Show the order in which nodes can run, instead of a plan; without a device.")
@click.option("--passes", is_flag=True, help="Show what each graph pass did: nodes before and after, time and origin.")
@click.option("--no-fusion", is_flag=True, help="Plan with FUSION=False: nothing is merged.")
@extension_option
@config_file_option
@shape_option
def explain(
    model: str, device: str, given: tuple[str, ...], schedule: bool, passes: bool, no_fusion: bool, extensions: tuple[str, ...],
    config_files: tuple[str, ...], shapes: tuple[str, ...], as_json: bool,
) -> None:  # fmt: skip
    """Show how MODEL runs on a device, and why.

    Each node of the plan, in the order in which they run: device, kernel and the package it comes from, memory layouts of its
    inputs and outputs, the nodes merged into it as post-ops and why the chain ends there, the place of its result in memory,
    and the refusals of the devices and kernels that were asked before. Dimensions that the model leaves open are those of the
    inputs of -i, else 1 unless --shape sets them. Nodes whose shapes depend on data, and those of sub-graphs, are planned for
    the inputs of -i, else for random ones; a sub-graph that these do not run, for the types that the model declares for it.

    With --passes: each graph pass with the number of nodes before and after it, its time, and the package that provides it. The
    property PASSES leaves passes out: PASSES="-fuse_attention".

    With --schedule: stages of nodes. Every node of a stage needs only results of earlier stages; the table names the nodes that
    it waits for.

    \b
    JSON: {"model", "device", "deferred", "partitions", "reorders",
           "passed_over": {device: reason}, "notes": [], "changed_by": [pass],
           "unplanned": {sub-graph: reason},
           "memory": {device: bytes}, "seconds": {step: seconds},
           "nodes": [{"node", "operator", "device", "kernel", "provider",
             "rule", "origins": [], "post_ops": [],
             "stop": {"node", "reason", "detail"} or null,
             "refusals": [{"by", "reason", "detail"}],
             "inputs": [value], "outputs": [value]}]}
    A value is {"name", "dtype", "shape", "layout", "offset", "bytes"}; the
    offset is null for constants. Memory is the planned peak of each request,
    deferred the number of nodes that are planned when data is there.
    Changed by are the passes of plugins that changed the model.
    JSON with --passes: {"model", "device", "passes": [{"pass", "stage", "origin",
           "before", "after", "changed", "seconds"}]}
    JSON with --schedule: {"model", "inputs": [], "outputs": [], "stages":
           [[{"node", "operator", "waits_for": [node]}]]}
    """
    core = make_core(extensions)
    read = core.read_model(model)
    if schedule:
        show(describe_schedule(read), as_json, print_schedule)
        return
    properties: dict[str, Any] = {"FUSION": False} if no_fusion else {}
    if config_files:
        properties["CONFIG_FILE"] = list(config_files)
    used = reshaped(read, shapes)
    # Not every model has random inputs, and not every plan needs any.
    used, inputs = model_and_inputs(used, given) if given else (closed(used), None)
    compiled = core.compile_model(used, device, properties)
    compiled.finish_compiling()
    deferred = compiled.report().deferred
    if deferred or subgraphs_of(used.graph):
        compiled(model_and_inputs(used)[1] if inputs is None else inputs)
    unplanned = dict(compiled.plan_subgraphs())
    if passes:
        found = {"model": model, "device": compiled.device, "passes": describe_passes(compiled.report())}
        show(found, as_json, print_passes)
        return
    report = compiled.report()
    described = {"model": model, "device": compiled.device, **report.as_dict(), "deferred": deferred, "unplanned": unplanned}
    changed_by = [one["pass"] for one in describe_passes(report) if one["changed"] and one["origin"]]
    show(described | {"changed_by": changed_by}, as_json, _print)


def _is_narrow() -> bool:
    """True on a terminal where a table of many columns would be folded too much to be read."""
    return sys.stdout.isatty() and shutil.get_terminal_size().columns < _ROOM


def _rule_text(rule: int) -> str:
    """The rule with this number by which one of several definitions was chosen: `3: the exact data type comes before ...`."""
    from dovetail.plugins.rules import RULES  # NumPy, which `dovetail --help` can do without

    return f"{rule}: {RULES[rule]}"


def _print(described: dict[str, Any]) -> None:
    nodes: list[Node] = described["nodes"]
    title = f"{described['model']} on {described['device']}"
    if _is_narrow():
        _print_nodes(title, nodes, ("node", "operator", "device", "kernel", "from"))
        _print_nodes("What they read and write", nodes, ("node", "layouts", "post-ops", ">at", ">bytes"))
    else:
        _print_nodes(title, nodes, tuple(_COLUMNS))
    if stops := [(n["node"], n["stop"]["node"], _text(n["stop"])) for n in nodes if n["stop"]]:
        print_table("Chains that end", ("node", "not merged", "why"), stops)
    if refused := _refused(nodes):
        print_table("Asked before", ("asked", "answer", "nodes"), refused)
    if ruled := [(n["node"], n["kernel"], n["provider"], _rule_text(n["rule"])) for n in nodes if n["rule"]]:
        print_table("Chosen among several definitions", ("node", "kernel", "from", "by rule"), ruled)
        remark("`dovetail plugins which OP` shows the others.")
    if described["passed_over"]:
        print_table("Devices passed over", ("device", "why"), list(described["passed_over"].items()))
    if described["notes"]:
        print_table(f"Choices of {described['device']}", ("note",), [(note,) for note in described["notes"]])
    if described["unplanned"]:
        print_table("Sub-graphs without a plan", ("sub-graph", "why"), list(described["unplanned"].items()))
    print_table("In all", ("property", "value"), _totals(described))


def _print_nodes(title: str, nodes: Sequence[Node], columns: Sequence[str]) -> None:
    """A row for each node. A column that says the same everywhere is left out; the totals have it."""
    cells = {name: [_COLUMNS[name](node) for node in nodes] for name in columns}
    shown = [name for name in columns if name in _ALWAYS or len(set(cells[name])) > 1]
    print_table(title, shown, list(zip(*(cells[name] for name in shown), strict=True)))


def _layouts(node: Node) -> str:
    """`PLAIN, BYXF -> BYXF`; one name where all is alike."""
    read = list(dict.fromkeys(v["layout"] for v in node["inputs"] if v["offset"] is not None))
    written = list(dict.fromkeys(v["layout"] for v in node["outputs"]))
    if read == written or not read:
        return ", ".join(written)
    return f"{', '.join(read)} -> {', '.join(written)}"


def _chain(node: Node) -> str:
    """The chain, and the nodes of the model that it comes from."""
    if not node["post_ops"]:
        return ""
    merged = [name for name in node["origins"] if name != node["node"]]
    chain = ", ".join(node["post_ops"])
    return f"{chain} ({', '.join(merged)})" if merged else chain


def _of_result(node: Node, key: str, shown: Callable[[float], str]) -> str:
    first = next(iter(node["outputs"]), None)
    return "-" if first is None or first[key] is None else shown(first[key])


_COLUMNS: dict[str, Callable[[Node], str]] = {
    "node": lambda n: str(n["node"]),
    "operator": lambda n: str(n["operator"]),
    "device": lambda n: str(n["device"]),
    "kernel": lambda n: str(n["kernel"]),
    "from": lambda n: str(n["provider"]),
    "layouts": _layouts,
    "post-ops": _chain,
    ">at": lambda n: _of_result(n, "offset", count),
    ">bytes": lambda n: _of_result(n, "bytes", size),
}
_ALWAYS = ("node", "operator", "kernel", ">at", ">bytes")


def _text(refusal: dict[str, str]) -> str:
    return f"{refusal['reason']}: {refusal['detail']}" if refusal["detail"] else refusal["reason"]


def _refused(nodes: Sequence[Node]) -> list[tuple[str, str, str]]:
    """One row for all nodes that were refused alike."""
    groups: dict[tuple[str, str], list[str]] = {}
    for node in nodes:
        for refusal in node["refusals"]:
            groups.setdefault((refusal["by"], _text(refusal)), []).append(node["node"])
    return [(by, why, ", ".join(names)) for (by, why), names in groups.items()]


def _totals(described: dict[str, Any]) -> list[tuple[str, str]]:
    nodes: list[Node] = described["nodes"]
    by_device = Counter((n["device"], n["provider"]) for n in nodes)
    layouts = {_layouts(n) for n in nodes}
    return [
        *((f"nodes on {device}", f"{count(number)}, kernels of {provider}") for (device, provider), number in by_device.items()),
        *([("memory layout", layouts.pop())] if len(layouts) == 1 and "" not in layouts else []),
        *([("planned when data is there", f"{count(described['deferred'])} nodes")] if described["deferred"] else []),
        ("merged nodes", count(sum(len(n["origins"]) - 1 for n in nodes if n["post_ops"]))),
        ("reorders", count(described["reorders"])),
        ("partitions", count(described["partitions"])),
        *([("passes that changed it", ", ".join(described["changed_by"]))] if described["changed_by"] else []),
        *((f"planned peak on {device}", size(nbytes)) for device, nbytes in described["memory"].items()),
        *((f"time for {step}", duration(seconds)) for step, seconds in described["seconds"].items()),
    ]
