"""direct_url.json is parsed for editable installations alone."""

import json
import sys
from pathlib import Path

import pytest

from dovetail.plugins.discovery import index


def test_ordinary_installations_from_a_folder_are_not_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(text: str) -> object:
        raise AssertionError(f"parsed: {text}")

    folder = tmp_path / "acme-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Name: acme\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[dovetail.hooks]\nacme = acme\n")
    (folder / "direct_url.json").write_text('{"dir_info": {}, "url": "file:///acme"}')
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(json, "loads", refuse)
    (record,) = index()
    assert (record.id, record.editable, record.location) == ("acme/hooks/acme", False, str(tmp_path))
