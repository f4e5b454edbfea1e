"""`dovetail plugins which` and `conflicts`: candidates, winner, rule, and lines that do what they say."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from dovetail.cli import program
from dovetail.plugins import PluginManager
from dovetail.plugins.manifest import FILE_NAME
from dovetail.plugins.rules import RULES

Source = Callable[..., str]

SCALE = """
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar
from dovetail.op import FLOATS, KernelSource, Operator

@dataclass(frozen=True, kw_only=True)
class NpuKernel(KernelSource):
    language: ClassVar[str] = "npu"
    entry: str | Mapping[str, str] = "f"

class Scale(Operator):
    domain = {domain!r}
    op_type = {op_type!r}
    types = {{"T": FLOATS}}
    inputs = ("X: T",)
    outputs = ("Y: T",)
    since = {since}
    kernels = ({kernel})
    {body}

dovetail_priority = {priority}

@hookimpl
def dovetail_register_ops(registry, domain):
    registry.add(Scale)
"""

REFERENCE = "reference = lambda self, X: X"
COMPOSITION = "compose = lambda self, g, X: X"


def scale(
    domain: str = "acme", op_type: str = "Scale", kernel: str = "", body: str = REFERENCE, since: int = 1, priority: int = 0
) -> str:
    return SCALE.format(domain=domain, op_type=op_type, kernel=kernel, body=body, since=since, priority=priority)


def run(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(program, ["plugins", *arguments])
    assert result.exit_code == code, result.output
    return result


def which(*arguments: str, code: int = 0) -> Any:
    return json.loads(run("which", *arguments, "--json", code=code).stdout)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def npu(device: Any) -> None:
    """A device type whose plugin must not be imported: nothing is run."""
    device("npu", more="raise AssertionError('imported')")


RIVALS = {
    1: ({"prefer": "z"}, {}, {}),
    2: ({}, {"body": COMPOSITION, "priority": 9}, {"kernel": "NpuKernel(),"}),
    3: ({}, {"kernel": "NpuKernel(),", "priority": 9}, {"kernel": "NpuKernel(entry={'float32': 'f'}),"}),
    4: ({"prefer": "acme", "kind": "overrides"}, {"priority": 9}, {}),
    5: ({}, {}, {"priority": 1}),
    6: ({}, None, {}),
}
"""Rule -> (environment, what `a` is like, what `z` is like); `z` wins, but by rule 6, without `a`."""


@pytest.mark.parametrize("rule", RIVALS)
def test_each_rule(site: Any, npu: None, monkeypatch: pytest.MonkeyPatch, rule: int) -> None:
    how, a, z = RIVALS[rule]
    site.plugin(how.get("kind", "ops"), "acme", scale(**(a or {})), name="a" if a is not None else "zz")
    site.plugin("ops", "acme", scale(**z), name="z")
    monkeypatch.setenv("DOVETAIL_PREFER", how.get("prefer", ""))
    shown = which("acme::Scale", "--device", "npu.1", "--dtype", "float32")
    assert (shown["winner"], shown["rule"], shown["reason"]) == ("z/ops/acme", rule, RULES[rule])
    first, second = shown["candidates"]
    assert (first["plugin"], first["lost_by_rule"], second["lost_by_rule"]) == ("z/ops/acme", None, rule)
    assert (shown["device"], shown["dtype"]) == ("NPU", "float32")
    text = run("which", "acme::Scale", "--device", "NPU", "--dtype", "float32").stdout
    assert f"Rule {rule}: {RULES[rule]}." in text
    assert re.search(r"used +z 1.0", text)
    assert re.search(rf"lost by rule {rule} +zz? 1.0|lost by rule {rule} +a 1.0", text)


def test_the_lines_that_it_prints_change_it(site: Any, npu: None, monkeypatch: pytest.MonkeyPatch, here: Path) -> None:
    site.plugin("ops", "acme", scale(), name="a")
    site.plugin("ops", "acme", scale(), name="z")
    text = run("which", "acme::Scale").stdout
    variable, _, value = re.search(r"set (\S+),", text)[1].partition("=")  # a missing line fails the test
    line = re.search(r"dovetail.yaml: (.*)", text)[1]
    assert which("acme::Scale")["winner"] == "a/ops/acme"
    (here / "dovetail.yaml").write_text(line)
    assert yaml.safe_load(line) == {"prefer": {"acme::Scale": "z"}}
    assert which("acme::Scale")["winner"] == "z/ops/acme"
    (here / "dovetail.yaml").unlink()
    monkeypatch.setenv(variable, value)
    assert (which("acme::Scale")["winner"], which("acme::Scale")["rule"]) == ("z/ops/acme", 1)


LAYERED = """
from dovetail.errors import UnknownOption
def configured(self, options):
    if set(options) - {"CONFIG_FILE"}:
        raise UnknownOption("VPU has no such option")
    self.names = tuple(options.get("CONFIG_FILE", ()))
    return self
