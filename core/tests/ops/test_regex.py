"""Regular expressions in RE2's syntax: what they match, what is refused, and that no pattern takes long."""

import pytest

from dovetail.errors import OperatorError
from dovetail.ops._re2 import Expression
from dovetail.ops.regex_full_match import RegexFullMatch

MATCHES = [
    ("", [""], ["a"]),
    ("a|b*", ["a", "", "bbb"], ["ab"]),
    ("(ab){2,3}", ["abab", "ababab"], ["ab", "abababab"]),
    ("a{2,}?c", ["aac", "aaaac"], ["ac"]),
    ("a{,2}", ["a{,2}"], ["aa"]),
    (".", ["é", "\U0001f600"], ["\n", "ab"]),
    ("(?s).", ["\n"], []),
    (r"\d\D\s\S\w\W", ["1a b_-"], ["٣a b_-", "1a\vb_-"]),
    (r"[\w.-]+", ["a.b-c"], ["é", ""]),
    ("[]a-c]+", ["]ab"], ["-"]),
    ("[^a\\n]", ["b", "]"], ["a", "\n"]),
    ("[[:alpha:][:^print:]]+", ["aZ\x01"], ["1"]),
    (r"\x41\x{e9}\101\0\t\.", ["AéA\0\t."], []),
    (r"\pL\p{Nd}\P{Lu}\p{^Lu}", ["é٣ab"], ["é٣Ab", "1234"]),
    ("(?i)straSSe", ["STRAsse", "\u017fTRASSE"], ["straße"]),
    (r"(?i)[^k]\W", ["a-", "a\n"], ["\u212a-", "a\u017f"]),
    ("a(?i)b(?-i)c|(?i:d)e", ["aBc", "De"], ["ABc", "DE"]),
    (r"\Qa.b*\E+", ["a.b*", "a.b***"], ["a.b", "axb*"]),
    (r"^a$\z", ["a"], ["a\n"]),
    (r"(?m)a$\n^b", ["a\nb"], ["a b"]),
    (r"a\b \Bb?\B", ["a "], ["a b"]),
    ("(?P<x>a)(?<y>b)", ["ab"], ["a"]),
]


@pytest.mark.parametrize(("pattern", "whole", "other"), MATCHES, ids=[pattern for pattern, _, _ in MATCHES])
def test_matches(pattern: str, whole: list[str], other: list[str]) -> None:
    expression = Expression(pattern)
    assert [text for text in (*whole, *other) if expression.fullmatch(text)] == whole


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(a", "a ')' is missing, at character 2"),
        ("a)", "a ')' too many"),
        ("[a", "it ends too early"),
        ("a\\", "it ends too early"),
        ("*a", "nothing to repeat"),
        ("a**", "a repetition of a repetition"),
        ("a{2}{3}", "a repetition of a repetition"),
        ("a{1001}", "the repetition {1001}; accepted: up to 1000"),
        ("a{3,1}", "the smaller number first"),
        ("(?=a)", "a group that RE2 does not have"),
        (r"(a)\1", r"\\1, which RE2 does not have"),
        ("[b-a]", "a range that ends before it begins"),
        ("[[:vowel:]]", "the class 'vowel'; accepted: alnum"),
        (r"\p{Greek}", "the class 'Greek'; accepted: Unicode's general categories"),
        (r"\x{110000}", "the character x{110000}"),
        ("((a{1000}){1000}){1000}", "its repetitions make it too large"),
        ("(" * 5000 + ")" * 5000, "more than 100 nested groups"),
    ],
)
def test_what_is_no_expression(pattern: str, message: str) -> None:
    with pytest.raises(OperatorError) as caught:
        RegexFullMatch(pattern=pattern)
    assert message.replace("\\\\", "\\") in caught.value.message
    assert len(caught.value.message) < 400


@pytest.mark.parametrize("pattern", ["(a+)+", "(a*)*b", "(a|a)*c", "(a?){500}a{500}", "(.*a){20}", "(a|aa|aaa)+$"])
def test_patterns_that_take_backtracking_for_ever(pattern: str) -> None:
    """The steps are counted: no more than there are states for each character."""
    expression, text = Expression(pattern), "a" * 600 + "!"
    steps = [0]
    count = expression._step

    def counted(states: frozenset[int], character: str) -> frozenset[int]:
        steps[0] += len(states)
        return count(states, character)

    expression._step = counted  # type: ignore[method-assign]  # to count
    assert not expression.fullmatch(text)
    assert steps[0] <= len(text) * expression._program.size
