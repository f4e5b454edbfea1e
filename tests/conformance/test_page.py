"""docs/reference/conformance.md. What ONEDNN and OPENCL claim depends on CPU and driver: of these the frame is compared."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from dovetail.ops import find_all

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def writer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_conformance", ROOT / "docs" / "conformance.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def sections(writer: ModuleType) -> dict[str, str]:
    """Device -> its section of the page; the text before them is under the empty name."""
    head, *rest = writer.PAGE.read_text(encoding="utf-8").split("\n## ")
    return {"": head, **{text.split(maxsplit=1)[0].strip(","): text.partition("\n\n")[2] for text in rest}}


def test_the_reference_device_is_as_the_page_says(writer: ModuleType, sections: dict[str, str]) -> None:
    report = writer.report_of("NUMPY")
    assert sections["NUMPY"].strip() == report.markdown().strip(), "out of date: run python docs/conformance.py"
    assert sections[""].strip() == writer.HEAD.strip()


@pytest.mark.parametrize("name", ["NUMPY", "ONEDNN", "OPENCL"])
def test_every_operator_stands_there_and_none_has_failed(sections: dict[str, str], name: str) -> None:
    listed = re.findall(r"^\| (\w+) \|.*(?:yes|no|planned|\d of \d)", sections[name], re.MULTILINE)
    # What takes sub-graphs and sequences has no cases: those hold arrays.
    with_cases = {cls.op_type for cls in find_all() if importlib.util.find_spec(f"dovetail.testing.cases.{cls.stem}")}
    assert len(with_cases) > 150
    assert with_cases <= set(listed)
    assert "FAILED" not in sections[name]
    columns = [re.search(r"^\| Operator \|.*$", sections[other], re.MULTILINE) for other in ("NUMPY", name)]
    assert all(columns)
    assert len({match[0] for match in columns if match}) == 1
