"""Work-size formulas of the custom-layer format: integer arithmetic over the dimensions B, F, Y and X.

Grammar: `+ - * / % ( )`, unary minus, decimal integers, the letters B F Y X in either case, white space anywhere. Division
truncates toward zero as in C, and `%` takes the sign of the dividend. Values are 32-bit integers. What is accepted is a part of
Python's expressions, so Python's parser reads it.
"""

import ast
import operator
import re
import reprlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dovetail.dataclass import dataclass, field
from dovetail.errors import UsageError

__all__ = ["Formula", "dimensions"]

_LIMIT = 1 << 31
_LONGEST = 500
"""Characters. Python's parser and `evaluate` call themselves for each nested expression."""
_ACCEPTED = r"(?:[-+*/%() ]|[0-9]+\b|[BFYXbfyx]\b)*"


def dimensions(dims: Sequence[int]) -> dict[str, int]:
    """B, F, Y and X of a shape: aligned on the left, 1 where it has fewer dimensions. Raises `UsageError` above rank 4."""
    if len(dims) > 4:
        raise UsageError(f"the shape {list(dims)} has {len(dims)} dimensions; formulas know four: B, F, Y, X")
    return dict(zip("BFYX", (*dims, *(1,) * (4 - len(dims))), strict=True))


def _quotient(left: int, right: int) -> int:
    return abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)


_SIGNS: dict[type[ast.AST], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: _quotient,
    ast.Mod: lambda left, right: left - _quotient(left, right) * right,
}
_NODES = (ast.BinOp, ast.UnaryOp, ast.USub, ast.Name, ast.Load, ast.Constant, *_SIGNS)


@dataclass(frozen=True, slots=True)
class Formula:
    """A parsed formula: `text` as written, and its syntax tree."""

    text: str
    tree: ast.expr = field(compare=False, repr=False)

    @staticmethod
    def parse(text: str) -> "Formula":
        """Parse a formula. Raises `UsageError` naming the text and what is wrong with it."""
        words = " ".join(text.split())
        if not words or len(words) > _LONGEST:
            raise _malformed(text, f"it has {len(words)} characters; accepted: up to {_LONGEST}" if words else "it is empty")
        if odd := words[re.match(_ACCEPTED, words).end() :]:  # type: ignore[union-attr]  # which matches nothing, too
            raise _malformed(text, f"{odd.split()[0]!r} is not accepted")
        try:
            tree = ast.parse(words, mode="eval").body
        except (SyntaxError, RecursionError, MemoryError) as error:  # the last two for nested expressions
            raise _malformed(text, getattr(error, "msg", "nested too deep")) from None
        for node in ast.walk(tree):
            if not isinstance(node, _NODES) or getattr(node, "value", 0) >= _LIMIT:
                raise _malformed(text, f"{ast.unparse(node) or type(node).__name__} is not accepted")
        return Formula(text, tree)

    def evaluate(self, values: Mapping[str, int]) -> int:
        """The value for B, F, Y and X. Raises `UsageError` for a division by zero or a result outside 32 bits."""
        try:
            return self._value(self.tree, values)
        except ZeroDivisionError:
            raise UsageError(f"formula {self.text!r} divides by zero") from None

    def _value(self, node: Any, values: Mapping[str, int]) -> int:
        if isinstance(node, ast.BinOp):
            found = _SIGNS[type(node.op)](self._value(node.left, values), self._value(node.right, values))
        elif isinstance(node, ast.UnaryOp):
            found = -self._value(node.operand, values)
        else:
            found = values[node.id.upper()] if isinstance(node, ast.Name) else node.value
        if not -_LIMIT <= found < _LIMIT:
            raise UsageError(f"formula {self.text!r} leaves the range of 32-bit integers: {found}")
        return found


def _malformed(text: str, reason: str) -> UsageError:
    shown = reprlib.repr(text)
    return UsageError(f"formula {shown}: {reason}", hint="accepted: + - * / % ( ), whole numbers, and the dimensions B F Y X")