Fake.configured = configured
Fake.prescribes = lambda self, domain, op_type: f"{domain}::{op_type}" in self.names
"""


@pytest.mark.parametrize("arguments", [("--device", "vpu"), ()])
def test_custom_layers(site: Any, device: Any, arguments: tuple[str, ...]) -> None:
    """Here the names of the files are those of the operators that they are for."""
    device("vpu", more=LAYERED)
    site.plugin("ops", "acme", scale(), name="a")
    shown = which("acme::Scale", "-c", "acme::Scale", *arguments)
    assert (shown["winner"], shown["rule"], shown["custom_kernel"], shown["device"]) == (
        "fake-devices-vpu/devices/vpu",
        1,
        "VPU",
        "VPU",
    )
    assert [c["lost_by_rule"] for c in shown["candidates"]] == [1]
    text = run("which", "acme::Scale", "-c", "acme::Scale", *arguments).stdout
    assert re.search(r"used +custom layer of VPU +kernel", text)
    assert "To choose another, leave the custom layer out." in text
    other = which("acme::Scale", "-c", "acme::Other", *arguments)
    assert (other["winner"], other["custom_kernel"]) == ("a/ops/acme", None)


def test_a_custom_layer_for_what_nothing_else_defines(
    site: Any, device: Any, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOVETAIL_TRUST_CONFIG", "1")
    site.standard_operators()
    device("vpu", more=LAYERED)
    (here / "dovetail.yaml").write_text("devices: {VPU: {CONFIG_FILE: ['acme::Mystery']}}")
    shown = which("acme::Mystery", "--device", "VPU")
    assert (shown["winner"], shown["candidates"]) == ("fake-devices-vpu/devices/vpu", [])
    assert "no operator acme::Mystery is known" in run("which", "acme::Mystery", code=1).stderr


def test_what_is_told_of_each_candidate(site: Any, npu: None) -> None:
    site.plugin("ops", "acme", scale(kernel="NpuKernel(entry={'float32': 'f', 'float16': 'g'}),"), name="a")
    site.plugin("ops", "acme", scale(body=COMPOSITION, since=3, priority=7), name="z")
    a, z = which("acme::Scale", "--device", "NPU")["candidates"]
    assert a == {
        "plugin": "a/ops/acme", "provider": "a 1.0", "since": 1, "until": None, "becomes": None, "runs_by": "kernel",
        "dtypes": ["float16", "float32"], "owner": True, "priority": 0, "lost_by_rule": None,
        "choose": "DOVETAIL_PREFER=acme::Scale=a",
    }  # fmt: skip
    assert (z["since"], z["runs_by"], z["dtypes"], z["priority"], z["lost_by_rule"]) == (3, "composition", None, 7, 2)
    first, second = which("acme::Scale", "--device", "NPU", "--dtype", "float64")["candidates"]
    assert (first["plugin"], second["runs_by"]) == ("z/ops/acme", "reference"), "a has no kernel for this type"
    assert [c["plugin"] for c in which("acme::Scale", "--opset", "2")["candidates"]] == ["a/ops/acme"]
    assert [c["runs_by"] for c in which("acme::Scale")["candidates"]] == [None, None]
    assert which("acme::Scale")["rule"] == 3


def test_one_definition(site: Any) -> None:
    site.standard_operators()
    site.plugin("ops", "acme", scale(), name="a")
    shown = which("acme::Scale")
    assert (shown["winner"], shown["rule"], shown["reason"]) == ("a/ops/acme", 0, "it is the only definition")
    assert "It is the only definition." in run("which", "acme::Scale").stdout
    assert which("ai.onnx::Conv")["operator"] == "Conv"
    assert which("Conv")["candidates"][0]["provider"].startswith("dovetail-ops-onnx ")


def test_different_schemas_are_not_decided(site: Any) -> None:
    site.plugin("ops", "acme", scale(), name="a")
    site.plugin("ops", "acme", scale(body=REFERENCE + "\n    alpha: float = 1.0"), name="z")
    shown = which("acme::Scale", code=1)
    assert (shown["winner"], shown["rule"]) == ("", 0)
    assert "attribute 'alpha' is missing in the one, float, default 1.0 in the other" in shown["reason"]
    assert [c["choose"] for c in shown["candidates"]] == ["DOVETAIL_PREFER=acme::Scale=a", "DOVETAIL_PREFER=acme::Scale=z"]
    assert "To choose one, set DOVETAIL_PREFER=acme::Scale=a or" in run("which", "acme::Scale", code=1).stdout


@pytest.fixture
def fast(site: Any) -> Path:
    """An override of Relu as a package; returns its folder."""
    folder: Path = site.folder / "fast_relu"
    folder.mkdir()
    implementation = 'from dovetail.hookspecs import hookimpl\ndovetail_api = "1.0"\nfrom dovetail_ops_onnx.relu import Relu\n'
    implementation += "class Mine(Relu):\n    op_type = 'Relu'\n    since = 14\n"
    implementation += "@hookimpl\ndef dovetail_register_ops(registry, domain):\n    registry.add(Mine)\n"
    (folder / "__init__.py").write_text(implementation)
    site.metadata("fast-relu", {"overrides": {"ai.onnx": "fast_relu"}})
    return folder


def test_an_override_that_is_not_in_use_is_shown_and_not_imported(site: Any, fast: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site.standard_operators()
    (idle,) = which("Relu")["idle"]
    assert (idle["plugin"], idle["state"], idle["defines"]) == ("fast-relu/overrides/ai.onnx", "opt-in", None)
    assert "not known: it has no manifest" in run("which", "Relu").stdout
    run("manifest", "fast-relu")
    assert (fast / FILE_NAME).is_file()
    (idle,) = which("Relu")["idle"]
    assert (idle["defines"], idle["hint"]) == (True, "prefer='fast-relu' or DOVETAIL_PREFER=fast-relu")
    assert which("Abs")["idle"] == []
    monkeypatch.setenv("DOVETAIL_PREFER", "fast-relu")
    shown = which("Relu")
    assert (shown["winner"], shown["rule"], shown["idle"]) == ("fast-relu/overrides/ai.onnx", 1, [])
    assert shown["candidates"][1]["choose"] == "DOVETAIL_PREFER=ai.onnx::Relu=dovetail-ops-onnx"
    monkeypatch.setenv("DOVETAIL_PREFER", "fast-relu,ai.onnx::Relu=dovetail-ops-onnx")
    assert which("Relu")["winner"] == "dovetail-ops-onnx/ops/ai.onnx"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("Convv",), 1, "Did you mean 'Conv'?"),
        (("acme::Scale",), 1, "no op pack of domain 'acme' is installed"),
        (("a b",), 2, "is not of the form DOMAIN::OP"),
        (("Conv", "--device", "NPUU"), 1, "Did you mean 'NPU'?"),
        (("Conv", "--dtype", "float31"), 1, "float31"),
        (("Conv", "--opset", "0"), 2, "--opset"),
    ],
)
def test_what_cannot_be_asked(site: Any, npu: None, arguments: tuple[str, ...], code: int, message: str) -> None:
    site.standard_operators()
    assert message in run("which", *arguments, code=code).stderr


# --- conflicts ------------------------------------------------------------------------------------------------------------


def conflicts(code: int = 0) -> dict[str, Any]:
    return {f"{c['kind']} {c['name']}": c for c in json.loads(run("conflicts", "--json", code=code).stdout)["conflicts"]}


def test_nothing_is_shared(site: Any, device: Any) -> None:
    device("npu", more="raise AssertionError('imported')")
    site.plugin("ops", "acme", "raise AssertionError('imported')", name="a")
    assert conflicts() == {}
    assert run("conflicts").stdout == "Decided: none\n\n"


def test_operators_that_several_packs_define(site: Any) -> None:
    two = scale() + "class Other(Scale):\n    op_type = 'Other'\n" + "    alpha: float = ALPHA\n"
    for name, alpha in (("a", 1), ("z", 2)):
        site.plugin("ops", "acme", two.replace("ALPHA", str(alpha)) + more_of("Other"), name=name)
    site.plugin("ops", "alone", scale("alone"), name="alone")
    found = conflicts(code=1)
    assert list(found) == ["operator acme::Other", "operator acme::Scale"]
    decided, open_one = found["operator acme::Scale"], found["operator acme::Other"]
    assert (decided["owners"], decided["winner"], decided["rule"]) == (["a 1.0", "z 1.0"], "a 1.0", 6)
    assert decided["hint"] == "DOVETAIL_PREFER=acme::Scale=z"
    assert (open_one["winner"], open_one["rule"]) == ("", 0)
    assert open_one["hint"] == "DOVETAIL_PREFER=acme::Other=a or DOVETAIL_PREFER=acme::Other=z"
    text = run("conflicts", code=1).stdout
    assert "operator acme::Other: DOVETAIL_PREFER=acme::Other=a or" in text
    assert re.search(r"operator acme::Scale +a 1.0 +rule 6: the name of the distribution", text)


def more_of(op_type: str) -> str:
    return f"\n@hookimpl\ndef dovetail_register_ops(registry, domain):\n    registry.add(Scale)\n    registry.add({op_type})\n"


def test_the_lines_of_conflicts_decide_them(site: Any, device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "z"):
        device("npu", name=f"{name}-npu")
        site.plugin("ops", "acme", scale(body=f"{REFERENCE}\n    {name}: int = 1"), name=name)
    found = conflicts(code=1)
    lines = [conflict["hint"].rpartition(" or ")[2] for conflict in found.values()]
    assert [name for name, c in found.items() if not c["winner"]] == ["device NPU", "operator acme::Scale"]
    monkeypatch.setenv("DOVETAIL_PREFER", ",".join(line.removeprefix("DOVETAIL_PREFER=") for line in lines))
    decided = conflicts()
    assert {name: (c["winner"], c["rule"]) for name, c in decided.items()} == {
        "device NPU": ("z-npu 1.0", 1), "operator acme::Scale": ("z 1.0", 1)
    }  # fmt: skip
    assert decided["device NPU"]["hint"] == "DOVETAIL_PREFER=a-npu"
    assert PluginManager().device_info("NPU").name == "NPU"


def test_model_formats_and_what_is_blocked(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = "@hookimpl\ndef dovetail_read_model(source, options): ..."
    for name in ("a", "z"):
        site.plugin("frontends", "zip", reader, name=name)
    (found,) = conflicts(code=1).values()
    assert (found["kind"], found["name"], found["owners"]) == ("model format", "zip", ["a 1.0", "z 1.0"])
    monkeypatch.setenv("DOVETAIL_PLUGINS", "-a")
    assert conflicts() == {}


def test_a_preferred_override_is_a_decided_conflict_and_one_not_in_use_is_none(
    site: Any, fast: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.standard_operators()
    assert conflicts() == {}
    monkeypatch.setenv("DOVETAIL_PREFER", "fast-relu")
    (found,) = conflicts().values()
    assert (found["name"], found["winner"], found["rule"]) == ("ai.onnx::Relu", "fast-relu 1.0", 1)
    assert found["hint"] == "DOVETAIL_PREFER=ai.onnx::Relu=dovetail-ops-onnx"


def test_a_pin_to_a_pack_without_the_operator_is_told(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    site.plugin("ops", "acme", scale(), name="a")
    site.plugin("ops", "acme", scale(op_type="Other"), name="z")
    monkeypatch.setenv("DOVETAIL_PREFER", "acme::Scale=z")
    found = conflicts(code=1)["operator acme::Scale"]
    assert "pins acme::Scale to 'z', which does not define it" in found["reason"]
    assert found["hint"] == "plugins that define it: a 1.0"
