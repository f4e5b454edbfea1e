"""Reads language models in .gguf files, the format of llama.cpp. See `container`, `formats` and `decoder`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dovetail.frontend import Model, ModelSource, UsageError
from dovetail.hookspecs import hookimpl

__all__ = ["dovetail_api", "dovetail_read_model"]

dovetail_api = "1.0"


@hookimpl
def dovetail_read_model(source: Path | bytes, options: Mapping[str, Any]) -> Model:
    """Read a .gguf file from a path, which is mapped, or bytes; it has no options. Raises `FormatError`, `UsageError`."""
    if options:
        raise UsageError(f"reading .gguf takes no options; given: {', '.join(map(repr, options))}")
    from dovetail_frontend_gguf.decoder import read  # here, because it needs NumPy

    return read(ModelSource(source))
