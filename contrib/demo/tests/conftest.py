"""Fixtures: the program in this process, in an empty working folder."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dovetail.cli import program

Invoke = Callable[..., Result]


@pytest.fixture
def invoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """`invoke("demo", "--json")` in an empty working folder; errors that are not handled are raised."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object, code: int = 0) -> Result:
        result = CliRunner().invoke(program, [str(a) for a in arguments], prog_name="dovetail", catch_exceptions=False)
        assert result.exit_code == code, f"exit code {result.exit_code}\n{result.output}"
        return result

    return run


@pytest.fixture
def invoke_json(invoke: Invoke) -> Callable[..., Any]:
    """As `invoke`, with `--json`; returns what is on stdout, all of which must be one JSON document."""

    def run(*arguments: object, code: int = 0) -> Any:
        return json.loads(invoke(*arguments, "--json", code=code).stdout)

    return run
