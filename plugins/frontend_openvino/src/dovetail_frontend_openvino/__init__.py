"""Reads OpenVINO IR, versions 10 and 11: a file `.xml` with the graph, and `.bin` beside it with the weights. See `reader`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dovetail.frontend import Model, ModelSource, UsageError
from dovetail.hookspecs import hookimpl
from dovetail_frontend_openvino.reader import read

__all__ = ["dovetail_api", "dovetail_read_model"]

dovetail_api = "1.0"


@hookimpl
def dovetail_read_model(source: Path | bytes, options: Mapping[str, Any]) -> Model:
    """Read an IR from the path of its `.xml`, or from the bytes of that.

    One option: `weights`, the content of the `.bin` as bytes, or its path; by default the file beside the `.xml`. Raises
    `FormatError`, `GraphError`, `UsageError`.
    """
    unknown = [name for name in options if name != "weights"]
    if unknown:
        raise UsageError(f"reading IR takes no option {unknown[0]!r}", hint="accepted: weights, the .bin as bytes or its path")
    weights = options.get("weights")
    if not (weights is None or isinstance(weights, str | Path | bytes)):
        raise UsageError(f"weights is a {type(weights).__name__}", hint="accepted: bytes, or the path of the .bin")
    return read(ModelSource(source), Path(weights) if isinstance(weights, str) else weights)
