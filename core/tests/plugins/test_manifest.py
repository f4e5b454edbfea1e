"""The static manifest: counted without an import, written by a command, and found out when it is stale."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dovetail.cli import program
from dovetail.plugins import PluginManager, check_manifest
from dovetail.plugins.manifest import FILE_NAME, manifest_path, read_manifest
from dovetail.testing.check import ConformanceFailure
from dovetail_tools.kits import kit_for

IMPL = 'from dovetail.hookspecs import hookimpl\ndovetail_api = "1.0"\n'


def run(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(program, ["plugins", *arguments])
    assert result.exit_code == code, result.output
    return result


def package(site: Any, name: str, source: str, inner: str = "") -> Path:
    """A package whose entry point names its module `inner`; returns the folder that holds the manifest."""
    folder: Path = site.folder / name
    folder.mkdir()
    (folder / "__init__.py").write_text("raise SystemExit('imported')" if inner == "never" else "")
    if inner:
        (folder / "__init__.py").write_text("")
    (folder / f"{inner or '__init__'}.py").write_text(IMPL + source)
    return folder


@pytest.fixture
def acme(site: Any, pack: Any) -> Path:
    """The distribution acme-ops with the operators Twist and Turn in the package acme_ops."""
    folder = package(site, "acme_ops", pack("acme", "Twist", "Turn"))
    site.metadata("acme-ops", {"ops": {"acme": "acme_ops"}})
    return folder


def test_written_counted_and_right(acme: Path) -> None:
    record = PluginManager().record("acme")
    assert read_manifest(record) is None
    assert run("manifest", "acme-ops").stdout == f"Wrote {acme / FILE_NAME}: 2 operators\n"
    assert json.loads((acme / FILE_NAME).read_text()) == {"format": 1, "plugins": {"ops/acme": ["acme::Turn-1", "acme::Twist-1"]}}
    assert read_manifest(record) == ("acme::Turn-1", "acme::Twist-1")
    assert check_manifest(PluginManager().load("acme")) == []
    (shown,) = json.loads(run("list", "--json").stdout)["plugins"]
    assert (shown["operators"], shown["manifest"], shown["state"]) == (2, "", "found")
    assert "operators of domain acme (2)" in run("list").stdout


def test_listing_counts_without_an_import(acme: Path, site: Any) -> None:
    run("manifest", "acme-ops")
    (acme / "__init__.py").write_text("raise SystemExit('imported')")
    out = site.run(
        """
        import sys
        sys.argv = ["dovetail", "plugins", "list", "--json"]
        from dovetail.cli import main
        try:
            main()
        finally:
            assert not {"acme_ops", "numpy", "pluggy", "yaml", "dovetail.op"} & set(sys.modules)
        """
    )
    (shown,) = [p for p in json.loads(out)["plugins"] if p["key"] == "acme"]
    assert shown["operators"] == 2


@pytest.mark.parametrize(
    ("operators", "problem"),
    [
        (["acme::Twist-1"], "it lacks acme::Turn-1"),
        (["acme::Turn-1", "acme::Twist-1", "acme::Old-1"], "it lists acme::Old-1, not defined any more"),
        (["acme::Twist-1", "acme::Turn-1"], "another order"),
        ([], "it lacks acme::Turn-1, acme::Twist-1"),
    ],
)
def test_a_stale_manifest_is_found_out_once_the_pack_is_loaded(acme: Path, operators: list[str], problem: str) -> None:
    (acme / FILE_NAME).write_text(json.dumps({"format": 1, "plugins": {"ops/acme": operators}}))
    (said,) = check_manifest(PluginManager().load("acme"))
    assert problem in said
    assert said.startswith(f"{acme / FILE_NAME} is out of date")
    assert said.endswith("(dovetail plugins manifest acme-ops)")
    assert "is out of date" in run("info", "acme").stdout
    run("manifest", "acme-ops")
    assert check_manifest(PluginManager().load("acme")) == []
    assert "out of date" not in run("info", "acme").stdout


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "Expecting value"),
        ("[]", "list indices"),
        ("{}", "it has no 'format'"),
        ('{"format": 2, "plugins": {}}', "its format is 2, known is 1"),
        ('{"format": 1, "plugins": {}}', "it has no 'ops/acme'"),
        ('{"format": 1, "plugins": {"ops/acme": "Twist"}}', "ops/acme is not a list of names"),
        ('{"format": 1, "plugins": {"ops/acme": [3]}}', "ops/acme is not a list of names"),
        ('{"format": 1, "plugins": 7}', "not subscriptable"),
        ("[" * 100_000, "while decoding a JSON array"),
        (" " * (1 << 21), "it has more than"),
        ("\\ud800", "Expecting value"),
    ],
)
def test_a_malformed_manifest_is_told_and_hides_nothing(acme: Path, content: str, reason: str) -> None:
    (acme / FILE_NAME).write_text(content)
    (shown,) = json.loads(run("list", "--json").stdout)["plugins"]
    assert shown["operators"] is None
    assert reason in shown["manifest"]
    assert "write it again: dovetail plugins manifest acme-ops" in shown["manifest"]
    assert reason in check_manifest(PluginManager().load("acme"))[0]


def test_it_lies_in_the_package_that_the_entry_point_names(site: Any, pack: Any) -> None:
    folder = package(site, "outer", "")
    (folder / "deep").mkdir()
    (folder / "deep" / "__init__.py").write_text("")
    (folder / "deep" / "module.py").write_text(IMPL + pack("acme", "Twist"))
    site.metadata("acme-ops", {"ops": {"acme": "outer.deep.module"}})
    assert manifest_path(PluginManager().record("acme")) == str(folder / "deep" / FILE_NAME)
    assert "outer" not in sys.modules
    run("manifest", "acme")
    assert (folder / "deep" / FILE_NAME).is_file()


def test_one_file_for_all_plugins_of_a_package_overrides_included(site: Any, pack: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    both = "if domain == 'acme': registry.add(Twist)\n    else: registry.add(Abs)\n"
    source = pack("acme", "Twist").partition("@hookimpl")[0] + pack("", "Abs").partition("\n")[2].partition("@hookimpl")[0]
    folder = package(site, "acme_ops", f"{source}@hookimpl\ndef dovetail_register_ops(registry, domain):\n    {both}")
    site.metadata("acme-ops", {"ops": {"acme": "acme_ops"}, "overrides": {"ai.onnx": "acme_ops"}})
    site.plugin("ops", "far", pack("far", "X"))
    monkeypatch.setenv("DOVETAIL_PREFER", "far")
    run("manifest", "acme-ops")
    plugins = json.loads((folder / FILE_NAME).read_text())["plugins"]
    assert plugins == {"ops/acme": ["acme::Twist-1"], "overrides/ai.onnx": ["Abs-1"]}
    assert "overrides for domain ai.onnx (1)" in run("list").stdout


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("single", "single/ops/one is the single file single_file"),
        ("npu", "npu has no operators and no commands"),
        ("broken", "broken/ops/bad is failed: importing broken raised ValueError: boom"),
        ("acne", "no installed plugin is called 'acne'"),
    ],
)
def test_what_has_no_manifest(site: Any, pack: Any, device: Any, name: str, message: str) -> None:
    site.metadata("single", {"ops": {"one": "single_file"}})
    site.module("single_file", IMPL + pack("one", "X"))
    device("npu", name="npu")
    site.plugin("ops", "bad", "raise ValueError('boom')", name="broken")
    result = run("manifest", name, code=1)
    assert re.search(message, result.stderr)
    assert list(site.folder.rglob(FILE_NAME)) == []


def test_commands_are_listed(site: Any) -> None:
    """A manifest without the commands is out of date for the kit and for `info`."""
    adds = (
        "import click\n@hookimpl\ndef dovetail_add_commands(cli):\n    cli.add_command(click.Command({!r}, help='Say hello.'))\n"
    )
    folder = package(site, "greetings", adds.format("greet"))
    site.metadata("greetings", {"hooks": {"hello": "greetings"}})
    assert run("manifest", "greetings").stdout == f"Wrote {folder / FILE_NAME}: 1 commands\n"
    assert read_manifest(PluginManager().record("hello")) == ("greet: Say hello.",)
    assert "manifest" not in run("info", "hello").stdout
    (folder / "__init__.py").write_text(IMPL + adds.format("hail"))
    del sys.modules["greetings"]
    assert "it lacks hail: Say hello.; it lists greet: Say hello., not defined any more" in run("info", "hello").stdout
    (check,) = (check for check in kit_for(PluginManager().record("hello")).checks if check.group == "commands")
    with pytest.raises(ConformanceFailure, match="it lacks hail"):
        check()


def test_a_plugin_in_process_has_none(site: Any) -> None:
    from dovetail.plugins.in_process import Registration

    assert manifest_path(Registration.of(object(), kind="ops", key="acme", name="json").record) == ""


def test_modules_registered_by_file_name_are_listed(site: Any) -> None:
    folder = package(
        site, "lazy_ops", "@hookimpl\ndef dovetail_register_ops(registry, domain):\n    registry.add_package(__name__)\n"
    )
    (folder / "twist.py").write_text("from dovetail.op import Operator\nclass Twist(Operator):\n    domain = 'lazy'\n")
    site.metadata("lazy-ops", {"ops": {"lazy": "lazy_ops"}})
    run("manifest", "lazy-ops")
    assert read_manifest(PluginManager().record("lazy")) == ("lazy::Twist-1",)
    (folder / "turn.py").write_text("from dovetail.op import Operator\nclass Turn(Operator):\n    domain = 'lazy'\n")
    (said,) = check_manifest(PluginManager().load("lazy"))
    assert "it lacks lazy::Turn-1" in said
    (folder / "tumble.py").write_text("import absent_module\n")
    failed = PluginManager().load("lazy")
    assert failed.state == "failed"
    assert "importing lazy_ops.tumble" in failed.reason
