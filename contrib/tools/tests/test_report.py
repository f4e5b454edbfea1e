"""Reports: the table of operators and data types, and its renderings."""

import json

import pytest

from dovetail.testing import Check, Outcome
from dovetail.testing.check import PASSED, ConformanceFailure, Verdict
from dovetail_tools.report import Report, cell, run_checks


def fails() -> Verdict:
    raise ConformanceFailure("off by one")


def breaks() -> Verdict:
    raise KeyError("x")


def exits() -> Verdict:
    raise SystemExit(3)


def checks() -> list[Check]:
    def refused() -> Verdict:
        return Verdict(Outcome.REFUSED, "data type: float16")

    return [
        Check("operators", "add-plain", lambda: PASSED, "Add", "float32"),
        Check("operators", "add-odd", lambda: PASSED, "Add", "float32"),
        Check("operators", "add-half", refused, "Add", "float16"),
        Check("operators", "abs-plain", lambda: PASSED, "Abs", "float32"),
        Check("operators", "abs-big", fails, "Abs", "float32"),
        Check("operators", "abs-int", breaks, "Abs", "int8"),
        Check("operators", "shape", lambda: Verdict(Outcome.FOLDED), "Shape", "float32"),
        Check("data_types", "bits-int4", refused, "Transpose", "int4"),
        Check("requests", "threads", exits),
    ]


@pytest.fixture
def report() -> Report:
    seen: list[str] = []
    made = run_checks("ACME", checks(), lambda result: seen.append(result.name))
    assert seen == [check.name for check in checks()]
    return made


def test_counts_and_failures(report: Report) -> None:
    assert not report.ok
    assert report.counts() == {"passed": 3, "folded": 1, "refused": 2, "failed": 3}
    assert report.counts("requests") == {"failed": 1}
    assert [(r.name, r.detail) for r in report.failures] == [
        ("abs-big", "off by one"),
        ("abs-int", "KeyError: 'x'"),
        ("threads", "SystemExit: 3"),
    ]


def test_table(report: Report) -> None:
    assert report.dtypes == ("float32", "int8", "float16")
    assert report.short_dtypes == ("f32", "i8", "f16")
    assert list(report.rows()) == [
        ("Abs", "1 of 2 FAILED", "1 of 1 FAILED", ""),
        ("Add", "yes", "", "no"),
        ("Shape", "planned", "", ""),
    ]
    assert report.round_trips == {"int4": "no"}


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        ({}, ""),
        ({"passed": 2}, "yes"),
        ({"passed": 1, "folded": 1}, "yes"),
        ({"passed": 1, "folded": 1, "refused": 3}, "2 of 5"),
        ({"refused": 3}, "no"),
        ({"passed": 4, "refused": 1, "failed": 2}, "2 of 7 FAILED"),
    ],
)
def test_cells(counts: dict[str, int], text: str) -> None:
    assert cell(counts) == text


def test_markdown_has_the_counts_and_the_rows_with_exceptions(report: Report) -> None:
    lines = report.markdown().splitlines()
    assert "| operators | 3 | 1 | 1 | 2 |" in lines
    assert "| Operator | float32 | int8 | float16 |" in lines
    assert "| Add | yes |  | no |" in lines
    assert "| int4 | no |" in lines
    assert not any("Shape" in line for line in lines)
    passed = Report("ACME", tuple(r for r in report.results if r.outcome is Outcome.PASSED))
    assert "Operator" not in passed.markdown()


def test_json(report: Report) -> None:
    data = json.loads(json.dumps(report.as_dict()))
    assert data["subject"] == "ACME"
    assert data["ok"] is False
    assert data["table"]["Abs"] == {"float32": {"passed": 1, "failed": 1}, "int8": {"failed": 1}}
    assert data["results"][4]["outcome"] == "failed"


def test_interruption_gets_through() -> None:
    def stop() -> Verdict:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Check("requests", "x", stop).result()
