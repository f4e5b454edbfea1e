"""`dovetail new`: the files that are written, and names that are refused."""

import ast
import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

import dovetail

Invoke = Callable[..., Result]
InvokeJson = Callable[..., Any]


def entry_points(folder: Path) -> Any:
    return tomllib.loads((folder / "pyproject.toml").read_text())["project"]["entry-points"]


@pytest.mark.parametrize(
    ("kind", "option", "files"),
    [
        ("op-pack", ("--domain", "org.acme"), {"src/acme_x/snake.py", "src/acme_x/snake.cl"}),
        ("device", ("--type", "ACME"), {"src/acme_x/device.py", "src/acme_x/kernel.py", "src/acme_x/kernels/relu.py"}),
        ("frontend", ("--suffix", "acme"), {"src/acme_x/reader.py", "src/acme_x/writer.py", "tests/test_models.py"}),
        ("hooks", (), {"src/acme_x/passes.py", "src/acme_x/commands.py", "tests/test_passes.py", "tests/test_commands.py"}),
        ("override", (), {"src/acme_x/relu.py", "tests/test_preference.py"}),
    ],
)
def test_a_whole_package(
    invoke: Invoke, invoke_json: InvokeJson, tmp_path: Path, kind: str, option: tuple[str, ...], files: set[str]
) -> None:
    shown = invoke_json("new", kind, "Acme.X", *option, "--folder", "somewhere/deep")
    written = {p.relative_to(tmp_path / "somewhere/deep").as_posix() for p in tmp_path.rglob("*") if p.is_file()}
    common = {"pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE"}
    assert written == set(shown["files"]) >= files | common | {"src/acme_x/py.typed", "src/acme_x/__init__.py"}
    assert {k: shown[k] for k in ("folder", "distribution", "module")} == {
        "folder": "somewhere/deep",
        "distribution": "Acme.X",
        "module": "acme_x",
    }
    owns = {"op-pack": "domain", "device": "type", "frontend": "suffix", "hooks": "entry", "override": "domain"}[kind]
    assert shown[owns] == (option[1] if option else {"hooks": "acme-x", "override": "ai.onnx"}[kind])
    assert shown["next"][0] == 'pip install -e "./somewhere/deep[test]"'

    texts = {name: (tmp_path / "somewhere/deep" / name).read_text() for name in written}
    for name, text in texts.items():
        assert "$" not in text
        assert "TODO" not in text
        if name.endswith(".py"):
            assert ast.get_docstring(ast.parse(text, name))
    printed = invoke("new", kind, "acme-y", *option).stdout
    assert all(line in printed for line in ("Wrote acme-y into acme-y:", "  pyproject.toml", "  pytest acme-y"))


def test_entry_points_and_requirement(invoke: Invoke, tmp_path: Path) -> None:
    invoke("new", "op-pack", "acme-ops")
    invoke("new", "op-pack", "dovetail-ops-some-vendor")
    invoke("new", "device", "dovetail-acme-npu")
    assert entry_points(tmp_path / "acme-ops") == {"dovetail.ops": {"acme.ops": "acme_ops"}}
    assert entry_points(tmp_path / "dovetail-ops-some-vendor") == {"dovetail.ops": {"some.vendor": "dovetail_ops_some_vendor"}}
    assert entry_points(tmp_path / "dovetail-acme-npu") == {"dovetail.devices": {"acme_npu": "dovetail_acme_npu"}}
    invoke("new", "frontend", "dovetail-frontend-acme")
    invoke("new", "hooks", "Acme_Tools")
    invoke("new", "override", "acme-relu")
    assert entry_points(tmp_path / "dovetail-frontend-acme") == {"dovetail.frontends": {"acme": "dovetail_frontend_acme"}}
    assert entry_points(tmp_path / "Acme_Tools") == {"dovetail.hooks": {"acme-tools": "acme_tools"}}
    assert entry_points(tmp_path / "acme-relu") == {"dovetail.overrides": {"ai.onnx": "acme_relu"}}
    project = tomllib.loads((tmp_path / "acme-ops" / "pyproject.toml").read_text())["project"]
    assert project["dependencies"][0].startswith(f"dovetail>={dovetail.__version__},<")


def test_what_exists_is_left_alone(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "acme").mkdir()
    refused = invoke("new", "op-pack", "acme", code=1)
    assert "'acme' is there already" in refused.stderr
    assert list((tmp_path / "acme").iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("op-pack", "My Ops!"), "'My Ops!' is not a name for a package; accepted: letters, digits, and - _ . between them\n"
                                 "  Did you mean 'my-ops'?"),
        (("op-pack", "../up"), "Did you mean 'up'?"),
        (("op-pack", "-"), "for example: acme-ops"),
        (("op-pack", "9lives"), "the module name '9lives', which Python cannot import"),
        (("device", "class"), "the module name 'class', which Python cannot import"),
        (("device", "json"), "the module name 'json', which is taken"),
        (("device", "Dovetail"), "the module name 'dovetail', which is taken"),
        (("op-pack", "NumPy"), "the module name 'numpy', which is taken\n  for example: acme-NumPy"),
        (("op-pack", "x-ops", "--domain", "a b"), "'a b' is not an operator domain"),
        (("op-pack", "x-ops", "--domain", ""), "'' is not an operator domain"),
        (("op-pack", "x-ops", "--domain", "ai.onnx"), "the domain 'ai.onnx' belongs to the ONNX standard"),
        (("op-pack", "x-ops", "--domain", "tim.vx"), "'tim.vx' belongs to dovetail-ops-tim-vx"),
        (("device", "x", "--type", "my dev"), "Did you mean 'MY_DEV'?"),
        (("device", "x", "--type", "GPU"), "'GPU' has a meaning of its own"),
        (("device", "auto"), "'AUTO' has a meaning of its own"),
        (("device", "x", "--type", "NUMPY"), "'numpy' belongs to dovetail-cpu-numpy"),
        (("frontend", "x", "--suffix", ".Acme"), "'.Acme' is not a file suffix; accepted: small letters, digits and _, "
                                                 "without the dot\n  Did you mean 'acme'?"),
        (("frontend", "x", "--suffix", "onnx"), "'onnx' belongs to dovetail-frontend-onnx"),
        (("hooks", "demo"), "'demo' belongs to dovetail-demo"),
    ],
)  # fmt: skip
def test_names_that_are_refused(invoke: Invoke, tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    kind, *rest = arguments
    refused = invoke("new", kind, *rest[1:], "--", rest[0], code=1)
    assert message in refused.stderr
    assert list(tmp_path.iterdir()) == []


def test_unknown_templates_are_refused_with_a_suggestion(invoke: Invoke) -> None:
    assert "Unknown template 'op_pack'. Did you mean 'op-pack'?" in invoke("new", "op_pack", "x", code=2).stderr


def test_json_is_json(invoke: Invoke) -> None:
    assert json.loads(invoke("new", "device", "acme", "--json").stdout)["type"] == "ACME"


@pytest.mark.parametrize("kind", ["device", "frontend", "hooks", "op-pack", "override"])
def test_the_help_has_an_example_and_fits(invoke: Invoke, kind: str) -> None:
    text = invoke("new", kind, "--help").stdout
    assert "JSON: {" in text
    assert f"Example:\n    dovetail new {kind} acme-" in text
    assert max(map(len, text.splitlines())) <= 80
    assert kind in invoke("new", "--help").stdout
