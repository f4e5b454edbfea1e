"""The tutorials for authors do what they say, word for word, in an environment of their own.

As in tests/docs, `console` blocks are run and a `text` block right after one shows what it prints. A block of another language
whose first line is a comment with a path is a file that the reader writes. A block after `<!-- as written: path -->` shows a part
of a file that is there already.
"""

import os
import re
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("tutorial/first_op_pack.md", "tutorial/first_device.md", "how-to/ship_opencl_kernel.md")

FENCE = re.compile(
    r"^(?:<!-- (?P<order>not run|as written): (?P<argument>[^\n]+) -->\n)?```(?P<language>\w+)\n(?P<content>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
FILE = re.compile(r"(?:#|//) (\S+\.\w+)\n")


def run_commands(commands: str, fails: bool, folder: Path, environment: Any) -> str:
    """The output of the commands of one block, in one shell each. The last one fails where the page shows an error."""
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV") and not k.startswith("DOVETAIL_")}
    kept["PATH"] = os.pathsep.join((str(environment.bin), kept["PATH"]))
    kept["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    printed = ""
    lines = commands.splitlines()
    for number, command in enumerate(lines, 1):
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=folder,
            env=kept,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
            check=False,
        )
        printed += done.stdout
        expected = int(fails and number == len(lines))
        assert done.returncode == expected, f"{command} exited with {done.returncode}\n{done.stdout}"
    return printed


@pytest.mark.parametrize("page", PAGES)
def test_page(page: str, pages: ModuleType, environment: Any, tmp_path: Path) -> None:
    (tmp_path / "dovetail").symlink_to(ROOT)  # the reader's clone, beside the folder that the tutorial starts in
    folder = tmp_path / "work"
    folder.mkdir()
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    blocks = list(FENCE.finditer(text))
    done = {"commands": 0, "files": 0, "shown": 0}
    for block, following in zip(blocks, [*blocks[1:], None], strict=True):
        line = text.count("\n", 0, block.start()) + 1
        named = FILE.match(block["content"])
        if block["order"] == "as written":
            assert block["content"].strip() in (folder / block["argument"]).read_text(), f"{page}, line {line}"
            done["shown"] += 1
        elif block["order"] == "not run":
            continue
        elif block["language"] == "console":
            after = following is not None and not text[block.end() : following.start()].strip()
            shown = following["content"] if following and after and following["language"] == "text" else None
            fails = re.search(r"^Error: | failed, ", shown or "", re.MULTILINE) is not None
            printed = run_commands(block["content"], fails, folder, environment)
            if shown is not None:
                assert pages.shows(shown, printed), f"{page}, line {line} prints\n{printed}\nand the page shows\n{shown}"
            done["commands"] += 1
        elif named:
            target = folder / named[1]
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block["content"], encoding="utf-8")
            done["files"] += 1
        else:
            assert block["language"] in ("text",), f"{page}, line {line}: nothing is done with this block"
    assert done["commands"] > 0, done
    assert done["files"] > 0, done
