"""`dovetail convert`: read a model in one format, write it in another."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dovetail.command import (
    command,
    complete_files,
    extension_option,
    make_core,
    print_json,
    print_table,
    remark,
    reshaped,
    shape_option,
    size,
)
from dovetail.errors import DovetailError

if TYPE_CHECKING:
    from dovetail.runtime import Core

__all__ = ["convert"]


@command("dovetail convert model.onnx model.pzkm --shape image=1,3,224,224\ndovetail convert --formats")
@click.argument("source", required=False, shell_complete=complete_files)
@click.argument("target", required=False, shell_complete=complete_files)
@click.option("--to", "format", metavar="FORMAT", help="The format to write, instead of the one for TARGET's suffix.")
@click.option("--formats", "list_formats", is_flag=True, help="List the formats that are installed, and which can be written.")
@extension_option
@shape_option
def convert(
    source: str | None,
    target: str | None,
    format: str | None,
    list_formats: bool,
    extensions: tuple[str, ...],
    shapes: tuple[str, ...],
    as_json: bool,
) -> None:
    """Write the model SOURCE as TARGET, in the format of its suffix.

    Operators keep their names, constants and metadata their content; what can be computed beforehand becomes a constant. An
    existing TARGET is replaced. When the format cannot hold an operator, the node is named and nothing is written.

    \b
    JSON: {"source", "from", "target", "to", "nodes", "bytes"}
          with --formats {"formats":
            [{"format", "reads", "writes", "provider", "error"}]}
    """
    core = make_core(extensions)
    if list_formats and source is not None:
        raise click.UsageError("Give SOURCE and TARGET, or --formats, not both.")
    if list_formats:
        _print_formats(core, as_json)
        return
    if source is None or target is None:
        raise click.UsageError("Give SOURCE and TARGET, or --formats.")
    _convert(core, source, target, format, shapes, as_json)


def _convert(core: "Core", source: str, target: str, format: str | None, shapes: tuple[str, ...], as_json: bool) -> None:
    if Path(target).exists() and Path(target).samefile(source):
        raise click.UsageError(f"SOURCE and TARGET are the same file, {target}.")
    model = reshaped(core.read_model(source), shapes)
    core.write_model(model, target, format)
    path = Path(target)
    done: dict[str, Any] = {
        "source": source,
        "from": model.format,
        "target": target,
        "to": format or path.suffix.removeprefix(".").lower(),
        "nodes": len(model.graph.nodes),
        "bytes": path.stat().st_size,
    }
    if as_json:
        print_json(done)
    else:
        remark(f"{target}: {size(done['bytes'])}, {done['nodes']} node{'s' * (done['nodes'] != 1)} of {source}")


def _print_formats(core: "Core", as_json: bool) -> None:
    found = [_format(core, name) for name in core.plugins.formats()]
    if as_json:
        print_json({"formats": found})
        return
    rows = [(f".{f['format']}", _yes(f["reads"]), _yes(f["writes"]), f["provider"]) for f in found]
    print_table("Formats", ("format", "reads", "writes", "provided by"), rows, empty="no frontend is installed")
    for broken in (f for f in found if f["error"]):
        remark(f".{broken['format']}: {broken['error']}")


def _format(core: "Core", name: str) -> dict[str, Any]:
    """The capabilities of a suffix's frontend, which is imported."""
    described = {"format": name, "reads": True, "writes": False, "provider": "", "error": None}
    try:
        described["provider"] = core.plugins.owner("frontends", name).provider
        described["writes"] = core.plugins.writes(name)
    except DovetailError as error:
        described |= {"reads": False, "error": str(error)}
    return described


def _yes(does: bool) -> str:
    return "yes" if does else "no"
