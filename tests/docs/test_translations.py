"""The how-to about translations: its extension file and its snippet do what the page says."""

import math
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "translate_operators.md"


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    extension, snippet = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    monkeypatch.chdir(tmp_path)
    Path("my_ops.py").write_text(extension, encoding="utf-8")
    exec(compile(snippet, str(PAGE), "exec"), {})
    printed = [float(word.strip("[]")) for word in capsys.readouterr().out.split()]
    assert printed == pytest.approx([0, 1 / (1 + math.exp(-2))])
