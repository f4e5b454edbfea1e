"""`dovetail compare --bisect`: the first node of a plan that is wrong, and a program that shows it."""

import ast
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dovetail.command import (
    DEFAULT_DEVICE,
    FiniteRange,
    check_target,
    closed,
    command,
    config_file_option,
    extension_option,
    given_inputs,
    make_core,
    print_json,
    print_table,
    remark,
    reshaped,
    seed_option,
    shape_option,
    write_file,
)

if TYPE_CHECKING:
    from dovetail_views.bisect import Finding
    from dovetail_views.peers import Peer

__all__ = ["compare_bisect"]

_ONNXRUNTIME = "onnxruntime"


@command("dovetail compare model.onnx -d ONEDNN -d onnxruntime --bisect -o wrong.py", name="compare --bisect")
@click.argument("model")
@click.option("--bisect", is_flag=True, required=True, help="Find the first node of the plan that is wrong.")
@click.option(
    "-d", "--device", "devices", multiple=True, metavar="DEVICE",
    help="The device under test, AUTO by default, and the one compared with, the reference device by default, or `onnxruntime`.",
)  # fmt: skip
@click.option(
    "--property", "properties", multiple=True, metavar="NAME=VALUE", help="A property of the device under test. Repeatable."
)
@click.option(
    "--peer-property", "peer_properties", multiple=True, metavar="NAME=VALUE",
    help="A property of the other side, which is then the same device unless -d names another. Repeatable.",
)  # fmt: skip
@click.option("-i", "--input", "given", multiple=True, metavar="[NAME=]SOURCE", help="As for `run`.  [default: random]")
@click.option("--tolerance", type=FiniteRange(min=0), default=1e-3, show_default=True, help="As for `compare`.")
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="A Python program that shows the difference."
)
@extension_option
@config_file_option
@shape_option
@seed_option
def compare_bisect(
    model: str, bisect: bool, devices: tuple[str, ...], properties: tuple[str, ...], peer_properties: tuple[str, ...],
    given: tuple[str, ...], tolerance: float, output: Path | None, extensions: tuple[str, ...], config_files: tuple[str, ...],
    shapes: tuple[str, ...], seed: int, as_json: bool,
) -> None:  # fmt: skip
    """Find the first node of a plan whose result differs from a peer's.

    Nodes stay merged as in the plan of the whole model: values become outputs only between nodes of the plan. That takes at
    most log2(nodes of the plan), rounded up, + 2 runs of the model. The node is then run alone, with the peer's values as its
    inputs, with the nodes before it where alone it is right; and with graph passes left out, one half at a time, to see whether
    one of them is at fault.

    With -o the part of the model that shows the difference is written as one Python file, with its data, that runs and compares
    it. The exit code is 1 when a difference is found.

    \b
    JSON: {"model", "device", "peer", "tolerance", "agree", "runs", "nodes",
           "node", "operator", "kernel", "provider", "post_ops": [],
           "origins": [], "value", "relative", "error", "plan_kept",
           "part": number of nodes of the plan or null, "passes": [],
           "program": file or null}
    When all agree, what follows "nodes" is left out. Nodes is the number of
    nodes of the plan; an infinite difference is null.
    """
    from dovetail_views.bisect import bisect as search
    from dovetail_views.program import program

    if len(devices) > 2:
        raise click.UsageError(f"-d is given {len(devices)} times; accepted: once or twice.")
    if output is not None:
        check_target(output)  # before what may take long
    core = make_core(extensions)
    read = closed(reshaped(core.read_model(model), shapes))
    custom = {"CONFIG_FILE": list(config_files)} if config_files else {}
    subject, peer = _sides(core, model, devices, {**custom, **_parsed(properties)}, _parsed(peer_properties))
    found = search(read, given_inputs(read, given, seed), subject, peer, tolerance, remark)
    described = {"model": model, "device": subject.title, "peer": peer.title, "tolerance": tolerance, **_described(found)}
    if found.part is not None and output is not None:
        title = f"{subject.title} differs from {peer.title} at {', '.join(found.origins)}"
        files = [str(Path(one).resolve()) for one in extensions]
        write_file(output, program(found.part, title, subject.device, subject.properties, tolerance, files))
        described["program"] = str(output)
    if as_json:
        print_json(described)
    else:
        _print(described, found)
    if not found.agree:
        click.get_current_context().exit(1)


def _sides(
    core: Any, model: str, devices: Sequence[str], properties: dict[str, Any], others: dict[str, Any]
) -> "tuple[Any, Peer]":
    from dovetail.runtime import REFERENCE_DEVICE
    from dovetail_views.peers import DovetailPeer, OnnxRuntimePeer

    first = devices[0] if devices else DEFAULT_DEVICE
    if first == _ONNXRUNTIME:
        raise click.UsageError("onnxruntime is what a device is compared with: -d DEVICE -d onnxruntime.")
    second = devices[1] if len(devices) == 2 else first if others else REFERENCE_DEVICE
    subject = DovetailPeer(core, first, properties)
    if second != _ONNXRUNTIME:
        return subject, DovetailPeer(core, second, others)
    if Path(model).suffix.lower() != ".onnx":
        raise click.UsageError(f"onnxruntime reads .onnx files, not {model}.")
    return subject, OnnxRuntimePeer(Path(model))


def _parsed(given: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{text!r} is not of the form NAME=VALUE.")
        try:
            found[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            found[name] = value
    return found


def _described(found: "Finding") -> dict[str, Any]:
    base: dict[str, Any] = {"agree": found.agree, "runs": found.runs, "nodes": found.nodes}
    if found.node is None:
        return base
    return base | {
        "node": found.node.name,
        "operator": found.node.op,
        "kernel": found.node.kernel,
        "provider": found.node.provider,
        "post_ops": list(found.node.post_ops),
        "origins": list(found.origins),
        "value": found.value,
        "relative": found.relative,
        "error": found.error or None,
        "plan_kept": found.kept,
        "part": None if found.part is None else found.part.nodes,
        "passes": list(found.passes),
        "program": None,
    }


def _print(described: dict[str, Any], found: "Finding") -> None:
    title = f"{described['model']}: {described['device']} against {described['peer']}"
    if found.node is None:
        print_table(title, ("result", ">runs"), [("all outputs agree", str(found.runs))])
        return
    rows = [
        ("first wrong node", f"{found.node.name} ({found.node.op})"),
        ("nodes of the model", ", ".join(found.origins)),
        ("kernel", " + ".join((found.node.kernel, *found.node.post_ops)) + f" of {found.node.provider}"),
        ("value", found.value),
        ("difference", found.error or f"{found.relative:.3g} relative"),
        ("runs of the model", f"{found.runs}, for {found.nodes} nodes of the plan"),
        ("shown by", _alone(found)),
        *([("right without the pass", ", ".join(found.passes))] if found.passes else []),
        *([("program", described["program"])] if described["program"] else []),
    ]
    print_table(title, ("", "finding"), rows)
    if not found.kept:
        remark("The plan changed where values became outputs: the fault may be in a node that was merged otherwise.")


def _alone(found: "Finding") -> str:
    if found.part is None:
        return "the whole model only: no smaller part differs"
    return "the node alone" if found.part.nodes == 1 else f"the last {found.part.nodes} nodes of the plan up to it"
