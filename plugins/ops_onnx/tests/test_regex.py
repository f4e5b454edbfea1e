"""Regular expressions of RegexFullMatch: RE2's syntax, what is refused, and what is said where RE2 is missing."""

import sys
import sysconfig
from importlib.util import find_spec

import numpy as np
import pytest

from dovetail.errors import OperatorError
from dovetail_ops_onnx import regex_full_match
from dovetail_ops_onnx.regex_full_match import RegexFullMatch

needs_re2 = pytest.mark.skipif(
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")) and find_spec("re2") is None,
    reason="google-re2 has no wheel for Python without the GIL",
)

MATCHES = [
    ("", [""], ["a"]),
    ("a|b*", ["a", "", "bbb"], ["ab"]),
    (r"\d\D\s\S\w\W", ["1a b_-"], ["٣a b_-"]),
    ("[[:alpha:][:^print:]]+", ["aZ\x01"], ["1"]),
    (r"\pL\p{Nd}\P{Lu}", ["é٣a"], ["é٣A", "123"]),
    (r"\Qa.b*\E+", ["a.b*", "a.b***"], ["a.b", "axb*"]),
    (".", ["é", "\U0001f600"], ["\n", "ab"]),
    (r"^a$\z", ["a"], ["a\n"]),
    ("a\0b", ["a\0b"], ["a", "ab"]),
]


@needs_re2
@pytest.mark.parametrize(("pattern", "whole", "other"), MATCHES, ids=[pattern for pattern, _, _ in MATCHES])
def test_matches(pattern: str, whole: list[str], other: list[str]) -> None:
    texts = np.array([[*whole, *other]], object)
    found = RegexFullMatch(pattern=pattern).reference(texts)
    assert found.dtype == np.bool_
    assert found.tolist() == [[True] * len(whole) + [False] * len(other)]


@needs_re2
@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(a", "missing ): (a"),
        (r"(a)\1", "invalid escape sequence"),
        ("(?=a)", "invalid perl operator"),
        ("((a{1000}){1000}){1000}", "invalid repetition size"),
    ],
)
def test_what_is_no_expression(pattern: str, message: str) -> None:
    with pytest.raises(OperatorError, match="attribute 'pattern' is not a regular expression of RE2") as caught:
        RegexFullMatch(pattern=pattern)
    assert message in caught.value.message


@needs_re2
def test_patterns_that_take_backtracking_for_ever() -> None:
    assert not RegexFullMatch(pattern="(a|aa|aaa)+$").reference(np.array(["a" * 10_000 + "!"], object)).any()


def test_without_re2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    regex_full_match._compiled.cache_clear()
    with pytest.raises(OperatorError, match="google-re2, which is not installed") as caught:
        RegexFullMatch(pattern="a")
    assert caught.value.hint == "pip install 'dovetail-ops-onnx[strings]'"
