"""The tutorial and the how-to pages do what they say: their commands and snippets run, and give what the pages show.

A `console` block holds commands, a `python` block code; a `text` block right after it shows what both print, with `...` for
what differs from machine to machine. A block after `<!-- not run: reason -->` is left out.
"""

import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = (
    "tutorial/first_model.md",
    "how-to/install_devices.md",
    "how-to/choose_devices.md",
    "how-to/dynamic_shapes.md",
    "how-to/states.md",
    "how-to/start_faster.md",
    "how-to/custom_layers_xml.md",
    "how-to/debug_kernels.md",
    "how-to/move_a_custom_operator.md",
    "how-to/host_kernels_and_layouts.md",
    "how-to/test_your_plugin.md",
    "how-to/doctor.md",
    "how-to/explain_a_plan.md",
    "how-to/convert_models.md",
    "how-to/map_over_many_rows.md",
    "how-to/use_spark_or_dask.md",
    "how-to/run_an_onnxruntime_program.md",
    "how-to/serve_models.md",
    "how-to/lower_precision.md",
    "how-to/write_graph_passes.md",
    "how-to/wrap_another_runtime.md",
    "how-to/shell_completion.md",
    "how-to/troubleshoot.md",
    "how-to/trace_a_run.md",
    "how-to/draw_a_graph.md",
    "how-to/find_a_wrong_kernel.md",
    "how-to/picture_a_benchmark.md",
    "reference/post_ops.md",
)

FENCE = re.compile(r"^(?P<skip><!-- not run: [^\n]+ -->\n)?```(?P<language>\w+)\n(?P<content>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """Something to run, with the output that the page shows for it (None when it shows none)."""

    language: str
    content: str
    line: int
    shown: str | None


def blocks(page: str) -> Iterator[Block]:
    """The blocks of a page that are run, in order."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found = list(FENCE.finditer(text))
    for fence, following in zip(found, [*found[1:], None], strict=True):
        if fence["skip"] or fence["language"] not in ("console", "python"):
            continue
        is_output = (
            following is not None and following["language"] == "text" and not text[fence.end() : following.start()].strip()
        )
        line = text.count("\n", 0, fence.start("content")) + 1
        yield Block(fence["language"], fence["content"], line, following["content"] if following and is_output else None)


def run_console(block: Block, folder: Path) -> str:
    """The output of the commands. Their exit code is 0, or 1 when the page shows that they fail."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    printed = ""
    for command in block.content.splitlines():
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=folder,
            env={**os.environ, "PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
            check=False,
        )
        printed += done.stdout
        fails = block.shown is not None and "Error: " in block.shown
        assert done.returncode == int(fails), f"line {block.line}: {command} exited with {done.returncode}\n{done.stdout}"
    return printed


def run_python(block: Block, page: str, namespace: dict[str, Any]) -> str:
    """The output of the code."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        # Line numbers of tracebacks are those of the page.
        exec(compile("\n" * (block.line - 1) + block.content, str(DOCS / page), "exec"), namespace)
    return printed.getvalue()


def shows(shown: str, printed: str) -> bool:
    """Whether the page shows what was printed; `...` stands for anything or nothing, and widths of tables do not count."""
    first, *others = (plain(piece) for piece in shown.split("..."))
    text = plain(printed)
    if not others:
        return text == first
    position = len(first)
    for piece in others:
        found = text.find(piece, position)
        if found < 0:
            return False
        position = found + len(piece)
    return text.startswith(first) and text.endswith(others[-1])


def plain(text: str) -> str:
    """One space between words, and the lines of tables one character long."""
    return " ".join(re.sub("─+", "─", text).split())


def test_a_difference_is_found() -> None:
    printed = "Head\n ───── \n a   1.5 s\n b   2\n"
    assert shows("Head\n──\n a 1.5 s\n b 2\n", printed)
    assert shows("Head\n...\n a ...\n b 2\n...\n", printed)
    assert not shows("Head\n──\n a 1.5 s\n", printed)
    assert not shows("Head\n...\n b ...\n a ...\n", printed)
    assert not shows("...\n a ...\n b 3\n", printed)
    assert not shows("ad ... 2", printed)


def test_every_page_with_examples_is_run() -> None:
    tests = "".join(
        path.read_text(encoding="utf-8") for folder in ("docs", "authoring") for path in DOCS.parent.glob(f"tests/{folder}/*.py")
    )
    pages = [path for folder in ("tutorial", "how-to") for path in (DOCS / folder).glob("*.md")]
    assert len(pages) > 10
    assert [page.name for page in pages if any(blocks(f"{page.parent.name}/{page.name}")) and page.name not in tests] == []


@pytest.mark.parametrize("page", PAGES)
def test_page(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")  # Ray reports each cluster to its makers
    namespace: dict[str, Any] = {"__name__": "__main__"}
    ran = 0
    for block in blocks(page):
        printed = run_console(block, tmp_path) if block.language == "console" else run_python(block, page, namespace)
        if block.shown is not None:
            assert shows(block.shown, printed), f"{page}, line {block.line} prints\n{printed}\nand the page shows\n{block.shown}"
        ran += 1
    assert ran, f"{page} has no block to run"
