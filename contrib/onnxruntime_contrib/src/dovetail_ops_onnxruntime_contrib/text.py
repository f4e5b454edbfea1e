"""Tokens of strings, as scikit-learn's converters write them for vectorizers."""

import re
from collections.abc import Callable
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.locks import cached_property
from dovetail.op import OperatorError, ShapeError, TensorType
from dovetail_ops_onnxruntime_contrib._base import MicrosoftOperator

__all__ = ["Tokenizer"]

Array = NDArray[Any]
_START, _END = "\x02", "\x03"


class Tokenizer(MicrosoftOperator):
    """The tokens of each string in a new last axis, filled up with `pad_value`; it has length 0 where no string has a token.

    Tokens are what `tokenexp` matches, or what is left between matches of the `separators`, one after the other: regular
    expressions in RE2's syntax, of whose matches the leftmost and then the longest counts. With one separator `""`, or the
    expression `"."`, each character is a token. Tokens of less than `mincharnum` characters are left out. With `mark` a
    token U+0002 comes before those of a string, and U+0003 after them.
    """

    inputs = ("X: string",)
    outputs = ("Y: string",)
    mark: int
    mincharnum: int
    pad_value: str
    separators: tuple[str, ...] | None = None
    tokenexp: str | None = None

    def __post_init__(self) -> None:
        if self.mincharnum < 1 or (self._is_by_character and self.mincharnum > 1):
            raise OperatorError(f"attribute 'mincharnum' is {self.mincharnum}; accepted: 1 or more; 1 for characters")
        if not self.separators and not self.tokenexp:
            raise OperatorError("attributes 'separators' and 'tokenexp' are both missing or empty; accepted: one of them")
        for separator in () if self._is_by_character else self.separators or ():
            if _compiled(separator).fullmatch(b""):
                raise OperatorError(f"attribute 'separators' has {separator!r}; accepted: expressions that match no empty string")

    def infer(self, X: TensorType) -> TensorType:
        """The shape of X and an axis more; its length depends on the data."""
        if X.rank not in (1, 2):
            raise ShapeError(f"input 'X' is {X}; accepted: [C] or [N, C]")
        return X.with_shape((*X.dims, None))

    def reference(self, X: Array) -> Array:
        """Each string by itself."""
        rows = list(map(self._split, map(str, X.flat)))
        width = max(map(len, rows), default=0)
        if self.mark and width:
            width, rows = width + 2, [[_START, *row, _END] for row in rows]
        filled = (row + [self.pad_value] * (width - len(row)) for row in rows)
        return np.fromiter(chain.from_iterable(filled), object, len(rows) * width).reshape(*X.shape, width)

    @cached_property
    def _split(self) -> Callable[[str], list[str]]:
        """The tokens of a string, without marks."""
        if self._is_by_character:
            return list
        least, words = self.mincharnum, None if self.separators else _of_class(self.tokenexp or "")
        if words is not None:
            return words if least == 1 else lambda text: [token for token in words(text) if len(token) >= least]
        if self.separators:
            separate = [_compiled(separator).split for separator in self.separators]

            def between(text: str) -> list[str]:
                parts = [text.encode()]
                for split in separate:
                    parts = [piece for part in parts for piece in split(part)]
                return [token for part in parts if len(token := part.decode()) >= least]

            return between
        found = _compiled(self.tokenexp or "").findall
        # Bytes: in strings the package counts the characters up to each match.
        return lambda text: [token for part in found(text.encode()) if len(token := part.decode()) >= least]

    @property
    def _is_by_character(self) -> bool:
        return self.separators == ("",) or (not self.separators and self.tokenexp == ".")


_CLASS = re.compile(r"\[(?:[A-Za-z0-9_](?:-[A-Za-z0-9_])?)+\]\+")
"""Runs of letters and digits, which mean the same to Python's expressions and to RE2, and take a tenth of its time by them."""


def _of_class(pattern: str) -> Callable[[str], list[str]] | None:
    """The runs in a string of the characters of a simple class; None for other expressions."""
    if not _CLASS.fullmatch(pattern):
        return None
    try:
        found: Callable[[str], list[str]] = re.compile(pattern).findall
    except re.error as error:
        raise OperatorError(f"{pattern!r} is not a regular expression: {error}") from None
    return found


@lru_cache(64)
def _compiled(pattern: str) -> Any:
    try:
        import re2  # here, because no other operator needs it
    except ImportError:
        raise OperatorError(
            "Tokenizer needs the package google-re2, which is not installed", hint="pip install 'dovetail-ops-onnx[strings]'"
        ) from None
    options = re2.Options()
    options.log_errors, options.longest_match, options.never_capture = False, True, True
    try:
        return re2.compile(pattern, options=options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        said = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else reason
        raise OperatorError(f"{pattern!r} is not a regular expression of RE2: {str(said)[:200]}") from None
