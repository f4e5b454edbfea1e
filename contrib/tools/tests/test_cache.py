"""`dovetail cache`: where it is, what is in it, and emptying it."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from dovetail.cache import FileCache, cache_key

Invoke = Callable[..., Result]
InvokeJson = Callable[..., Any]


@pytest.fixture(autouse=True)
def _default_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOVETAIL_CACHE_LIMIT", raising=False)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DOVETAIL_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def fill(folder: Path) -> None:
    for section, count in (("kernels", 3), ("tuning", 1)):
        for index in range(count):
            FileCache(section, folder).put(cache_key(section, str(index)), bytes(1000))


def test_path(invoke: Invoke, invoke_json: InvokeJson, folder: Path) -> None:
    assert invoke("cache", "path").stdout == f"{folder}\n"
    assert invoke_json("cache", "path") == {"path": str(folder)}
    assert not folder.exists()


def test_path_without_a_home(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOVETAIL_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as where neither HOME nor the user's entry names a home
    assert "set DOVETAIL_CACHE_DIR" in invoke("cache", "path", code=1).stderr


def test_list(invoke: Invoke, invoke_json: InvokeJson, folder: Path) -> None:
    assert invoke_json("cache", "list") == {"path": str(folder), "sections": []}
    assert "nothing is kept here" in invoke("cache", "list").stdout
    fill(folder)
    listed = invoke_json("cache", "list")["sections"]
    assert [(s["section"], s["entries"], s["bytes"]) for s in listed] == [("kernels", 3, 3147), ("tuning", 1, 1049)]
    assert all(s["used"] > 1.6e9 for s in listed)
    text = invoke("cache", "list").stdout
    assert str(folder) in text
    assert "kernels" in text
    assert "tuning" in text


def test_clear(invoke: Invoke, invoke_json: InvokeJson, folder: Path) -> None:
    fill(folder)
    (folder / "kernels" / "notes").write_text("mine")
    assert invoke_json("cache", "clear", "tuning") == {"path": str(folder), "entries": 1, "bytes": 1049}
    assert "Did you mean 'kernels'?" in invoke("cache", "clear", "kernel", code=1).stderr
    assert "Deleted 3 entries, 3,147 bytes" in invoke("cache", "clear").stdout
    assert [path.name for path in folder.rglob("*") if path.is_file()] == ["notes"]
