"""`dovetail run`: a model once, with inputs from files."""

import itertools
from typing import TYPE_CHECKING, Any

import click

from dovetail.cli._command import command as make_command
from dovetail.cli._command import config_file_option, device_option, extension_option, seed_option, shape_option
from dovetail.cli._complete import complete_files
from dovetail.cli._output import duration, print_table, remark, show, value_type
from dovetail.errors import UsageError
from dovetail.names import DEFAULT_DEVICE, PLAN_SUFFIX

if TYPE_CHECKING:
    from dovetail.runtime import Results

_SHOWN = 8
"""How many values of an output the table and the JSON show."""


@make_command("dovetail run model.onnx -d CPU -i image=cat.png -o out.npz")
@click.argument("model", shell_complete=complete_files)
@device_option
@click.option(
    "-i",
    "--input",
    "given",
    multiple=True,
    metavar="[NAME=]SOURCE",
    help="An .npz, .npy, .png or .jpg file, or the word random. NAME may be left out when there is one input, or when an "
    ".npz file has the names. Repeatable.",
)
@click.option(
    "-o", "--output", "target", type=click.Path(dir_okay=False, writable=True), help="Write the outputs to this .npz file."
)
@extension_option
@config_file_option
@shape_option
@seed_option
def command(
    model: str, device: str, given: tuple[str, ...], target: str | None, extensions: tuple[str, ...],
    config_files: tuple[str, ...], shapes: tuple[str, ...], seed: int, as_json: bool,
) -> None:  # fmt: skip
    """Run MODEL once; show or store its outputs. A file that `dovetail compile` has written is run as it was compiled.

    Pictures are scaled to the input's size; their values are 0..255 for integer inputs and 0..1 for floating-point ones.
    Random floats are in [0, 1), random integers are 0 or 1.

    \b
    JSON: {"model", "device", "seconds", "file": name or null,
           "outputs": [{"name", "dtype", "shape", "min", "max", "mean",
                        "first": [up to 8 values]}]}
    Statistics of empty outputs and of strings are null. A sequence has the
    dtype "sequence", a map "map", an absent optional "optional"; in the .npz
    file their parts are called NAME[0], NAME.keys and NAME.values.
    """
    from pathlib import Path

    from dovetail.cli._inputs import read_inputs, write_npz
    from dovetail.cli._models import make_core, reshaped
    from dovetail.cli._timing import timed

    if target is not None and Path(target).suffix.lower() != ".npz":
        raise click.UsageError(f"-o {target}: accepted: a file that ends in .npz")
    if target is not None and not Path(target).absolute().parent.is_dir():
        raise UsageError(f"-o {target}: the folder {Path(target).parent} does not exist", hint="make it first")
    core = make_core(extensions)
    properties = {"CONFIG_FILE": list(config_files)} if config_files else {}
    if Path(model).suffix.lower() == PLAN_SUFFIX:
        compiled = core.import_model(model, "" if device == DEFAULT_DEVICE else device, properties)
        read = reshaped(compiled.model, shapes)
    else:
        read = reshaped(core.read_model(model), shapes)
        compiled = None
    inputs = read_inputs(read.inputs, given, seed, read.overridable)
    compiled = compiled or core.compile_model(read, device, properties)
    seconds, results = timed(lambda: compiled(inputs))
    if target is not None:
        write_npz(target, results)
        remark(f"Wrote {target}.")
    described = {"model": model, "device": compiled.device, "seconds": seconds, "file": target}
    described["outputs"] = _describe(results)
    show(described, as_json, _print)


def _describe(results: "Results") -> list[dict[str, Any]]:
    return [{"name": name, **value_type(value), **_statistics(value), "first": _first(value)} for name, value in results.items()]


def _statistics(array: Any) -> dict[str, float | None]:
    import numpy as np

    if not isinstance(array, np.ndarray) or array.size == 0 or array.dtype == object:
        return {"min": None, "max": None, "mean": None}
    numbers = np.abs(array) if np.iscomplexobj(array) else array.astype(np.float64)
    return {"min": float(numbers.min()), "max": float(numbers.max()), "mean": float(numbers.mean())}


def _first(value: Any) -> list[Any]:
    """Elements of an array, items of a sequence (`float32[3]` for a tensor), pairs of a map."""
    if value is None or isinstance(value, list | dict):
        items = value.items() if isinstance(value, dict) else value or ()
        return [_item(item) for item in itertools.islice(items, _SHOWN)]
    values = value.reshape(-1)[:_SHOWN].tolist()
    return [value if isinstance(value, bool | int | float | str) else str(value) for value in values]


def _item(value: Any) -> Any:
    import numpy as np

    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, dict):
        return {key: _item(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(map(_item, value))
    return value.item() if isinstance(value, np.generic) else value


def _print(described: dict[str, Any]) -> None:
    rows = [
        (o["name"], f"{o['dtype']}{o['shape']}", *(_number(o[key]) for key in ("min", "max", "mean")), _values(o))
        for o in described["outputs"]
    ]
    title = f"Outputs of {described['model']} on {described['device']}, {duration(described['seconds'])}"
    print_table(title, ("name", "type", ">min", ">max", ">mean", "first values"), rows)


def _values(output: dict[str, Any]) -> str:
    import math

    more = ", ..." if math.prod(output["shape"]) > _SHOWN else ""
    return ", ".join(_number(value) for value in output["first"]) + more


def _number(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_number(item)}' for key, item in value.items())}}}"
    if isinstance(value, tuple):
        return ": ".join(map(_number, value))
    return f"{value:.5g}" if isinstance(value, float) else str(value)
