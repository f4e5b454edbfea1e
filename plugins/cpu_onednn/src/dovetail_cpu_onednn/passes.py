"""The graph passes of this package, for the entry points `dovetail.hooks`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dovetail.device import Graph
from dovetail.hookspecs import hookimpl

__all__ = ["dovetail_api", "dovetail_graph_passes"]

dovetail_api = "1.0"


@hookimpl
def dovetail_graph_passes(options: Mapping[str, Any]) -> Sequence[Callable[[Graph], Graph]]:
    """Recognise GELU."""
    from dovetail_cpu_onednn.gelu import fuse_gelu

    return [fuse_gelu]
