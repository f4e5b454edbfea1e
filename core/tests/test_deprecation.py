"""Deprecated names: they warn where they are used, and do not outlive the version that was named."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.version import Version

import dovetail
from dovetail._deprecation import deprecated

SOURCES = Path(dovetail.__file__).parent


def old_name() -> None:
    deprecated("old_name", since="0.1", removed_in="0.3", instead="write new_name")


def test_the_warning_is_at_the_use_and_says_what_to_write() -> None:
    with pytest.warns(DeprecationWarning, match="old_name") as caught:
        old_name()
    (one,) = caught
    assert str(one.message) == "old_name is deprecated since dovetail 0.1 and goes away in 0.3: write new_name"
    assert Path(one.filename) == Path(__file__)
    assert one.lineno > old_name.__code__.co_firstlineno + 1, "at the call of old_name, not in it"


def calls() -> list[dict[str, str]]:
    """The named arguments of every call of `deprecated` in the core."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES.rglob("*.py"))
    nodes = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call))
    found = [node for node in nodes if isinstance(node.func, ast.Name) and node.func.id == "deprecated"]
    return [{k.arg or "": k.value.value for k in node.keywords if isinstance(k.value, ast.Constant)} for node in found]


def test_every_deprecated_name_is_given_time_and_goes_in_time() -> None:
    found = calls()
    assert found, "python -m dovetail.cli is one; without any, delete the helper"
    for one in found:
        since, removed = Version(one["since"]), Version(one["removed_in"])
        assert (removed.major, removed.minor) >= (since.major, since.minor + 2), "two minor releases, as the policy says"
        assert Version(dovetail.__version__) < removed, f"remove what was to go in {removed}"


def test_the_module_of_the_command_line_warns_and_works() -> None:
    done = subprocess.run([sys.executable, "-m", "dovetail.cli", "--version"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0
    assert done.stdout.split()[-1] == dovetail.__version__
    assert "DeprecationWarning: python -m dovetail.cli is deprecated" in done.stderr


def test_the_module_of_the_package_does_not_warn() -> None:
    command = [sys.executable, "-W", "error", "-m", "dovetail", "--version"]
    assert subprocess.run(command, capture_output=True, text=True, timeout=600).returncode == 0
