"""The grammar of RE2's regular expressions: a pattern as a tree."""

import re
import unicodedata
from collections.abc import Callable
from typing import Any

__all__ = ["Node", "Test", "is_word", "parse"]

Test = Callable[[str], bool]
"""Whether a character is one of a class."""

Node = tuple[str, Any]
"""`test` a Test; `assert` one of `A z ^ $ b B`; `all` and `any` of nodes; `repeat` (node, least, most or None)."""

DEEPEST = 100
MOST_REPEATED = 1000

_PERL: dict[str, Test] = {
    "d": lambda c: "0" <= c <= "9",
    "s": lambda c: c in "\t\n\f\r ",
    "w": lambda c: c.isascii() and (c.isalnum() or c == "_"),
}
_POSIX: dict[str, Test] = {
    "alnum": lambda c: c.isascii() and c.isalnum(),
    "alpha": lambda c: c.isascii() and c.isalpha(),
    "ascii": str.isascii,
    "blank": lambda c: c in "\t ",
    "cntrl": lambda c: c < " " or c == "\x7f",
    "digit": _PERL["d"],
    "graph": lambda c: "!" <= c <= "~",
    "lower": lambda c: "a" <= c <= "z",
    "print": lambda c: " " <= c <= "~",
    "punct": lambda c: "!" <= c <= "~" and not c.isalnum(),
    "space": lambda c: c in "\t\n\v\f\r ",
    "upper": lambda c: "A" <= c <= "Z",
    "word": _PERL["w"],
    "xdigit": lambda c: c.isascii() and c in "0123456789abcdefABCDEF",
}
_ESCAPES = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_REPEAT = re.compile(r"\{(\d+)(,?)(\d*)\}")
_GROUP = re.compile(r"\?(?:P?<(?P<name>\w+)>|(?P<on>[imsU]*)(?:-(?P<off>[imsU]+))?(?P<end>[:)]))")
_CODE = re.compile(r"x([0-9A-Fa-f]{2})|x\{([0-9A-Fa-f]{1,6})\}|(0[0-7]{0,2}|[1-7][0-7]{2})")
_CATEGORY = re.compile(r"([pP])(?:\{(\^?)(\w+)\}|([A-Z]))")
_IN_CLASS = re.compile(r"\[:(\^?)(\w+):\]")
_CATEGORIES = re.compile("C[cfnos]?|L[lmotu]?|M[cen]?|N[dlo]?|P[cdefios]?|S[ckmo]?|Z[lps]?")


def is_word(character: str) -> bool:
    """Whether it is an ASCII letter, digit or underscore; "" is none."""
    return bool(character) and _PERL["w"](character)


def parse(pattern: str) -> Node:
    """The tree of a pattern. Raises `ValueError` saying what is wrong, and where."""
    parser = _Parser(pattern)
    node = parser.alternatives(frozenset(), 0)
    if parser.at < len(pattern):
        raise parser.error("a ')' too many")
    return node


def _leaf(test: Test, flags: frozenset[str], negated: bool = False) -> Test:
    """Without regard to case where the flags say so, and then, maybe, the opposite."""

    def folded(c: str) -> bool:
        return any(test(v) for v in {c, c.lower(), c.upper(), c.casefold(), c.lower().upper()} if len(v) == 1)

    found = folded if "i" in flags else test
    return (lambda c: not found(c)) if negated else found


def _one(character: str) -> Test:
    return lambda c: c == character


