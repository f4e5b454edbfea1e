"""Reads ONNX models. See `reader`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dovetail.frontend import Model, ModelSource, UsageError
from dovetail.hookspecs import hookimpl
from dovetail_frontend_onnx.reader import read

__all__ = ["dovetail_api", "dovetail_read_model"]

dovetail_api = "1.0"


@hookimpl
def dovetail_read_model(source: Path | bytes, options: Mapping[str, Any]) -> Model:
    """Read an ONNX model from a path or bytes; it has no options. Raises `FormatError`, `GraphError`, `UsageError`."""
    if options:
        raise UsageError(f"reading ONNX takes no options; given: {', '.join(map(repr, options))}")
    return read(ModelSource(source))
