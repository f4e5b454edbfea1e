"""The documentation site: Sphinx, MyST and furo over the Markdown files of the repository, as they are.

`sphinx-build -W -c docs . FOLDER`, from the root: pages link to files outside of docs/, such as the READMEs of packages, so the
whole repository is the source folder, and `include_patterns` says which of its files are pages.
"""

import re
import subprocess
import sys
from pathlib import Path

from pygments.lexers import TextLexer
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.typing import ExtensionMetadata

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "core" / "src"))

from dovetail import __version__  # noqa: E402  # of this tree, installed or not

project = "dovetail"
author = "the authors of dovetail"
version = release = __version__
extensions = ["myst_parser"]
root_doc = "docs/README"
source_suffix = {".md": "markdown"}
FOLDERS = ("docs", "core", "plugins", "contrib", "examples", "benchmarks")
include_patterns = ["README.md", "CONTRIBUTING.md", *(f"{folder}/**.md" for folder in FOLDERS)]
exclude_patterns = [".*", "**/.*", "**/templates"]

html_theme = "furo"
html_title = f"dovetail {release}"
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}

myst_heading_anchors = 4  # links name headings as on GitHub

SECTIONS = {
    "Tutorials": ("docs/tutorial/first_model", "docs/tutorial/*"),
    "How to": ("docs/how-to/*",),
    "Reference": ("docs/reference/*", "docs/reference/benchmarks/*"),
    "Explanation": ("docs/explanation/*", "docs/gallery"),
    "Packages": ("README", "core/README", "plugins/*/README", "contrib/*/README"),
    "Examples": ("examples/*/README", "benchmarks/README"),
    "Development": ("CONTRIBUTING", "*/CHANGELOG", "*/*/CHANGELOG", "*/*/src/*/vendor/README"),
}
"""Heading of the navigation -> its pages."""
GALLERY = {"demo": ("demo", "--html", "{file}")}
"""Pages of the gallery -> the command of `dovetail` that writes it. docs/gallery.md has a section of the same name."""
LINK = re.compile(r"\[([^\[\]]*)\]\(([^)\s#:]+)\)")


def navigation(app: Sphinx, docname: str, content: list[str]) -> None:
    """Add the table of contents, which the Markdown file need not show, to the first page."""
    if docname != root_doc:
        return
    for heading, patterns in SECTIONS.items():
        tree = f"```{{toctree}}\n:hidden:\n:glob:\n:maxdepth: 1\n:caption: {heading}\n\n"
        content[0] += "\n" + tree + "".join(f"/{pattern}\n" for pattern in patterns) + "```\n"


def without_folders(app: Sphinx, docname: str, content: list[str]) -> None:
    """Keep the text of links to folders: a site has no page for a folder of the repository."""
    place = (ROOT / docname).parent

    def text(link: re.Match[str]) -> str:
        return link[1] if (place / link[2]).is_dir() else link[0]

    content[0] = LINK.sub(text, content[0])


def gallery_links(app: Sphinx, docname: str, content: list[str]) -> None:
    """Add a link to each heading of the gallery that names a page."""
    if docname == "docs/gallery":
        for name in GALLERY:
            assert f"## {name}\n" in content[0], f"docs/gallery.md has no section {name}"
            content[0] = content[0].replace(f"## {name}\n", f'## {name}\n\n<a href="../gallery/{name}.html">Open the page</a>\n')


def write_gallery(app: Sphinx) -> None:
    """Run the commands of the gallery. Raises what they print when one fails."""
    folder = Path(app.outdir) / "gallery"
    folder.mkdir(parents=True, exist_ok=True)
    for name, command in GALLERY.items():
        words = [word.format(file=folder / f"{name}.html") for word in command]
        done = subprocess.run([sys.executable, "-m", "dovetail", *words], capture_output=True, text=True, check=False)
        if done.returncode:
            raise ExtensionError(f"dovetail {' '.join(words)} failed: {done.stderr}")


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register what is done with a page before it is parsed."""
    app.connect("source-read", navigation)
    app.connect("source-read", without_folders)
    app.connect("source-read", gallery_links)
    app.connect("builder-inited", write_gallery)
    app.add_lexer("mermaid", TextLexer)  # diagrams stay text: drawing them needs a script from another site
    return {"parallel_read_safe": True, "parallel_write_safe": True}
