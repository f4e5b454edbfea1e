"""`dovetail compile`: a model as a file of plans, which `dovetail run` and `Core.import_model` start from."""

from pathlib import Path
from typing import Any

import click

from dovetail.command import (
    PLAN_SUFFIX,
    command,
    complete_files,
    config_file_option,
    device_option,
    make_core,
    remark,
    reshaped,
    shape_option,
    show,
    size,
)
from dovetail.errors import UsageError
from dovetail.graph import Model, TensorType

__all__ = ["compile_"]


@command("dovetail compile model.onnx -d CPU -o model.plans --shape x=1,3,224,224", name="compile")
@click.argument("model", shell_complete=complete_files)
@device_option
@click.option(
    "-o",
    "--output",
    "target",
    required=True,
    type=click.Path(dir_okay=False, writable=True),
    metavar=f"FILE{PLAN_SUFFIX}",
    help="The file to write.",
)
@config_file_option
@shape_option
def compile_(model: str, device: str, target: str, config_files: tuple[str, ...], shapes: tuple[str, ...], as_json: bool) -> None:
    """Compile MODEL for DEVICE, and write plan and weights into a file.

    `dovetail run FILE.plans` and `Core.import_model` start from it without the model and without passes. The file belongs to
    this installation and device; elsewhere it is refused, and the error says what differs. It holds one set of input shapes:
    give those that the model leaves open.

    \b
    JSON: {"model", "device", "file", "bytes", "nodes",
           "inputs": {name: shape}}
    """
    if Path(target).suffix.lower() != PLAN_SUFFIX:
        raise click.UsageError(f"-o {target}: accepted: a file that ends in {PLAN_SUFFIX}")
    core = make_core()
    read = core.read_model(model)
    planned = _closed(read, reshaped(read, shapes))
    with core.compile_model(read, device, {"CONFIG_FILE": list(config_files)} if config_files else {}) as compiled:
        compiled.plan(tuple(planned.values()))
        nodes = len(compiled.report().nodes)
        compiled.export_model(target)
        device = compiled.device
    described = {"model": model, "device": device, "file": target, "bytes": Path(target).stat().st_size, "nodes": nodes}
    show({**described, "inputs": {name: shape and list(shape) for name, shape in planned.items()}}, as_json, _print)


def _closed(model: Model, wanted: Model) -> dict[str, tuple[int, ...] | None]:
    """The shapes to plan for. Raises `UsageError` for those that are open, and for those that the model does not take."""
    found: dict[str, tuple[int, ...] | None] = {}
    for name in model.graph.inputs:
        declared, tensor = model.graph.types[name], wanted.graph.types[name]
        if type(tensor) is not TensorType:
            found[name] = None
            continue
        if not tensor.is_static:
            example = ",".join(str(dim) if type(dim) is int else "1" for dim in tensor.shape or ("2", "3"))
            raise UsageError(f"input {name!r} of {model.source} is {tensor}", hint=f"say its shape: --shape {name}={example}")
        if any(type(one) is int and one != dim for one, dim in zip(declared.shape or (), tensor.dims, strict=False)):
            hint = "convert the model with that shape first: dovetail convert"
            raise UsageError(f"input {name!r} of {model.source} is {declared}, and --shape says {list(tensor.dims)}", hint=hint)
        found[name] = tensor.dims
    return found


def _print(described: dict[str, Any]) -> None:
    remark(f"{described['file']}: {size(described['bytes'])}, {described['nodes']} nodes for {described['device']}")
