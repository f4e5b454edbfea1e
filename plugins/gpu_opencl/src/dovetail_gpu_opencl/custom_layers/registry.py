"""The custom layers of one compilation, and which of them is for an operator."""

import os
from collections.abc import Iterable
from importlib import resources
from typing import Any

from dovetail_gpu_opencl.custom_layers.reader import read
from dovetail_gpu_opencl.custom_layers.sources import Origin, ResourceOrigin, origins
from dovetail_gpu_opencl.custom_layers.spec import Layer

__all__ = ["GLOBAL", "VARIABLE", "Layers", "load"]

GLOBAL = "dovetail_gpu_opencl:custom_kernels/global.xml"
VARIABLE = "DOVETAIL_CUSTOM_LAYERS"


class Layers:
    """Layers in the order of their files; for an operator the last one counts, so that the user's come before the global ones."""

    def __init__(self, layers: Iterable[Layer] = ()) -> None:
        self._by_name = {plain_name(layer.name): (rank, layer) for rank, layer in enumerate(layers)}

    def find(self, domain: str, op_type: str) -> Layer | None:
        """The layer for an operator: one named after its type, or after domain and type (`ai.onnx::Relu`)."""
        if not self._by_name:
            return None
        named = (self._by_name.get(name) for name in (op_type, f"{domain}::{op_type}"))
        return max((found for found in named if found is not None), key=lambda pair: pair[0], default=(0, None))[1]

    def __len__(self) -> int:
        return len(self._by_name)


def plain_name(name: str) -> str:
    """Without the name of the standard domain, which operators leave empty."""
    return f"::{name.removeprefix('ai.onnx::')}" if name.startswith("ai.onnx::") else name


def load(config_file: Any = ()) -> Layers:
    """The layers of the global file, of `DOVETAIL_CUSTOM_LAYERS` (paths, separated as in PATH), and of `CONFIG_FILE`.

    Raises `FormatError` with file and line for a malformed file, the global one included, and `UsageError`.
    """
    layers = [*read(ResourceOrigin(GLOBAL), may_be_empty=True)] if _has_global() else []
    named = [part for part in os.environ.get(VARIABLE, "").split(os.pathsep) if part]
    found: list[Origin] = [*origins(named), *origins(config_file)]
    return Layers((*layers, *(layer for origin in found for layer in read(origin))))


def _has_global() -> bool:
    package, _, resource = GLOBAL.partition(":")
    return resources.files(package).joinpath(*resource.split("/")).is_file()
