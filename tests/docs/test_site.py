"""The documentation site builds without a warning: links, headings and examples of every page are read by Sphinx."""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_site(tmp_path: Path) -> None:
    """One test, because the build takes most of the time, and workers share no folder."""
    # As CONTRIBUTING says; a warning is an error.
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-c", "docs", ".", tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    check_navigation(tmp_path)
    check_search(tmp_path)
    check_links(tmp_path)
    check_gallery(tmp_path)


def check_navigation(site: Path) -> None:
    """Every page is built, and linked from the first one."""
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    pages = {name.removesuffix(".md") for name in listed.stdout.split() if name.partition("/")[0] != "tests"}
    assert len(pages) > 60
    assert {name for name in pages if not (site / f"{name}.html").is_file()} == set()
    first = (site / "docs" / "README.html").read_text(encoding="utf-8")
    links = {(site / "docs" / link).resolve() for link in re.findall(r'class="reference internal" href="([^"#]+)"', first)}
    assert {name for name in pages if (site / f"{name}.html").resolve() not in links} <= {"docs/README"}


def check_search(site: Path) -> None:
    """The search index has the headings."""
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    found = json.loads(index.removeprefix("Search.setIndex(").removesuffix(")"))
    places = {found["docnames"][place] for place, *_ in found["alltitles"]["DT101 UnknownFormat"]}
    assert places == {"docs/how-to/troubleshoot"}


def check_links(site: Path) -> None:
    """Links between Markdown files are links between pages."""
    page = (site / "docs" / "reference" / "errors.html").read_text(encoding="utf-8")
    assert 'href="../how-to/troubleshoot.html#dt101-unknownformat"' in page
    assert 'id="dt101-unknownformat"' in (site / "docs" / "how-to" / "troubleshoot.html").read_text(encoding="utf-8")


def check_gallery(site: Path) -> None:
    """The commands have written the pages that the gallery links to."""
    links = re.findall(r'href="(\.\./gallery/[^"]+)"', (site / "docs" / "gallery.html").read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if "<html" not in (site / "docs" / link).read_text(encoding="utf-8")[:2000]] == []
