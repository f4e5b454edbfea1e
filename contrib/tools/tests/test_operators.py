"""`ops` and `where`: the operators of the installed packs, and their files."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

Invoke = Callable[..., Result]
InvokeJson = Callable[..., Any]


def test_ops(invoke: Invoke, invoke_json: InvokeJson, device: str) -> None:
    rows = invoke_json("ops")["operators"]
    for row in rows:
        assert set(row) == {"operator", "domain", "since", "stem", "provider", "brings", "kernels"}
        assert row["brings"]
    by_name = {row["operator"]: row for row in rows}
    kind = device.partition(".")[0]
    assert [Path(file).name for file in by_name["Conv"]["kernels"][kind]] == ["conv.py"]
    assert by_name["Conv"]["provider"].startswith("dovetail-ops-onnx ")
    text = invoke("ops", "--device", kind).stdout
    assert re.search(r"Conv +1 +dovetail-ops-onnx \d\S+ +reference +kernel", text)


def test_ops_of_a_domain(invoke: Invoke, invoke_json: InvokeJson) -> None:
    packs = [p for p in invoke_json("plugins", "list")["plugins"] if p["kind"] == "ops"]
    for pack in packs:
        rows = invoke_json("ops", "--domain", pack["key"])["operators"]
        assert rows
        assert {row["domain"] or "ai.onnx" for row in rows} == {pack["key"]}
    assert "No operator of domain 'com.nothing' is known" in invoke("ops", "--domain", "com.nothing", code=2).stderr
    assert "no installed plugin provides the device 'nothing'" in invoke("ops", "--device", "nothing", code=1).stderr


@pytest.mark.parametrize("asked", ["Conv", "conv", "ai.onnx::Conv"])
def test_where(invoke: Invoke, invoke_json: InvokeJson, device: str, asked: str) -> None:
    (found,) = invoke_json("where", asked)["operators"]
    assert set(found) == {"operator", "provider", "stem", "since", "definition", "cases", "sources", "kernels"}
    assert (found["operator"], found["stem"]) == ("Conv", "conv")
    (definition,) = map(Path, found["definition"])
    assert definition.parts[-2:] == ("dovetail_ops_onnx", "conv.py")
    assert "class Conv(" in definition.read_text()
    (cases,) = map(Path, found["cases"])
    assert cases.parts[-3:] == ("dovetail_ops_onnx", "cases", "conv.py")
    (mine,) = (kernel for kernel in found["kernels"] if kernel["device"] == device.partition(".")[0])
    assert all(Path(file).is_file() for file in mine["files"])
    assert str(definition) in invoke("where", asked).stdout


def test_where_finds_cases_in_the_table(invoke_json: InvokeJson) -> None:
    (found,) = invoke_json("where", "Cosh")["operators"]
    assert [Path(file).parts[-2:] for file in found["cases"]] == [("cases", "_table.py")]


def test_where_finds_operators_of_packs(invoke: Invoke, invoke_json: InvokeJson) -> None:
    rows = [row for row in invoke_json("ops")["operators"] if any(b.endswith(" kernel") for b in row["brings"])]
    assert rows, "no installed pack brings a kernel source"
    for row in rows:
        name = row["operator"] if "::" in row["operator"] else f"ai.onnx::{row['operator']}"
        (found,) = invoke_json("where", name)["operators"]
        (definition,) = map(Path, found["definition"])
        assert definition.name == f"{row['stem']}.py"
        assert found["provider"] == row["provider"]
        for source in found["sources"]:
            entries = [source["entry"]] if isinstance(source["entry"], str) else source["entry"].values()
            assert all(entry in definition.read_text() for entry in entries)
        assert row["operator"] in invoke("where", row["operator"]).stdout


def test_where_suggests(invoke: Invoke) -> None:
    result = invoke("where", "Convv", code=1)
    assert "no operator is called 'Convv'" in result.stderr
    assert "Did you mean 'Conv'?" in result.stderr
    assert "no operator is called 'com.acme::Conv'" in invoke("where", "com.acme::Conv", code=1).stderr
    assert "Did you mean 'tim.vx::HSwish'?" in invoke("where", "tim.vx::HSwich", code=1).stderr
