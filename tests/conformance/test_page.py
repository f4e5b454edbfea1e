"""docs/reference/conformance.md and the results that it is written from.

What ONEDNN and OPENCL claim depends on CPU and driver, so of their results the frame is compared. The checks of the reference
device are counted, and those of some operators, drawn with DOVETAIL_SEED, are run and compared word for word.
"""

import importlib.util
import json
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dovetail.errors import DeviceNotFound
from dovetail.testing.check import Outcome, Result
from dovetail.testing.devices import DeviceChecks
from dovetail_ops_onnx import find_all
from dovetail_ops_onnx.cases import CASES
from dovetail_tools.report import Report

ROOT = Path(__file__).resolve().parents[2]


HINT = "run python docs/conformance.py numpy=NUMPY"
SAMPLE = 60
"""Operators whose checks are run; all of them with DOVETAIL_EXHAUSTIVE=1."""


@pytest.fixture(scope="module")
def writer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_conformance", ROOT / "docs" / "conformance.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_written_from_the_results(writer: ModuleType) -> None:
    assert writer.PAGE.read_text(encoding="utf-8") == writer.page(), "out of date: run python docs/conformance.py"


def test_the_reference_device_is_as_its_results_say_and_refuses_no_operator(
    writer: ModuleType, sampled: Callable[[Sequence[Any], int], Sequence[Any]]
) -> None:
    checks = DeviceChecks("NUMPY").checks
    kept = writer.stored()["numpy"]["results"]
    counted = Counter((check.group, check.operator, check.dtype) for check in checks)
    stored = {
        (group, operator, dtype): sum(outcomes.values())
        for group, operators in kept.items()
        for operator, dtypes in operators.items()
        for dtype, outcomes in dtypes.items()
    }
    other = {operator for _, operator, _ in {*counted} ^ {*stored}} | {key[1] for key in counted if counted[key] != stored[key]}
    assert not other, f"out of date for {other}: {HINT}"
    drawn = {"", *sampled(sorted({check.operator for check in checks}), SAMPLE)}
    found, report = writer.results_of("NUMPY", lambda check: check.operator in drawn)
    for group, operators in kept.items():
        chosen = {operator: dtypes for operator, dtypes in operators.items() if operator in drawn}
        assert found["results"].get(group, {}) == chosen, f"out of date for {group}: {HINT}"
    assert report.ok
    assert {r.outcome for r in report.results if r.group == "operators"} <= {Outcome.PASSED, Outcome.FOLDED}


@pytest.mark.parametrize("name", ["numpy", "onednn", "pocl-debian", "pocl-pip"])
def test_every_operator_stands_there(writer: ModuleType, name: str) -> None:
    report = writer.report_of(writer.stored()[name])
    # What takes sub-graphs and sequences has no cases: those hold arrays.
    has_file = partial(importlib.util.find_spec, package="dovetail_ops_onnx.cases")
    with_cases = {cls.op_type for cls in find_all() if cls.stem in CASES or has_file(f".{cls.stem}")}
    assert len(with_cases) > 150
    assert with_cases <= set(report.table)


def test_no_results_have_failures(writer: ModuleType) -> None:
    """Those of machines that CI does not have may be of an earlier day, and know fewer operators."""
    for name, results in writer.stored().items():
        report = writer.report_of(results)
        assert report.ok, name
        assert report.counts()["passed"] > 1000, name


def test_results_are_kept_as_they_are(writer: ModuleType) -> None:
    rows = [("operators", "Abs", "float32", "passed")] * 2 + [
        ("operators", "Abs", "int8", "refused"),
        ("graphs", "", "", "folded"),
    ]
    report = Report("TOY", tuple(Result(g, "n", Outcome(o), operator=op, dtype=d) for g, op, d, o in rows))
    kept = writer.written({"device": "TOY", "results": writer.counted(report)})
    again = writer.report_of(json.loads(kept))
    assert again.markdown() == report.markdown()
    assert sum(line.startswith('   "') for line in kept.splitlines()) == 2, "one line for each operator"
    overview = writer.overview({"toy": report, "none": Report("NONE", ())}).splitlines()
    assert overview == ["| Operator | toy | none |", "| --- | --- | --- |", "| Abs | 2 of 3 |  |"]


def test_the_command(
    writer: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good = Report("TOY", (Result("graphs", "a", Outcome.PASSED),))
    bad = Report("TOY", (Result("graphs", "b", Outcome.FAILED, "wrong"),))
    found = {"A": good, "B": bad}
    monkeypatch.setattr(
        writer, "results_of", lambda device: ({"device": device, "results": writer.counted(found[device])}, found[device])
    )
    before = writer.PAGE.read_text(encoding="utf-8")
    assert writer.main(["x=A", "--to", str(tmp_path)]) == 0
    assert writer.main(["x=A", "y=B", "--to", str(tmp_path)]) == 1
    assert capsys.readouterr().err == "FAILED B b: wrong\n"
    assert {path.name for path in tmp_path.iterdir()} == {"x.json", "y.json"}
    assert writer.PAGE.read_text(encoding="utf-8") == before
    for wrong in (["A"], ["--to", str(tmp_path)]):
        with pytest.raises(SystemExit):
            writer.main(wrong)


def test_a_device_that_is_not_there(writer: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(DeviceNotFound):
        writer.main(["x=NOWHERE", "--to", str(tmp_path)])
    assert not list(tmp_path.iterdir())
