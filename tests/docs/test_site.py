"""The documentation site builds without a warning: links, headings and examples of every page are read by Sphinx."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as CONTRIBUTING says; a warning is an error."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-c", "docs", ".", out]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return out


def test_every_page_is_in_the_navigation(site: Path) -> None:
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    pages = {name.removesuffix(".md") for name in listed if name.partition("/")[0] != "tests"}
    assert len(pages) > 60
    assert {name for name in pages if not (site / f"{name}.html").is_file()} == set()
    first = (site / "docs" / "README.html").read_text(encoding="utf-8")
    links = {(site / "docs" / link).resolve() for link in re.findall(r'class="reference internal" href="([^"#]+)"', first)}
    assert {name for name in pages if (site / f"{name}.html").resolve() not in links} <= {"docs/README"}


def test_search_finds_a_heading(site: Path) -> None:
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    found = json.loads(index.removeprefix("Search.setIndex(").removesuffix(")"))
    places = {found["docnames"][place] for place, *_ in found["alltitles"]["DT101 UnknownFormat"]}
    assert places == {"docs/how-to/troubleshoot"}


def test_links_between_pages_lead_to_pages(site: Path) -> None:
    page = (site / "docs" / "reference" / "errors.html").read_text(encoding="utf-8")
    assert 'href="../how-to/troubleshoot.html#dt101-unknownformat"' in page
    assert 'id="dt101-unknownformat"' in (site / "docs" / "how-to" / "troubleshoot.html").read_text(encoding="utf-8")


def test_the_gallery_has_its_pages(site: Path) -> None:
    links = re.findall(r'href="(\.\./gallery/[^"]+)"', (site / "docs" / "gallery.html").read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if "<html" not in (site / "docs" / link).read_text(encoding="utf-8")[:2000]] == []
