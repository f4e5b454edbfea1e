"""Reads and writes ONNX models. See `reader` and `writer`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dovetail.frontend import Model, ModelSource, UsageError
from dovetail.hookspecs import hookimpl
from dovetail_frontend_onnx.reader import read

__all__ = ["dovetail_api", "dovetail_read_model", "dovetail_write_unbound_model"]

dovetail_api = "1.0"


@hookimpl
def dovetail_read_model(source: Path | bytes, options: Mapping[str, Any]) -> Model:
    """Read an ONNX model from a path or bytes. Raises `FormatError`, `GraphError`, `UsageError`.

    `parse_limit`: bytes that parsing may take, for a trusted model that is refused because it would take too many.
    """
    unknown = [name for name in options if name != "parse_limit"]
    limit = options.get("parse_limit")
    if unknown:
        raise UsageError(f"reading ONNX knows no option {unknown[0]!r}", hint="accepted: parse_limit (bytes)")
    if limit is not None and not (isinstance(limit, int) and limit > 0):
        raise UsageError(f"parse_limit is {limit!r}", hint="accepted: a positive number of bytes")
    return read(ModelSource(source), limit)


@hookimpl
def dovetail_write_unbound_model(model: Model, options: Mapping[str, Any]) -> bytes:
    """Write an ONNX model, without options. Raises `FormatError` naming the node that ONNX cannot hold, `UsageError`."""
    if options:
        raise UsageError(f"writing ONNX takes no options; given: {', '.join(map(repr, options))}")
    from dovetail_frontend_onnx.writer import write  # here, because it needs all of package onnx

    return write(model)
