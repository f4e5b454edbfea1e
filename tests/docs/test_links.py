"""Every relative link in every Markdown file leads to a file, and to a heading where it names one."""

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

CODE = re.compile(r"^( *)(```|~~~).*?^ *\2 *$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)


def pages() -> list[str]:
    """Every Markdown file that is in the repository, or about to be."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard", "--", "*.md"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return sorted(name for name in set(listed.splitlines()) if (ROOT / name).exists())


@cache
def anchors(path: Path) -> frozenset[str]:
    """The anchors that GitHub gives to the headings of a page."""
    text = re.sub(r"^( *)(```|~~~).*?^ *\2 *$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in HEADING.findall(text))
    return frozenset(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain)


def broken_links(page: Path) -> list[str]:
    """The relative links of a page that lead nowhere."""
    found = []
    for link in LINK.findall(CODE.sub("", page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file) if file else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            found.append(link)
    return found


def test_broken_links_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One [two](x.md)\n[a](page.md) [b](#one-two) [c](gone.md) [d](#gone) `[e](code.md)` [f](https://a.b/c)\n")
    assert broken_links(page) == ["x.md", "gone.md", "#gone"]


def test_the_pages_are_found() -> None:
    assert {"README.md", "docs/README.md", "core/README.md"} <= set(pages())


@pytest.mark.parametrize("page", pages())
def test_links(page: str) -> None:
    assert broken_links(ROOT / page) == []


def test_every_page_is_listed() -> None:
    listed = {link.partition("#")[0] for link in LINK.findall((ROOT / "docs" / "README.md").read_text(encoding="utf-8"))}
    pages_of_docs = {name.removeprefix("docs/") for name in pages() if name.startswith("docs/")}
    assert len(pages_of_docs) > 20
    assert pages_of_docs - listed == {"README.md"}