class _Parser:
    """A place in a pattern.

    Flags: `i`, case does not count; `m`, `^` and `$` are the ends of lines; `s`, `.` is any character. U is about captures.
    """

    def __init__(self, pattern: str) -> None:
        self.pattern, self.at = pattern, 0

    def error(self, message: str) -> ValueError:
        """What is wrong, and where."""
        return ValueError(f"{message}, at character {self.at} of {self.pattern!r:.100}")

    def take(self, expected: "re.Pattern[str] | str") -> Any:
        """The match of what is next, or None; goes behind it."""
        if isinstance(expected, str):
            found: Any = expected if self.pattern.startswith(expected, self.at) else None
            self.at += len(expected) if found else 0
        else:
            found = expected.match(self.pattern, self.at)
            self.at = found.end() if found else self.at
        return found

    def next(self) -> str:
        """The next character; goes behind it. Raises at the end."""
        if self.at >= len(self.pattern):
            raise self.error("it ends too early")
        self.at += 1
        return self.pattern[self.at - 1]

    def alternatives(self, flags: frozenset[str], depth: int) -> Node:
        """Up to the end or a closing bracket."""
        if depth > DEEPEST:
            raise self.error(f"more than {DEEPEST} nested groups")
        found: list[list[Node]] = [[]]
        while self.at < len(self.pattern) and self.pattern[self.at] != ")":
            if self.take("|"):
                found.append([])
            elif (flag := self._flags(flags)) is not None:
                flags = flag
            elif self.take(r"\Q"):
                text, _, _ = self.pattern[self.at :].partition(r"\E")
                self.at += len(text)
                self.take(r"\E")
                quoted: list[Node] = [("test", _leaf(_one(c), flags)) for c in text]
                found[-1] += [*quoted[:-1], self._repeated(quoted[-1])] if quoted else []
            else:
                found[-1].append(self._repeated(self._atom(flags, depth)))
        return "any", [("all", parts) for parts in found]

    def _flags(self, flags: frozenset[str]) -> frozenset[str] | None:
        """The flags from here on, after (?i) and the like."""
        start = self.at
        found = self.take(_GROUP) if self.take("(") else None
        if found and found["end"] == ")" and (found["on"] or found["off"]):
            return (flags | frozenset(found["on"])) - frozenset(found["off"] or "")
        self.at = start
        return None

    def _atom(self, flags: frozenset[str], depth: int) -> Node:
        character = self.next()
        if character == "(":
            return self._group(flags, depth)
        if character == "[":
            return "test", self._class(flags)
        if character == ".":
            return "test", (lambda c: True) if "s" in flags else (lambda c: c != "\n")
        if character in "^$":
            return "assert", character if "m" in flags else {"^": "A", "$": "z"}[character]
        if character in "*+?" or _REPEAT.match(self.pattern, self.at - 1):
            raise self.error(f"nothing to repeat before {character!r}")
        if character == "\\":
            if found := next((a for a in "AzbB" if self.take(a)), None):
                return "assert", found
            return "test", self._escaped(flags)
        return "test", _leaf(_one(character), flags)

    def _group(self, flags: frozenset[str], depth: int) -> Node:
        if self.pattern.startswith("?", self.at):
            found = self.take(_GROUP)
            if not found or found["end"] == ")":
                raise self.error("a group that RE2 does not have")
            flags = (flags | frozenset(found["on"] or "")) - frozenset(found["off"] or "")
        node = self.alternatives(flags, depth + 1)
        if not self.take(")"):
            raise self.error("a ')' is missing")
        return node

    def _repeated(self, node: Node) -> Node:
        if (found := self.take(_REPEAT)) is not None:
            least = int(found[1])
            most = least if not found[2] else int(found[3]) if found[3] else None
            if max(least, most or 0) > MOST_REPEATED or (most is not None and most < least):
                raise self.error(f"the repetition {found[0]}; accepted: up to {MOST_REPEATED}, the smaller number first")
        else:
            marks: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
            mark = next((m for m in marks if self.take(m)), None)
            if mark is None:
                return node
            least, most = marks[mark]
        # Lazy repetitions match the same texts.
        self.take("?")
        if self.take(_REPEAT) or any(self.take(mark) for mark in "*+?"):
            raise self.error("a repetition of a repetition")
        return "repeat", (node, least, most)

    def _escaped(self, flags: frozenset[str]) -> Test:
        """A class or a character behind a backslash."""
        if found := self.take(_CATEGORY):
            return self._category(found, flags)
        if found := self.take(_CODE):
            code = int(found[1] or found[2] or found[3], 8 if found[3] else 16)
            if code > 0x10FFFF:
                raise self.error(f"the character {found[0]}")
            return _leaf(_one(chr(code)), flags)
        character = self.next()
        if character.lower() in _PERL:
            return _leaf(_PERL[character.lower()], flags, negated=character.isupper())
        if character in _ESCAPES:
            return _one(_ESCAPES[character])
        if character.isalnum() and character.isascii():
            raise self.error(f"\\{character}, which RE2 does not have")
        return _leaf(_one(character), flags)

    def _category(self, found: "re.Match[str]", flags: frozenset[str]) -> Test:
        name = found[3] or found[4]
        if name != "Any" and not _CATEGORIES.fullmatch(name):
            raise self.error(f"the class {name!r}; accepted: Unicode's general categories")
        test: Test = (lambda c: True) if name == "Any" else (lambda c: unicodedata.category(c).startswith(name))
        return _leaf(test, flags, negated=(found[1] == "P") is not (found[2] == "^"))

    def _class(self, flags: frozenset[str]) -> Test:
        """Behind `[`."""
        negated, tests = bool(self.take("^")), list[Test]()
        while not tests or not self.take("]"):
            tests.append(self._member(flags))
        return _leaf(lambda c: any(test(c) for test in tests), frozenset(), negated)

    def _member(self, flags: frozenset[str]) -> Test:
        if found := self.take(_IN_CLASS):
            if found[2] not in _POSIX:
                raise self.error(f"the class {found[2]!r}; accepted: {', '.join(_POSIX)}")
            return _leaf(_POSIX[found[2]], flags, negated=bool(found[1]))
        first = self._end(flags)
        if not isinstance(first, str):
            return first
        last: str | Test = first
        if self.pattern.startswith("-", self.at) and not self.pattern.startswith("-]", self.at):
            self.at += 1
            last = self._end(flags)
        if not isinstance(last, str) or last < first:
            raise self.error("a range that ends before it begins")
        return _leaf(lambda c: first <= c <= last, flags)

    def _end(self, flags: frozenset[str]) -> str | Test:
        """One character of a class, which may begin or end a range, or a class inside it."""
        character = self.next()
        if character != "\\":
            return character
        start = self.at
        test = self._escaped(flags)
        text = self.pattern[start : self.at]
        if found := _CODE.fullmatch(text):
            return chr(int(found[1] or found[2] or found[3], 8 if found[3] else 16))
        if text.lower() in _PERL or _CATEGORY.fullmatch(text):
            return test
        return _ESCAPES.get(text, text)
