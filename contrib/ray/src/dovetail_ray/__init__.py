"""Models over many rows and machines with Ray Data, and the command `dovetail map`.

    import dovetail_ray
    predictions = dovetail_ray.map(dataset, "model.onnx", workers=4)
    summary = dovetail_ray.map_files("rows.parquet", "out", "model.onnx", workers=4)

Ray is imported when one of the names is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dovetail.hookspecs import hookimpl

if TYPE_CHECKING:
    import click

    from dovetail_ray.datasets import Predictor
    from dovetail_ray.datasets import map_dataset as map  # noqa: A004  # the name in Ray, Spark and Dask
    from dovetail_ray.files import map_files
    from dovetail_ray.shipping import runtime_env

__all__ = ["Predictor", "map", "map_files", "runtime_env"]

dovetail_api = "1.0"

_HOMES = {
    "Predictor": ("datasets", "Predictor"),
    "map": ("datasets", "map_dataset"),
    "map_files": ("files", "map_files"),
    "runtime_env": ("shipping", "runtime_env"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, member = _HOMES[name]
    return getattr(import_module(f"{__name__}.{module}"), member)


@hookimpl
def dovetail_add_commands(cli: "click.Group") -> None:
    # Here, because who looks at a plugin, as `dovetail plugins info` does, needs no command.
    from dovetail_ray.command import map_

    cli.add_command(map_)
