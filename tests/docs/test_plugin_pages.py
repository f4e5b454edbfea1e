"""The pages on overrides, dispatch and configuration do what they say, with the package of the first one really installed.

Blocks are as in test_pages.py. A block whose first line is a comment with a path is a file that the reader writes.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    "how-to/override_operator.md",
    "how-to/debug_dispatch.md",
    "how-to/add_commands.md",
    "reference/configuration.md",
    "tutorial/first_frontend.md",
)
FILE = re.compile(r"# (\S+\.\w+)\n")


def write_files(page: str, pages: ModuleType, folder: Path) -> None:
    """The files that the reader writes."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    for fence in pages.FENCE.finditer(text):
        if named := FILE.match(fence["content"]):
            file = folder / named[1]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(fence["content"], encoding="utf-8")


def install(project: Path, target: Path) -> None:
    """As `pip install`, into a folder."""
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-build-isolation"]
    done = subprocess.run([*command, "--target", target, project], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr


def run_python(content: str, folder: Path) -> str:
    """The output of the code, run as a program in a fresh process."""
    (folder / "block.py").write_text(content, encoding="utf-8")
    done = subprocess.run([sys.executable, "block.py"], cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("page", PAGES)
def test_page(page: str, pages: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(page, pages, tmp_path)
    for name in ("DOVETAIL_PLUGINS", "DOVETAIL_PREFER", "DOVETAIL_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user"))
    for project in tmp_path.glob("*/pyproject.toml"):
        install(project.parent, tmp_path / "site")
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(tmp_path / "site"), os.environ.get("PYTHONPATH")))))
    ran = 0
    for block in pages.blocks(page):
        if FILE.match(block.content):
            continue
        run_console = block.language == "console"
        printed = pages.run_console(block, tmp_path) if run_console else run_python(block.content, tmp_path)
        if block.shown is not None:
            shown = f"{page}, line {block.line} prints\n{printed}\nand the page shows\n{block.shown}"
            assert pages.shows(block.shown, printed), shown
        ran += 1
    assert ran > 0


@pytest.mark.parametrize("page", PAGES)
def test_files_are_shown_before_they_are_used(page: str, pages: ModuleType) -> None:
    contents = [fence["content"] for fence in pages.FENCE.finditer((ROOT / "docs" / page).read_text(encoding="utf-8"))]
    shown = {named[1]: index for index, content in enumerate(contents) if (named := FILE.match(content))}
    assert contents
    early = [(name, content) for name, at in shown.items() for content in contents[:at] if f" {name}" in content]
    assert early == []


def test_the_example_of_the_reference_is_accepted(pages: ModuleType, tmp_path: Path) -> None:
    from dovetail.config import Config
    from dovetail.plugins import PluginManager

    write_files("reference/configuration.md", pages, tmp_path)
    config = Config.load(tmp_path / "dovetail.yaml")
    assert config.devices == {"OPENCL": {"QUEUE": "OUT_OF_ORDER", "FUSION": False}}
    manager = PluginManager(config=tmp_path / "dovetail.yaml")
    assert manager.record("dovetail-frontend-onnx").state == "blocked"
    assert manager.decide("tim.vx", "HSwish", 1).winner.distribution == "dovetail-ops-tim-vx"


def test_the_reference_has_every_key_and_limit() -> None:
    from dovetail import config

    text = (ROOT / "docs" / "reference" / "configuration.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| `(\w+)` \|", text.partition("## Keys")[2], re.MULTILINE))
    assert rows == set(config._KEYS)
    assert f"{config._SIZE_LIMIT >> 10} KiB" in text
    assert config._DEPTH_LIMIT == 8
    assert "nested more than eight deep" in " ".join(text.split())


def test_the_page_on_overrides_has_every_rule() -> None:
    from dovetail.plugins.rules import RULES

    text = (ROOT / "docs" / "how-to" / "override_operator.md").read_text(encoding="utf-8")
    listed = re.findall(r"^(\d)\. ", text.partition("## Which definition is used")[2], re.MULTILINE)
    assert [int(number) for number in listed] == list(RULES)
