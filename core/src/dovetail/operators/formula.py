"""Work-size formulas of the custom-layer format: integer arithmetic over the dimensions B, F, Y and X.

Grammar: `+ - * / % ( )`, unary minus, decimal integers, the letters B F Y X in either case, white space anywhere. Division
truncates toward zero as in C, and `%` takes the sign of the dividend. Values are 32-bit integers.
"""

import re
from collections.abc import Mapping, Sequence

from dovetail.dataclass import dataclass
from dovetail.errors import UsageError

__all__ = ["Formula", "dimensions"]

_TOKEN = re.compile(r"\s*(?:(?P<number>[0-9]+)|(?P<name>[A-Za-z_]\w*)|(?P<sign>[-+*/%()]))")
_LIMIT = 1 << 31
_PRECEDENCE = {"+": 1, "-": 1, "*": 2, "/": 2, "%": 2, "neg": 3}


def dimensions(dims: Sequence[int]) -> dict[str, int]:
    """B, F, Y and X of a shape: aligned on the left, 1 where it has fewer dimensions. Raises `UsageError` above rank 4."""
    if len(dims) > 4:
        raise UsageError(f"the shape {list(dims)} has {len(dims)} dimensions; formulas know four: B, F, Y, X")
    return dict(zip("BFYX", (*dims, *(1,) * (4 - len(dims))), strict=True))


@dataclass(frozen=True, slots=True)
class Formula:
    """A parsed formula: `text` as written, and its steps in postfix order."""

    text: str
    steps: tuple[str | int, ...]

    @staticmethod
    def parse(text: str) -> "Formula":
        """Parse a formula. Raises `UsageError` naming the text and what is wrong with it."""
        return Formula(text, tuple(_postfix(text)))

    def evaluate(self, values: Mapping[str, int]) -> int:
        """The value for B, F, Y and X. Raises `UsageError` for a division by zero or a result outside 32 bits."""
        stack: list[int] = []
        for step in self.steps:
            if isinstance(step, int):
                stack.append(step)
            elif step in "BFYX":
                stack.append(values[step])
            elif step == "neg":
                stack.append(-stack.pop())
            else:
                right, left = stack.pop(), stack.pop()
                stack.append(self._apply(step, left, right))
            if not -_LIMIT <= stack[-1] < _LIMIT:
                raise UsageError(f"formula {self.text!r} leaves the range of 32-bit integers: {stack[-1]}")
        return stack[0]

    def _apply(self, sign: str, left: int, right: int) -> int:
        if sign in "/%" and right == 0:
            raise UsageError(f"formula {self.text!r} divides by zero")
        if sign == "+":
            return left + right
        if sign == "-":
            return left - right
        if sign == "*":
            return left * right
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        return quotient if sign == "/" else left - quotient * right


def _tokens(text: str) -> list[str | int]:
    found: list[str | int] = []
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            raise _malformed(text, f"{text[position:].lstrip()[:1]!r} has no place in a formula")
        if match["number"]:
            found.append(int(match["number"]) if len(match["number"]) < 20 else _LIMIT)
        elif match["name"]:
            if match["name"].upper() not in ("B", "F", "Y", "X"):
                raise _malformed(text, f"unknown name {match['name']!r}")
            found.append(match["name"].upper())
        else:
            found.append(match["sign"])
        position = match.end()
    return found


def _postfix(text: str) -> list[str | int]:
    """Dijkstra's shunting yard; no recursion, so that nesting has no limit."""
    output: list[str | int] = []
    waiting: list[str] = []
    operand_next = True
    for token in _tokens(text):
        if isinstance(token, int) or token in "BFYX":
            if not operand_next:
                raise _malformed(text, f"an operator is missing before {token}")
            if isinstance(token, int) and token >= _LIMIT:
                raise _malformed(text, "a number is too large")
            output.append(token)
            operand_next = False
        elif token == "(":
            if not operand_next:
                raise _malformed(text, "an operator is missing before '('")
            waiting.append(token)
        elif token == ")":
            if operand_next:
                raise _malformed(text, "a value is missing before ')'")
            while waiting and waiting[-1] != "(":
                output.append(waiting.pop())
            if not waiting:
                raise _malformed(text, "')' without '('")
            waiting.pop()
        elif operand_next:
            if token != "-":
                raise _malformed(text, f"a value is missing before {token!r}")
            waiting.append("neg")
        else:
            while waiting and waiting[-1] != "(" and _PRECEDENCE[waiting[-1]] >= _PRECEDENCE[token]:
                output.append(waiting.pop())
            waiting.append(token)
            operand_next = True
    if operand_next:
        raise _malformed(text, "a value is missing at the end" if text.strip() else "it is empty")
    if "(" in waiting:
        raise _malformed(text, "'(' without ')'")
    return output + waiting[::-1]


def _malformed(text: str, reason: str) -> UsageError:
    return UsageError(f"formula {text!r}: {reason}", hint="accepted: + - * / % ( ), whole numbers, and the dimensions B F Y X")
