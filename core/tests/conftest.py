"""Fixtures of the core's tests."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _no_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The configuration file of whoever runs the tests is not looked at."""
    monkeypatch.delenv("DOVETAIL_CONFIG", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user"))
