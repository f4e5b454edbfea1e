"""`dovetail compare`: the results of a model on two devices, output by output or node by node."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from dovetail.command import (
    DEFAULT_DEVICE,
    FiniteRange,
    command,
    complete_devices,
    complete_files,
    config_file_option,
    extension_option,
    make_core,
    print_table,
    progress,
    remark,
    reshaped,
    seed_option,
    shape_option,
    show,
    value_type,
    without_warnings,
)
from dovetail.errors import DovetailError, UnknownOption, UsageError
from dovetail_views.distance import distance
from dovetail_views.inputs import input_option, model_and_inputs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dovetail.graph import Model
    from dovetail.runtime import CompiledModel, Core

    Array = NDArray[Any]

__all__ = ["compare"]

_TOLERANCE = 1e-3


@command("dovetail compare model.onnx\ndovetail compare model.onnx -d CPU -d GPU --nodes --tolerance 1e-2")
@click.argument("model", shell_complete=complete_files)
@click.option(
    "-d", "--device", "devices", multiple=True, metavar="DEVICE", shell_complete=complete_devices,
    help="A device, as for `run`: twice, or once for the default device against it. The comparison is with the second; by "
    "default the reference device.",
)  # fmt: skip
@input_option
@click.option("--nodes", is_flag=True, help="Compare the result of every node of the model, not only its outputs.")
@click.option(
    "--tolerance",
    type=FiniteRange(min=0),
    default=_TOLERANCE,
    show_default=True,
    help="The largest relative difference that is not a failure.",
)
@extension_option
@config_file_option
@shape_option
@seed_option
def compare(
    model: str, devices: tuple[str, ...], given: tuple[str, ...], nodes: bool, tolerance: float, extensions: tuple[str, ...],
    config_files: tuple[str, ...], shapes: tuple[str, ...], seed: int, as_json: bool,
) -> None:  # fmt: skip
    """Run MODEL on two devices and show how much the results differ.

    Both get the same inputs. The absolute difference is the largest |a - b| of a value; the relative one is that divided by the
    largest finite |b|, where b is from the second device. NaN agrees with NaN and an infinity with itself; if only one side
    has them, or text differs, the difference is infinite. The exit code is 1 when a relative difference is above --tolerance.

    With --nodes the first device runs the model cut off after each of its nodes in turn: fused as in the whole model up to
    there, and compiled once for each node. Start looking at the first node that differs.

    \b
    JSON: {"model", "devices": [first, second], "tolerance", "agree",
           "first_difference": name or null,
           "values": [{"node", "operator", "name", "dtype", "shape",
                       "absolute", "relative", "agree"}]}
    Node and operator are empty for outputs that no node writes; an infinite
    difference is null.
    """
    if len(devices) > 2:
        raise click.UsageError(f"-d is given {len(devices)} times; accepted: once or twice.")
    from dovetail.runtime import REFERENCE_DEVICE

    core = make_core(extensions)
    read, inputs = model_and_inputs(reshaped(core.read_model(model), shapes), given, seed)
    pair = (*(devices or (DEFAULT_DEVICE,)), REFERENCE_DEVICE)[:2]
    first, second = (_compiled(core, read, device, config_files) for device in pair)
    names = (first.device, second.device)
    # For its nodes the model is compiled again and again: what was logged for the whole is not repeated for the parts.
    with without_warnings() if nodes else nullcontext():
        results = (
            list(_each_node(core, read, names, inputs, config_files))
            if nodes
            else list(_outputs(read, first(inputs), second(inputs)))
        )
    values = [_difference(read, *result, tolerance) for result in results]
    if not values:
        raise UsageError(f"{model}: no value could be compared", hint="the remarks above say why; compare without --nodes")
    differing = next((value["name"] for value in values if not value["agree"]), None)
    described = {
        "model": model,
        "devices": list(names),
        "tolerance": tolerance,
        "agree": differing is None,
        "first_difference": differing,
        "values": values,
    }
    show(described, as_json, _print)
    if differing is not None:
        click.get_current_context().exit(1)


def _outputs(model: "Model", got: Mapping[str, "Array"], want: Mapping[str, "Array"]) -> Iterator[tuple[str, "Array", "Array"]]:
    for name in model.outputs:
        yield name, got[name], want[name]


def _each_node(
    core: "Core", model: "Model", devices: Sequence[str], inputs: Mapping[str, "Array"], config_files: Sequence[str]
) -> Iterator[tuple[str, "Array", "Array"]]:
    """The value of every node that one can have as an output, in schedule order."""
    from dovetail.passes import schedule

    graph = schedule(model.graph)
    names = [name for node in graph.nodes for name in node.writes]
    with progress(f"{model.source} on {devices[0]}", len(names)) as advance:
        for name in names:
            advance(1)
            cut = replace(model, graph=graph.replace(outputs=(name,), states={}))
            try:
                got, want = (_run(core, cut, device, inputs, config_files) for device in devices)
            except DovetailError as error:
                remark(f"{name} is left out: {error}")
            else:
                yield name, got, want


def _compiled(core: "Core", model: "Model", device: str, config_files: Sequence[str]) -> "CompiledModel":
    """With the custom layers, where the device has the property for them."""
    if config_files:
        with suppress(UnknownOption):
            return core.compile_model(model, device, {"CONFIG_FILE": list(config_files)})
    return core.compile_model(model, device)


def _run(core: "Core", model: "Model", device: str, inputs: Mapping[str, "Array"], config_files: Sequence[str]) -> "Array":
    from copy import deepcopy  # sequences are lists of arrays

    with _compiled(core, model, device, config_files) as compiled:
        return deepcopy(compiled(inputs)[0])


def _difference(model: "Model", name: str, got: "Array", want: "Array", tolerance: float) -> dict[str, Any]:
    node = model.graph.producers.get(name)
    absolute, relative = distance(got, want)
    return {
        "node": "" if node is None else node.name,
        "operator": "" if node is None else node.op.key,
        "name": name,
        **value_type(want),
        "absolute": absolute,
        "relative": relative,
        "agree": relative <= tolerance,
    }


def _print(described: dict[str, Any]) -> None:
    first, second = described["devices"]
    rows = [
        (
            value["name"],
            value["operator"],
            f"{value['dtype']}{value['shape']}",
            f"{value['absolute']:.3g}",
            f"{value['relative']:.3g}",
            "" if value["agree"] else "differs",
        )
        for value in described["values"]
    ]
    columns = ("value", "operator", "type", ">absolute", ">relative", "")
    print_table(f"{described['model']}: {first} against {second}", columns, rows)
    if described["first_difference"] is not None:
        value = next(v for v in described["values"] if v["name"] == described["first_difference"])
        where = f", of node {value['node']} ({value['operator']})" if value["node"] else ""
        remark(f"The first value that differs by more than {described['tolerance']:g} is {value['name']}{where}.")
