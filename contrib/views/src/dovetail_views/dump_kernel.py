"""`dovetail run --dump-kernel`: one node of a model as a program that runs alone, with the data that it gets in the model."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dovetail.command import (
    command,
    complete_files,
    config_file_option,
    device_option,
    extension_option,
    given_inputs,
    make_core,
    print_text,
    reshaped,
    seed_option,
    shape_option,
    show,
)
from dovetail.errors import UsageError, did_you_mean
from dovetail_views.inputs import input_option

if TYPE_CHECKING:
    from dovetail.runtime import CompiledModel

__all__ = ["dump_kernel"]


@command("dovetail run model.onnx -d OPENCL --dump-kernel conv1 --to alone", name="run --dump-kernel")
@click.argument("model", shell_complete=complete_files)
@click.option("--dump-kernel", "node", metavar="NODE", required=True, help="The node: its name in the model, or in the plan.")
@click.option(
    "--to", "folder", type=click.Path(file_okay=False, path_type=Path), metavar="FOLDER", required=True, help="A new folder."
)
@device_option
@input_option
@extension_option
@config_file_option
@shape_option
@seed_option
def dump_kernel(
    model: str, node: str, folder: Path, device: str, given: tuple[str, ...], extensions: tuple[str, ...],
    config_files: tuple[str, ...], shapes: tuple[str, ...], seed: int, as_json: bool,
) -> None:  # fmt: skip
    """Write the kernels of one node as a program that runs alone.

    The folder gets the sources that the device runs for the node, the data that they read and the result that is expected, and
    a program that runs them and compares.

    \b
    JSON: {"model", "device", "node", "program": path}
    """
    core = make_core(extensions)
    read = reshaped(core.read_model(model), shapes)
    inputs = given_inputs(read, given, seed)
    compiled = core.compile_model(read, device, {"CONFIG_FILE": list(config_files)} if config_files else {})
    path = _reproduced(compiled, inputs, node, folder)
    described = {"model": model, "device": compiled.device, "node": node, "program": str(path)}
    show(described, as_json, lambda said: print_text(f"Wrote {said['program']}."))


def _reproduced(compiled: "CompiledModel", inputs: Any, node: str, folder: Path) -> Path:
    """Run the model up to a node, and let its device write the node's kernels as a program into `folder`, which is made.

    `node` is a name of the report, or of a node of the model that was merged into one. Returns the path of the program. Raises
    `UsageError` for an unknown node, for a device that writes none, and for a folder that has files in it.
    """
    compiled = compiled.taking(inputs)
    arrays, _ = compiled.reader.read(inputs)
    plan = compiled.plan(tuple(array.shape for array in arrays))
    name, last = _step_of(plan, node)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        used = any(folder.iterdir())
    except OSError as error:
        raise UsageError(f"the folder {folder} cannot be used: {error.strerror}") from error
    if used:
        raise UsageError(f"the folder {folder} is not empty", hint="give a new one")
    written: Path = last.executable.reproduce(name, _inputs_of(plan, last, arrays), folder)
    return written


def _step_of(plan: Any, node: str) -> tuple[str, Any]:
    """The name of the node in the plan, and the step that runs it."""
    reports = [(said, step) for step in plan.steps for said in step.executable.reports]
    for said, step in reports:
        if said.name == node:
            return node, step
    for said, step in reports:
        if node in said.origins:
            return said.name, step
    raise UsageError(f"the plan has no node {node!r}", hint=did_you_mean(node, [said.name for said, _ in reports]))


def _inputs_of(plan: Any, last: Any, arrays: Sequence[Any]) -> list[Any]:
    """The inputs of a step, computed by the steps before it."""
    import numpy as np  # here, because plugins that add a command are imported for `dovetail --help`

    slots: list[Any] = [*arrays, *[None] * (plan.slots - len(arrays))]
    for step in plan.steps:
        if step is last:
            break
        request = step.executable.create_request()
        for slot, array in zip(step.writes, request.run([slots[i] for i in step.reads]), strict=True):
            slots[slot] = np.array(array)
        request.close()
    return [slots[i] for i in last.reads]
