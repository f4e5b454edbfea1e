"""Version checks: the short way agrees with `packaging`, and what does not fit is reported with the line that fixes it."""

import itertools

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from dovetail.plugins import versions
from dovetail.plugins.records import PluginRecord

RUNNING = ["0.1.0", "0.1", "0.2", "1.0", "1.10.0", "1.9", "0.0", "2.0.1"]
SPECIFIERS = [">=0.1,<0.2", "<0.2,>=0.1", "==1.0.0", "!=0.1", ">1.9", "<=1.10", "> 0.1 , <2", "<0", ">=0"]
LONG_WAY = ["~=0.1", "==0.1.*", "===0.1.0", ">=0.1.dev0", "[testing]>=0.1", ">=0.1; python_version>'3'", "", "(>=0.1)"]


def record(*requires: str) -> PluginRecord:
    return PluginRecord(distribution="acme", version="3.1", kind="devices", key="acme", value="acme_mod", requires=requires)


@pytest.mark.parametrize(
    ("running", "specifier"), list(itertools.product([*RUNNING, "0.2.dev1", "1.0rc1"], SPECIFIERS + LONG_WAY))
)
def test_requirements_mean_what_packaging_says(running: str, specifier: str) -> None:
    requirement = f"dovetail{specifier}"
    expected = Requirement(requirement).specifier.contains(Version(running), prereleases=True)
    assert (versions.requirement_mismatch(record(requirement), running) is None) is expected


@pytest.mark.parametrize(("running", "specifier"), list(itertools.product(RUNNING, SPECIFIERS)))
def test_plain_requirements_do_not_need_packaging(running: str, specifier: str) -> None:
    assert isinstance(versions._plain_check(f"dovetail{specifier}", running), bool)


@pytest.mark.parametrize("requirement", ["dovetail[testing]; extra == 'test'", 'dovetail>=9 ; extra=="test"'])
def test_requirements_of_an_extra_are_passed_without_packaging(requirement: str) -> None:
    assert versions._plain_check(requirement, "0.1.0") is True


def test_a_marker_that_says_more_than_an_extra_is_evaluated() -> None:
    assert versions._plain_check("dovetail>=9; python_version > '3' and extra == 'test'", "0.1.0") is None


def test_a_requirement_for_another_situation_does_not_count() -> None:
    assert (
        versions.requirement_mismatch(record("dovetail>=9; extra == 'test'", "dovetail>=9; python_version < '3'"), "0.1") is None
    )


@pytest.mark.parametrize(
    ("requirement", "fix"),
    [
        ("dovetail>=9", "pip install --upgrade 'dovetail>=9'"),
        ("dovetail~=9.1", "pip install --upgrade 'dovetail~=9.1'"),
        ("dovetail==9.*", "pip install --upgrade 'dovetail==9.*'"),
        ("dovetail<0.1", "pip install --upgrade acme"),
        ("dovetail>=0.0.1,<0.1", "pip install --upgrade acme"),
        ("dovetail>=", "pip install --upgrade acme"),
    ],
)
def test_a_mismatch_names_both_versions_and_fixes_the_older_side(requirement: str, fix: str) -> None:
    mismatch = versions.requirement_mismatch(record(requirement), "0.1.0")
    assert mismatch is not None
    assert requirement in mismatch[0]
    assert mismatch[1] == fix


@pytest.mark.parametrize(
    ("ours", "theirs", "fits"),
    [
        ("1.0", "1.0", True),
        ("1.2", "1.0", True),
        ("1.2", "1.2", True),
        ("1.2", "1.3", False),
        ("1.2", "2.0", False),
        ("2.0", "1.9", False),
        ("0.3", "0.3", True),
        ("0.3", "0.2", False),
        ("1.10", "1.9", True),
        ("1.0", "1", False),
        ("1.0", "1.0.0", False),
        ("1.0", "one", False),
        ("1.0", None, False),
        ("1.0", 1.0, False),
    ],
)
def test_the_caret_rule(monkeypatch: pytest.MonkeyPatch, ours: str, theirs: object, fits: bool) -> None:
    monkeypatch.setattr(versions, "API_VERSION", ours)
    mismatch = versions.api_mismatch(theirs, record())
    assert (mismatch is None) is fits
    if mismatch:
        assert "acme_mod" in mismatch[0]


def test_an_entry_point_that_names_an_object_is_to_name_its_module() -> None:
    """`dovetail_api` is read from what the entry point names: to write it into the module would not help."""
    described = PluginRecord(distribution="acme", version="3.1", kind="devices", key="acme", value="acme_mod:Plugin", requires=())
    mismatch = versions.api_mismatch(None, described)
    assert mismatch == ("acme_mod:Plugin does not state dovetail_api", "let the entry point name the module acme_mod instead")


def test_the_older_side_of_an_api_mismatch_is_upgraded() -> None:
    newer, older = versions.api_mismatch("9.0", record()), versions.api_mismatch("0.9", record())
    assert newer is not None
    assert older is not None
    assert newer[1] == "pip install --upgrade dovetail"
    assert older[1] == "pip install --upgrade acme"
