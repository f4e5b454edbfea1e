"""The how-to about translations: its files, snippets and commands do what it says, and its hook registers the right classes."""

import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

PAGE = "how-to/translate_operators.md"
FILE = re.compile(r"(?:# |<!-- )(\S+\.\w+)(?: -->)?\n")


def test_the_page_runs(
    pages: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # as a prompt in that folder has it
    request.addfinalizer(lambda: sys.modules.pop("my_ops", None))
    text = (pages.DOCS / PAGE).read_text(encoding="utf-8")
    written = [(named[1], fence["content"]) for fence in pages.FENCE.finditer(text) if (named := FILE.match(fence["content"]))]
    assert [name for name, _ in written] == ["my_ops.py", "vendor.xml"]
    for name, content in written:
        Path(name).write_text(content, encoding="utf-8")
    namespace: dict[str, Any] = {}
    shown = 0
    for block in pages.blocks(PAGE):
        run = pages.run_console(block, tmp_path) if block.language == "console" else pages.run_python(block, PAGE, namespace)
        if block.shown is not None:
            assert pages.shows(block.shown, run), f"line {block.line} prints\n{run}\nand the page shows\n{block.shown}"
            shown += 1
    assert shown == 4
    _check_translations(namespace)
    _check_hook(namespace, re.findall(r'^"(.+)" = "my_ops"$', text, re.MULTILINE))


def _check_hook(namespace: dict[str, Any], domains: list[str]) -> None:
    """The hook of the package registers for each entry point what belongs there, and nothing that is refused."""
    from dovetail.plugins.registry import OpRegistry

    assert domains == ["my.ops", "com.vendor", "extension"]
    for domain in domains:
        registry = OpRegistry(SimpleNamespace(key=domain))  # of the record only the key is read
        namespace["dovetail_register_ops"](registry, domain)
        assert {cls.op_type for cls in registry.added} == {"Swish", "GatedSwish"}


def _check_translations(namespace: dict[str, Any]) -> None:
    from dovetail.plugins.registry import OpRegistry

    for domain, names in (("com.vendor", {"swish_v1", "swish_gate", "leaky"}), ("extension", {"VendorSwish", "VendorSwishGate"})):
        registry = OpRegistry(SimpleNamespace(key=domain))  # of the record only the key is read
        namespace["dovetail_register_translations"](registry, domain)
        assert {cls.op_type for cls in registry.added} == names
