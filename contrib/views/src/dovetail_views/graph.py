"""`dovetail graph`: a model and its plan as a page."""

from pathlib import Path
from typing import Any

import click

from dovetail.command import (
    closed,
    command,
    config_file_option,
    device_option,
    extension_option,
    given_inputs,
    make_core,
    print_json,
    remark,
    reshaped,
    seed_option,
    shape_option,
    write_file,
)

__all__ = ["graph"]

_RUNS = 5


@command("dovetail graph model.onnx -d AUTO -o model.html")
@click.argument("model")
@device_option
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="The page.  [default: MODEL.html]")
@click.option("-i", "--input", "given", multiple=True, metavar="[NAME=]SOURCE", help="As for `run`.  [default: random]")
@click.option("--time", "with_times", is_flag=True, help=f"Run the model {_RUNS} times and show what each node takes.")
@extension_option
@config_file_option
@shape_option
@seed_option
def graph(
    model: str, device: str, output: Path | None, given: tuple[str, ...], with_times: bool, extensions: tuple[str, ...],
    config_files: tuple[str, ...], shapes: tuple[str, ...], seed: int, as_json: bool,
) -> None:  # fmt: skip
    """Draw MODEL and its plan on a device as an HTML page.

    The page is one file that loads nothing from elsewhere. It shows the model as read and the plan as run, each alone or side by
    side, with nodes coloured by device, kernel or time; edges have shapes and layouts. Click a node for its attributes, layouts,
    merged nodes, and the refusals of the devices and kernels that were asked before. Dimensions that the model leaves open are 1
    unless --shape sets them.

    \b
    JSON, instead of the page unless -o is given: {"title", "facts": [[name, value]],
           "views": {"model": {"nodes", "edges"}, "plan": {"nodes", "edges"}}}
    Edges are {"from", "to"} by the "id" of nodes. A node of the model has
    "name", "op", "attributes", "inputs", "outputs", and "plan", the nodes that
    run it; one of the plan has "name", "op", "device", "kernel", "provider",
    "post_ops", "origins", "refusals", "stop", "flops", "time" in nanoseconds
    or null, and "model", the nodes that it stands for.
    """
    from dovetail_views.graph_page import graph_data, graph_page, measured

    core = make_core(extensions)
    read = closed(reshaped(core.read_model(model), shapes))
    properties: dict[str, Any] = {"CONFIG_FILE": list(config_files)} if config_files else {}
    with core.compile_model(read, device, properties) as compiled:
        times = {}
        if with_times or given:
            request = compiled.create_infer_request()
            times = measured(request.trace(given_inputs(read, given, seed), runs=_RUNS).slices, _RUNS)
        elif compiled.report().deferred or any(node.op.subgraphs for node in read.graph.nodes):
            compiled(given_inputs(read, given, seed))  # what data decides is planned when there is some
        compiled.plan_subgraphs()
        data = graph_data(read, compiled, core.analyze(read, device, properties).types, times)
    if as_json:
        print_json(data)
    if output is not None or not as_json:
        path = output or Path(Path(model).name).with_suffix(".html")
        write_file(path, graph_page(data).encode())
        remark(f"Wrote {path}.")
