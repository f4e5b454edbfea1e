"""The module that Model Explorer loads: an adapter for all installed formats. DOVETAIL_DEVICE names the device, AUTO if not."""

import os
from typing import Any

import model_explorer  # type: ignore[import-not-found]  # only Model Explorer imports this module
from model_explorer import graph_builder

import dovetail
from dovetail.command import closed
from dovetail_views.graph_page import graph_data
from dovetail_views.model_explorer.graphs import graphs

__all__ = ["DovetailAdapter"]


class DovetailAdapter(model_explorer.Adapter):  # type: ignore[misc]  # it has no types
    """Shows a model as dovetail reads it, and its plan."""

    metadata = model_explorer.AdapterMetadata(
        id="dovetail",
        name="dovetail",
        description="The model as dovetail reads it, and the plan on a device",
        fileExts=list(dovetail.Core().plugins.formats()),
    )

    def convert(self, model_path: str, settings: dict[str, Any]) -> dict[str, Any]:
        """The graphs of a file. Open dimensions are 1."""
        core = dovetail.Core()
        model = closed(core.read_model(model_path))
        with core.compile_model(model, os.environ.get("DOVETAIL_DEVICE", "DEFAULT")) as compiled:
            compiled.plan_subgraphs()
            return {"graphs": graphs(graph_data(model, compiled, core.analyze(model).types), graph_builder)}
