"""Reads and writes .pzkm models. See `reader` and `writer`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dovetail.frontend import Model, ModelSource, UsageError
from dovetail.hookspecs import hookimpl
from dovetail_frontend_pzkm.reader import read
from dovetail_frontend_pzkm.writer import write

__all__ = ["dovetail_api", "dovetail_read_model", "dovetail_write_model"]

dovetail_api = "1.0"


@hookimpl
def dovetail_read_model(source: Path | bytes, options: Mapping[str, Any]) -> Model:
    """Read a .pzkm model from a path or bytes; it has no options. Raises `FormatError`, `GraphError`, `UsageError`."""
    if options:
        raise UsageError(f"reading .pzkm takes no options; given: {', '.join(map(repr, options))}")
    return read(ModelSource(source))


@hookimpl
def dovetail_write_model(model: Model, options: Mapping[str, Any]) -> bytes:
    """Write a model as .pzkm; `identifier=False` leaves the file identifier out, as the format's own engine does.

    Raises `FormatError` naming the node that no layer can hold, `UsageError` for another option.
    """
    unknown = [name for name in options if name != "identifier"]
    if unknown:
        raise UsageError(f"writing .pzkm knows no option {unknown[0]!r}", hint="accepted: identifier (True, False)")
    return write(model, bool(options.get("identifier", True)))
