"""Regular expressions in RE2's syntax (https://github.com/google/re2/wiki/Syntax), as ONNX wants them, matched in linear time.

A pattern becomes a nondeterministic automaton whose states are followed all at once: n characters take at most n times as many
steps as there are states, whatever the pattern. What was seen before is kept, so that it mostly takes one look-up a character.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from dovetail.ops._re2_syntax import Node, Test, is_word, parse

__all__ = ["Expression"]

MOST_STATES = 20_000
"""RE2 refuses what takes more than 8 MiB; repeated repetitions such as (a{1000}){1000} are such patterns."""

MOST_KEPT = 10_000

States = frozenset[int]


@dataclass(frozen=True, slots=True)
class Point:
    """A place between two characters: what lies before and behind it, "" at the ends."""

    before: str
    behind: str

    def holds(self, assertion: str) -> bool:
        """Whether an assertion is true here: `A` `z` the ends of the text, `^` `$` those of a line, `b` `B` of a word."""
        if assertion in "Az":
            return not (self.before if assertion == "A" else self.behind)
        if assertion in "^$":
            return (self.before if assertion == "^" else self.behind) in ("", "\n")
        return (is_word(self.before) != is_word(self.behind)) is (assertion == "b")


@dataclass
class Program:
    """States: a test of one character with the state behind it, an assertion with that, or several ways on."""

    tests: dict[int, tuple[Test, int]] = field(default_factory=dict)
    assertions: dict[int, tuple[str, int]] = field(default_factory=dict)
    ways: dict[int, list[int]] = field(default_factory=dict)
    size: int = 0

    def state(self) -> int:
        """A new state. Raises `ValueError` when there are too many."""
        if self.size >= MOST_STATES:
            raise ValueError("its repetitions make it too large")
        self.size += 1
        return self.size - 1

    def fork(self, *ways: int) -> int:
        """A state that goes on in all of these."""
        state = self.state()
        self.ways[state] = list(ways)
        return state

    def add(self, node: Node, after: int) -> int:
        """The state from which what the node matches leads to `after`."""
        kind, content = node
        if kind == "test":
            state = self.state()
            self.tests[state] = content, after
        elif kind == "assert":
            state = self.state()
            self.assertions[state] = content, after
        elif kind == "all":
            state = after
            for part in reversed(content):
                state = self.add(part, state)
        elif kind == "any":
            state = self.fork(*(self.add(part, after) for part in content))
        else:
            part, least, most = content
            state = self._repeated(part, least, most, after)
        return state

    def _repeated(self, node: Node, least: int, most: int | None, after: int) -> int:
        if most is None:
            state = self.fork(after)
            self.ways[state].append(self.add(node, state))
        else:
            state = after
            for _ in range(most - least):
                state = self.fork(after, self.add(node, state))
        for _ in range(least):
            state = self.add(node, state)
        return state


class Expression:
    """A compiled pattern. Raises `ValueError` saying what is wrong with it. Shared by threads."""

    def __init__(self, pattern: str) -> None:
        self._program = Program()
        self._end = self._program.state()
        self._start = frozenset({self._program.add(parse(pattern), self._end)})
        self._reached: dict[tuple[States, Point | None], States] = {}
        self._stepped: dict[tuple[States, str], States] = {}

    def fullmatch(self, text: str) -> bool:
        """Whether it matches the whole of the text."""
        point = self._pointer(text)
        states = self._reach(self._start, point(0))
        for index, character in enumerate(text, 1):
            states = self._reach(self._step(states, character), point(index))
            if not states:
                return False
        return self._end in states

    def _pointer(self, text: str) -> Callable[[int], Point | None]:
        """What assertions look at, if there are any."""
        if not self._program.assertions:
            return lambda index: None
        return lambda index: Point(text[index - 1 : index], text[index : index + 1])

    def _step(self, states: States, character: str) -> States:
        key = states, character
        found = self._stepped.get(key)
        if found is None:
            tests = (self._program.tests[state] for state in states if state in self._program.tests)
            found = _keep(self._stepped, key, (after for test, after in tests if test(character)))
        return found

    def _reach(self, states: States, point: Point | None) -> States:
        """The states that can be reached from these without a character."""
        key = states, point
        found = self._reached.get(key)
        if found is None:
            seen, waiting = set(states), list(states)
            while waiting:
                for state in self._ways(waiting.pop(), point):
                    if state not in seen:
                        seen.add(state)
                        waiting.append(state)
            found = _keep(self._reached, key, seen)
        return found

    def _ways(self, state: int, point: Point | None) -> Iterable[int]:
        if state in self._program.ways:
            return self._program.ways[state]
        if point is not None and state in self._program.assertions:
            assertion, after = self._program.assertions[state]
            return (after,) if point.holds(assertion) else ()
        return ()


def _keep(
    known: dict[tuple[States, str], States] | dict[tuple[States, Point | None], States], key: object, found: Iterable[int]
) -> States:
    if len(known) >= MOST_KEPT:
        known.clear()
    known[key] = states = frozenset(found)  # type: ignore[index]  # a key of this one
    return states
