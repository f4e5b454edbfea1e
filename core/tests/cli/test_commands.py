"""The commands on small models: what they print, their JSON, and what they refuse."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from onnx import helper

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
    assert set(shown) == {"model", "device", "seconds", "file", "outputs"}
    assert shown["device"] == device
    assert shown["file"] is None
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
