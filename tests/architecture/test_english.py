"""Plain English: docstrings name their subject first, and sentences deny with "not"."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("benchmarks", "contrib", "core", "docs", "examples", "plugins", "tests")
OPENER = re.compile(r'^\s*"""What\b')
DENIAL = re.compile(r"\b(is|are) no\b")


def lines_with(pattern: re.Pattern[str], *suffixes: str) -> list[str]:
    paths = [path for folder in FOLDERS for suffix in suffixes for path in sorted((ROOT / folder).rglob(f"*{suffix}"))]
    assert len(paths) > 200
    written = (path for path in paths if path.name != "CHANGELOG.md" and path != Path(__file__))
    lines = ((path, number, line) for path in written for number, line in enumerate(path.read_text("utf-8").splitlines(), 1))
    return [f"{path.relative_to(ROOT)}:{number}: {line.strip()}" for path, number, line in lines if pattern.search(line)]


def test_docstrings_begin_with_their_subject() -> None:
    assert lines_with(OPENER, ".py") == []


def test_few_sentences_say_is_no() -> None:
    found = lines_with(DENIAL, ".py", ".md", ".cl")
    assert len(found) < 20, found
