"""The one function that turns an operator type into its file stem."""

import functools
import keyword
import re

_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


@functools.cache
def stem_of(op_type: str) -> str:
    """`BatchNormalization` -> `batch_normalization`, `LSTM` -> `lstm`, `And` -> `and_` (a Python keyword)."""
    stem = _WORD.sub("_", op_type).lower()
    return f"{stem}_" if keyword.iskeyword(stem) else stem
