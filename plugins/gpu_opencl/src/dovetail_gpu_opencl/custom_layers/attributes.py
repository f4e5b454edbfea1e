"""Attributes of operators as text for `#define`: a format's own text where it has one, else the shortest that reads back."""

import math
import re
from typing import Any

import numpy as np

from dovetail.device import DType
from dovetail.errors import OperatorError
from dovetail.frontend import printable
from dovetail_gpu_opencl.custom_layers.spec import Define

__all__ = ["attribute_text"]

_INTEGER = r"[-+]?(?:0[xX][0-9a-fA-F]+|[0-9]+)"
_NUMBER = rf"(?:{_INTEGER}|[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?f?|-?INFINITY|NAN)"
_WORDS = r"[\w .,+\-]*"
"""Text of a model where the `Define` has no type: words and numbers, with which no expression can be written."""
_PATTERNS = {"int": _INTEGER, "float": _NUMBER, "": _WORDS}


def attribute_text(define: Define, value: Any) -> str:
    """The value for a `#define`; lists are joined by commas.

    Raises `OperatorError` for a value that has no text, and for text that is not of the type of the `Define`, or no words and
    numbers where it has none: a model must not bring code into a kernel.
    """
    text = _text(value)
    where = f"{define.place}: the attribute {define.param!r} is"
    if text is None:
        raise OperatorError(f"{where} a {type(value).__name__}", hint="accepted: numbers, bools, text and lists of these")
    pattern = _PATTERNS[define.type.removesuffix("[]")]
    items = text.split(",") if define.type.endswith("[]") else [text]
    if text and not all(re.fullmatch(pattern, item.strip(" "), re.ASCII) for item in items):
        accepted = f"the Define has the type {define.type}" if define.type else "accepted: letters, digits and _ . , + -"
        raise OperatorError(f"{where} {printable(text)!r}; {accepted}")
    return text


def _text(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, DType):
        return str(value.onnx)
    if isinstance(value, bool | np.bool_):
        return str(int(value))
    if isinstance(value, int | np.integer):
        return str(int(value))
    if isinstance(value, float | np.floating):
        return _decimal(float(value))
    if isinstance(value, np.ndarray):
        value = value.reshape(-1).tolist() if value.ndim < 2 else None
    if isinstance(value, list | tuple):
        items = [_text(item) for item in value]
        return None if None in items else ",".join(item for item in items if item is not None)
    return None


def _decimal(value: float) -> str:
    """Most attributes are float32, whose shortest text is much shorter than that of the equal float64: `0.1`."""
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    with np.errstate(over="ignore"):
        single = np.float32(value)
    return str(single) if float(single) == value else repr(value)
