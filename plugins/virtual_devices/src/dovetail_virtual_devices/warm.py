"""Marks in the cache: for which models and devices kernels were compiled before, so that compiling again is quick."""

from collections.abc import Mapping
from typing import Any

from dovetail.cache import FileCache, cache_key
from dovetail.virtual import DeviceInfo, Model

__all__ = ["WarmMarks"]

SECTION = "virtual_devices"


class WarmMarks:
    """The marks of one model: by its operators and shapes, the device with its driver, and the properties."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def has(self, info: DeviceInfo, properties: Mapping[str, Any]) -> bool:
        """True when the model was compiled for the device before, and the cache was not cleared since."""
        return FileCache(SECTION).get(self._key(info, properties)) is not None

    def add(self, info: DeviceInfo, properties: Mapping[str, Any]) -> None:
        """Remember that the model was compiled for the device."""
        FileCache(SECTION).put(self._key(info, properties), b"1")

    def _key(self, info: DeviceInfo, properties: Mapping[str, Any]) -> str:
        graph = self._model.graph
        nodes = [f"{node.op.key} {node.name} {[str(graph.types.get(n)) for n in node.reads]}" for node in graph.nodes]
        device = [info.name, info.full_name, repr(sorted(info.details.items()))]
        return cache_key(*device, repr(sorted(properties.items(), key=str)), *nodes)
