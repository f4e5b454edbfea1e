"""The commands on small models: what they print, their JSON, and what they refuse."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from onnx import helper

from dovetail.graph import GraphBuilder
from dovetail_ops_onnx.neg import Neg
from dovetail_ops_onnx.relu import Relu

Invoke = Callable[..., Result]
InvokeJson = Callable[..., Any]
SaveModel = Callable[..., Path]

ACME = """
from dovetail.op import Operator

class Twice(Operator):
    domain = "com.acme"
    def reference(self, X):
        return 2 * X
"""


@pytest.fixture
def acme(tmp_path: Path) -> Path:
    """A file with the operator com.acme::Twice."""
    file = tmp_path / "acme.py"
    file.write_text(ACME)
    return file


# --- devices and plugins --------------------------------------------------------------------------------------------------


def test_devices(invoke: Invoke, invoke_json: InvokeJson, device: str) -> None:
    shown = invoke_json("devices")
    assert set(shown) == {"devices", "missing"}
    for one in shown["devices"]:
        assert set(one) == {"name", "type", "kind", "full_name", "priority", "provider", "details"}
        assert one["provider"].startswith("dovetail-")
    names = [one["name"] for one in shown["devices"]]
    assert device in names
    text = invoke("devices").stdout
    assert all(re.search(rf"^ {re.escape(name)} ", text, re.MULTILINE) for name in names)


def test_devices_say_why_one_is_missing(invoke: Invoke, invoke_json: InvokeJson, monkeypatch: pytest.MonkeyPatch) -> None:
    others = [d for d in invoke_json("plugins", "list")["plugins"] if d["kind"] == "devices"]
    blocked = next(d for d in others if d["key"] != "numpy")
    monkeypatch.setenv("DOVETAIL_PLUGINS", f"-{blocked['distribution']}")
    shown = invoke_json("devices")
    (missing,) = shown["missing"]
    assert (missing["plugin"], missing["device"], missing["state"]) == (blocked["id"], blocked["key"].upper(), "blocked")
    assert "DOVETAIL_PLUGINS" in missing["reason"]
    assert missing["hint"]
    assert "switched off by DOVETAIL_PLUGINS" in invoke("devices").stdout


def test_plugins_list(invoke: Invoke, invoke_json: InvokeJson) -> None:
    (plugins,) = invoke_json("plugins", "list").values()
    assert [p["id"] for p in plugins] == sorted(p["id"] for p in plugins)
    for plugin in plugins:
        assert set(plugin) == {
            "id", "distribution", "version", "kind", "key", "value", "requires", "location", "editable", "duplicates", "state",
            "reason", "hint", "traceback", "provides", "import_seconds", "register_seconds", "operators", "manifest",
        }  # fmt: skip
        assert plugin["state"] == "found"
    result = invoke("plugins", "list")
    assert all(p["distribution"] in result.stdout for p in plugins)
    assert "No plugin was imported" not in result.stdout


def test_plugins_info_loads_the_plugin(invoke: Invoke, invoke_json: InvokeJson) -> None:
    (plugin,) = invoke_json("plugins", "info", "onnx")["plugins"]
    assert plugin["state"] == "loaded"
    assert plugin["import_seconds"] > 0
    text = invoke("plugins", "info", plugin["distribution"]).stdout
    assert plugin["id"] in text
    assert "model format onnx" in text


def test_plugins_info_shows_devices(invoke_json: InvokeJson, device: str) -> None:
    (plugin,) = invoke_json("plugins", "info", device.partition(".")[0])["plugins"]
    assert device in plugin["provides"]


def test_plugins_info_of_an_unknown_one(invoke: Invoke) -> None:
    result = invoke("plugins", "info", "onx", code=1)
    assert "no installed plugin is called 'onx'" in result.stderr
    assert "Did you mean 'onnx'?" in result.stderr


def test_plugins_info_of_one_that_fails(dovetail: Any, tmp_path: Path) -> None:
    info = tmp_path / "site" / "fake_broken-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fake-broken\nVersion: 1.0\nRequires-Dist: dovetail>=0.1\n")
    (info / "entry_points.txt").write_text("[dovetail.devices]\nbroken = fake_broken\n")
    (tmp_path / "site" / "fake_broken.py").write_text("raise OSError('no such driver')")
    path = str(tmp_path / "site")
    done = dovetail("plugins", "info", "broken", code=1, PYTHONPATH=path)
    assert re.search(r"state +failed", done.stdout)
    assert "OSError: no such driver" in done.stdout
    assert "Traceback (most recent call last)" in done.stdout
    found = dovetail("plugins", "list", PYTHONPATH=path).stdout
    assert re.search(r"fake-broken +1.0 +device broken +found", found)
    others = dovetail("devices", PYTHONPATH=path).stdout
    assert re.search(r"BROKEN +failed +.*no such driver", others)


# --- run ------------------------------------------------------------------------------------------------------------------


def test_run_computes_and_stores(invoke: Invoke, linear: Path, device: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([[1, 2, 3], [-1, 0, 0]], np.float32))
    result = invoke("run", linear, "-d", device, "-i", "x=x.npy", "-o", "out.npz")
    with np.load(tmp_path / "out.npz") as stored:
        np.testing.assert_array_equal(stored["y"], np.array([[5.5, 4], [0, 0]], np.float32))
    assert "float32[2, 2]" in result.stdout
    assert "5.5, 4, 0, 0" in result.stdout
    assert "Wrote out.npz" in result.stderr
    assert "Wrote" not in result.stdout


def test_run_json(invoke_json: InvokeJson, linear: Path, device: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([[1, 2, np.inf], [-1, 0, 0]], np.float32))
    shown = invoke_json("run", linear, "-d", device, "-i", "x.npy")
    assert set(shown) == {"model", "device", "seconds", "file", "program", "outputs"}
    assert shown["device"] == device
    assert shown["file"] is shown["program"] is None
    (output,) = shown["outputs"]
    assert output == {
        "name": "y", "dtype": "float32", "shape": [2, 2], "min": None, "max": None, "mean": None, "first": [None, None, 0.0, 0.0],
    }  # fmt: skip


def test_run_with_random_inputs_follows_the_seed(invoke_json: InvokeJson, two_inputs: Path, device: str) -> None:
    first, again, other = (
        invoke_json("run", two_inputs, "-d", device, "-i", "random", "--seed", s)["outputs"] for s in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_run_with_a_shape(invoke_json: InvokeJson, linear: Path, device: str) -> None:
    (output,) = invoke_json("run", linear, "-d", device, "-i", "random", "--shape", "5,3")["outputs"]
    assert output["shape"] == [5, 2]


def test_run_of_an_empty_batch(invoke_json: InvokeJson, linear: Path, device: str) -> None:
    (output,) = invoke_json("run", linear, "-d", device, "-i", "random", "--shape", "x=0,3")["outputs"]
    assert output["shape"] == [0, 2]
    assert output["min"] is output["max"] is output["mean"] is None


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--shape", "x=1,a"], 2, "not of the form NAME=1,3,224,224"),
        (["--shape", "z=1,3"], 2, "no input 'z'"),
        (["--shape", "x=1"], 1, "rank 2"),
        (["-i", "z=random"], 2, "no input 'z'"),
        ([], 2, "No value for input 'x': give -i x=FILE, or -i random."),
        (["-i", "absent.npy"], 1, "absent.npy"),
        (["-i", "random", "-d", "NOSUCH"], 1, "NOSUCH"),
        (["-i", "random", "-o", "no/such/folder.npz"], 1, "no/such/folder.npz"),
        (["-i", "random", "-o", "out.txt"], 2, "-o out.txt: accepted: a file that ends in .npz"),
    ],
)
def test_run_refusals(invoke: Invoke, linear: Path, options: list[str], code: int, message: str) -> None:
    result = invoke("run", linear, *options, code=code)
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_a_device_typo_gets_a_suggestion(invoke: Invoke, linear: Path, device: str) -> None:
    result = invoke("run", linear, "-i", "random", "-d", f"{device}X", code=1)
    assert f"Did you mean '{device}'?" in result.stderr


def test_shape_needs_a_name_for_several_inputs(invoke: Invoke, two_inputs: Path) -> None:
    assert "name one: left, right" in invoke("run", two_inputs, "--shape", "2,2", code=2).stderr


def test_extensions_add_operators(
    invoke: Invoke, invoke_json: InvokeJson, acme: Path, save_model: SaveModel, tmp_path: Path, device: str
) -> None:
    node = helper.make_node("Twice", ["x"], ["y"], "custom", domain="com.acme")
    model = save_model(tmp_path / "m.onnx", [node], {"x": [3]}, {"y": [3]})
    assert "com.acme" in invoke("run", model, "-d", device, "-i", "random", code=1).stderr
    np.save(tmp_path / "x.npy", np.array([1, 2, 3], np.float32))
    (output,) = invoke_json("run", model, "-d", device, "-i", "x.npy", "-l", acme)["outputs"]
    assert output["first"] == [2, 4, 6]
    (found,) = invoke_json("where", "com.acme::Twice", "-l", acme)["operators"]
    assert found["definition"] == [str(acme)]
    assert found["provider"] == "session (acme.py)"
    assert [o["operator"] for o in invoke_json("ops", "--domain", "com.acme", "-l", acme)["operators"]] == ["com.acme::Twice"]


def test_names_from_models_are_escaped(invoke: Invoke, save_model: SaveModel, tmp_path: Path, device: str) -> None:
    evil = "\x1b]0;owned\x07\u202e"
    node = helper.make_node("Relu", [f"in{evil}"], [f"out{evil}"], f"node{evil}")
    model = save_model(tmp_path / "evil.onnx", [node], {f"in{evil}": [2]}, {f"out{evil}": [2]})
    for arguments in (["run", model, "-d", device, "-i", "random", "-o", "out.npz"], ["info", model]):
        result = invoke(*arguments)
        assert "\\x1b]0;owned\\x07\\u202e" in result.stdout
        assert not set(result.output) & set(evil[:1] + "\x07\u202e")


# --- info -----------------------------------------------------------------------------------------------------------------


def test_info(invoke_json: InvokeJson, linear: Path, device: str) -> None:
    shown = invoke_json("info", linear, "--shape", "x=4,3")
    assert set(shown) == {
        "model", "format", "opsets", "inputs", "outputs", "nodes", "parameters", "parameter_bytes", "flops", "activation_bytes",
        "activation_bytes_unshared", "operators", "subgraphs", "devices", "output_types", "overridable",
    }  # fmt: skip
    assert list(shown["output_types"].values()) == [{"dtype": "float32", "shape": [4, 2], "declared_shape": ["N", 2]}]
    assert shown["opsets"] == {"": 17, "com.acme": 1}
    assert shown["inputs"] == {"x": {"dtype": "float32", "shape": ["N", 3], "used_shape": [4, 3]}}
    assert (shown["nodes"], shown["parameters"], shown["parameter_bytes"]) == (3, 8, 32)
    assert shown["flops"] == 4 * (12 + 2 + 2)
    assert 0 < shown["activation_bytes"] <= shown["activation_bytes_unshared"]
    rows = {row["operator"]: row for row in shown["operators"]}
    provider = rows["MatMul"].pop("provider")
    assert provider.startswith("dovetail-ops-onnx ")
    assert rows["MatMul"] == {"operator": "MatMul", "count": 1, "analyzed": 1, "flops": 48}
    (mine,) = (d for d in shown["devices"] if d["device"] == device)
    assert (mine["error"], mine["accepted"], mine["nodes"], mine["refused"]) == (None, 3, 3, [])
    assert mine["provider"].startswith("dovetail-")
    served = {row["operator"]: row for row in mine["operators"]}
    assert served["MatMul"].pop("kernels") != []
    assert served["MatMul"] == {"operator": "MatMul", "way": "kernel", "provider": mine["provider"], "nodes": 1}
    assert sum(row["nodes"] for row in mine["operators"]) == 3
    assert mine["provider"].split()[0].endswith(device.partition(".")[0].lower())


def test_info_takes_open_dimensions_as_1(invoke: Invoke, invoke_json: InvokeJson, linear: Path) -> None:
    shown = invoke_json("info", linear)
    assert shown["inputs"]["x"] == {"dtype": "float32", "shape": ["N", 3], "used_shape": [1, 3]}
    assert shown["flops"] == 16
    text = invoke("info", linear).stdout
    assert "float32[N, 3], here [1, 3]" in text
    assert re.search(r"MatMul +1 +12 +75.0% +kernel", text)
    assert re.search(r"output \w+ +float32\[N, 2\], here \[1, 2\]", text)
    assert re.search(r"NUMPY +dovetail-cpu-numpy \S+ +3 of 3", text)


def test_info_names_refused_nodes(
    invoke: Invoke, invoke_json: InvokeJson, toy_core: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    core, _ = toy_core(PICKY=lambda node: node.op.key == "Relu")
    g = GraphBuilder()
    model = g.model([g.node(Relu(), g.node(Neg(), g.input("x", "float32", (2,))), name="relu")])
    monkeypatch.setattr("dovetail.cli._models.make_core", lambda extensions=(): core)
    monkeypatch.setattr(core, "read_model", lambda path: model)
    (picky,) = invoke_json("info", "m")["devices"]
    assert (picky["accepted"], picky["nodes"]) == (1, 2)
    assert picky["refused"] == [{"node": "relu", "operator": "Relu", "reason": "no kernel for this operator", "detail": "Relu"}]
    text = invoke("info", "m").stdout
    assert re.search(r"Relu +1 +2 +50.0% +refused", text)
    assert re.search(r"PICKY.0 +Relu +no kernel for this operator: Relu +relu", text)


# --- bench ----------------------------------------------------------------------------------------------------------------


def test_bench(invoke_json: InvokeJson, linear: Path, device: str) -> None:
    shown = invoke_json("bench", linear, "-d", device, "-n", 7, "--shape", "x=4,3")
    assert set(shown) == {
        "model", "device", "inputs", "batch", "read_seconds", "compile_seconds", "first_seconds", "steady", "runs_per_second",
        "items_per_second", "memory", "reorders", "stubs",
    }  # fmt: skip
    assert shown["inputs"] == {"x": {"dtype": "float32", "shape": [4, 3]}}
    steady = shown["steady"]
    assert set(steady) == {"runs", "mean", "p50", "p90", "p99", "fastest"}
    assert steady["runs"] == 7
    assert 0 < steady["fastest"] <= steady["p50"] <= steady["p90"] <= steady["p99"]
    assert shown["runs_per_second"] == pytest.approx(1 / steady["mean"])
    assert shown["items_per_second"] == pytest.approx(4 / steady["mean"])
    assert set(shown["memory"]) == {device}
    assert shown["reorders"] == 0
    assert shown["stubs"] == []


def test_bench_with_inputs_from_files(invoke_json: InvokeJson, linear: Path, device: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((6, 3), np.float32))
    told = invoke_json("bench", linear, "-d", device, "-n", 2, "-i", tmp_path / "x.npy")
    assert told["inputs"] == {"x": {"dtype": "float32", "shape": [6, 3]}}
    assert told["batch"] == 6


def test_bench_ends_after_its_time(invoke: Invoke, linear: Path, device: str) -> None:
    result = invoke("bench", linear, "-d", device, "-t", "0.05")
    assert f"{linear} on {device}" in result.stdout
    assert all(word in result.stdout for word in ("read", "compile", "first run", "steady, p99", "runs a second"))
    assert result.stderr == ""


# --- ops and where --------------------------------------------------------------------------------------------------------


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


def test_where_finds_operators_of_packs(invoke: Invoke, invoke_json: InvokeJson) -> None:
    rows = [row for row in invoke_json("ops")["operators"] if any(b.endswith(" kernel") for b in row["brings"])]
    assert rows, "no installed pack brings a kernel source"
    for row in rows:
        (found,) = invoke_json("where", row["operator"])["operators"]
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
