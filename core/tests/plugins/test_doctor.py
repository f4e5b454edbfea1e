"""`dovetail plugins doctor` and `dovetail plugins test` on fake plugins: the real commands, in processes of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dovetail.cache import FileCache, cache_key

DEVICE = """
    import numpy as np
    from dovetail.hookspecs import hookimpl
    from dovetail.device import Accepted, Device, DeviceInfo, Reason, Refusal
    from dovetail.device import Executable, ExecutableRequest, NodeReport, plan_graph

    dovetail_api = "1.0"
    PLUS_ONE = {plus_one!r}

    class Request(ExecutableRequest):
        def __init__(self, graph):
            self.graph = graph

        def run(self, inputs):
            values = dict(self.graph.constants) | dict(zip(self.graph.inputs, inputs))
            for node in self.graph.nodes:
                result = node.op.reference(*(values[name] for name in node.inputs))
                values[node.outputs[0]] = result + 1 if node.op.op_type == PLUS_ONE else result
            return [values[name] for name in self.graph.outputs]

    class Made(Executable):
        def __init__(self, graph):
            self.graph, self.memory = graph, plan_graph(graph, lambda node: ())
            self.reports = tuple(NodeReport(node.name, node.op.key, "fake") for node in graph.nodes)

        def create_request(self):
            return Request(self.graph)

    class Fake(Device):
        def __init__(self, info):
            self.info = info

        def supports(self, node):
            known = node.op.op_type in ("Add", "Mul", "Neg", "Relu") and not node.post_ops
            return Accepted("fake") if known else Refusal(Reason.OPERATOR, node.op.key)

        def compile(self, graph, options):
            return Made(graph)

    @hookimpl
    def dovetail_device_info(config):
        {probe}
        return [DeviceInfo({name!r}, {name!r}, "CPU", "a fake device")]

    @hookimpl
    def dovetail_device_open(info, options):
        return Fake(info)
"""


def device(name: str, *, plus_one: str = "", probe: str = "pass") -> str:
    return DEVICE.format(name=name.upper(), plus_one=plus_one, probe=probe)


def run_command(site: Any, *arguments: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, plugin id -> its entry in `--json`, and stderr, of `dovetail plugins ...` with the fake distributions."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site.folder), *sys.path])}
    command = [sys.executable, "-m", "dovetail", "plugins", *arguments, "--json"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600, check=False)
    plugins = json.loads(done.stdout)["plugins"] if done.stdout else []
    return done.returncode, {p.get("id") or p["subject"]: p for p in plugins}, done.stderr


def reasons(plugin: dict[str, Any]) -> str:
    return "; ".join(finding["reason"] for finding in plugin["findings"])


def install(site: Any, kind: str = "devices", **modules: str) -> None:
    """One distribution, `fakes`, with a plugin for each module."""
    site.metadata("fakes", {kind: {key: f"fake_{key}" for key in modules}})
    for key, source in modules.items():
        site.module(f"fake_{key}", source)


def test_a_plugin_that_prints_at_import(site: Any) -> None:
    install(site, loud=device("loud").replace("import numpy", "print('hello from it')\n    import numpy"))
    code, found, _ = run_command(site, "info", "loud")
    assert code == 0
    assert found["fakes/devices/loud"]["state"] == "loaded"
    code, found, _ = run_command(site, "doctor", "fakes", "--timeout", "600")
    assert code == 0
    assert found["fakes/devices/loud"]["verdict"] == "WARN"
    assert "it prints while it is imported: hello from it" in reasons(found["fakes/devices/loud"])


def test_four_devices(site: Any) -> None:
    site.module("heavy_library", "import time\ntime.sleep(0.4)")
    install(
        site,
        healthy=device("healthy"),
        slow=device("slow").replace("import numpy", "import heavy_library\n    import numpy"),
        crashes=device("crashes", probe="import ctypes; ctypes.string_at(0)"),
        lies=device("lies", plus_one="Mul"),
    )
    code, found, _ = run_command(site, "doctor", "fakes", "--timeout", "600")
    assert code == 1
    said = {key.rpartition("/")[2]: plugin for key, plugin in found.items()}
    assert {key: plugin["verdict"] for key, plugin in said.items()} == {
        "healthy": "OK",
        "slow": "WARN",
        "crashes": "FAIL",
        "lies": "FAIL",
    }
    assert said["healthy"]["findings"] == []
    assert said["healthy"]["facts"]["provides"] == ["HEALTHY"]
    assert said["healthy"]["facts"]["checking what HEALTHY claims"]["passed"] == 4
    assert "heavy_library" in said["slow"]["facts"]["heavy_imports"]
    assert "heavy_library" in reasons(said["slow"])
    assert "heavy_library" not in said["healthy"]["facts"]["heavy_imports"]
    assert "crashes: SIGSEGV while registering its hooks and probing its devices" in reasons(said["crashes"])
    assert "fake_crashes.py" in said["crashes"]["traceback"]
    assert "Mul (mul-" in reasons(said["lies"])
    assert "Add (" not in reasons(said["lies"])


def test_a_device_that_hangs(site: Any) -> None:
    """On a busy machine the time may be up before the hooks are asked."""
    install(site, hangs=device("hangs", probe="import time; time.sleep(3600)"))
    code, found, _ = run_command(site, "doctor", "fakes", "--timeout", "5")
    (plugin,) = found.values()
    assert (code, plugin["verdict"]) == (1, "FAIL")
    assert reasons(plugin).startswith("it hangs: no end after 5 s while ")


PACK = """
    from dovetail.hookspecs import hookimpl
    from dovetail.op import FLOATS, Operator, OperatorError

    dovetail_api = "1.0"

    class Turn(Operator):
        "y is x transposed."
        domain = "com.acme"
        inputs = ("X: T",)
        outputs = ("Y: T",)
        types = {{"T": FLOATS}}

        def infer(self, X):
            return X.with_shape({shape})

        def reference(self, X):
            return {result}
        {more}

    @hookimpl
    def dovetail_register_ops(registry, domain):
        registry.add(Turn)
"""
CASES = """
        @classmethod
        def cases(cls, rng):
            import numpy as np
            from dovetail.testing import Case
            x = rng.random((2, 3)).astype(np.float32)
            yield Case("float32", cls(), (x,), (np.stack([x[0], x[1]], axis=1),))
"""


@pytest.mark.parametrize(
    ("shape", "more", "verdict", "reason"),
    [
        ("X.shape[::-1]", CASES, "OK", ""),
        ("X.shape[::-1]", "", "WARN", "1 of 1 operators have no cases (com.acme::Turn)"),
        ("X.shape", CASES, "FAIL", "infer() gives float32[2, 3] for output 0, expected float32[3, 2]"),
        ("X.shape", "", "FAIL", "reference() gives float32[3, 2], infer() says float32[2, 3]"),
        ("X.shape", "PICKY", "WARN", "have no cases"),
    ],
)
def test_packs(site: Any, shape: str, more: str, verdict: str, reason: str) -> None:
    site.metadata("fakes", {"ops": {"com.acme": "fake_pack"}})
    # What an operator refuses in words of its own is not a fault.
    result = "(_ for _ in ()).throw(OperatorError('values out of range'))" if more == "PICKY" else "X.T"
    site.module("fake_pack", PACK.format(shape=shape, more="" if more == "PICKY" else more, result=result))
    code, found, _ = run_command(site, "doctor", "com.acme")
    plugin = found["fakes/ops/com.acme"]
    assert (code, plugin["verdict"]) == (int(verdict == "FAIL"), verdict)
    assert reason in reasons(plugin)


@pytest.mark.parametrize(("kind", "domain"), [("ops", "com.acme"), ("overrides", "ai.onnx"), ("supplements", "ai.onnx")])
def test_stages_of_a_pack(site: Any, kind: str, domain: str) -> None:
    """Every kind of pack is examined as a pack; facts are named by the stages."""
    source = PACK.format(shape="X.shape[::-1]", more=CASES, result="X.T").replace("com.acme", domain.replace("ai.onnx", ""))
    site.standard_operators()
    site.metadata("fakes", {kind: {domain: "fake_pack"}})
    site.module("fake_pack", source)
    code, found, printed = run_command(site, "doctor", "fakes")
    assert code == 0, printed
    (plugin,) = found.values()
    assert {name for name, counts in plugin["facts"].items() if "passed" in str(counts)} == {
        "looking at its operators",
        "comparing references with inference and cases",
        "running each operator on NUMPY",
    }


def test_other_ends(site: Any) -> None:
    install(
        site,
        leaves="import os\nos._exit(7)",
        raises="raise ImportError('no libacme.so')",
        absent=device("absent", probe="from dovetail.device import Unavailable; return Unavailable('no card', 'buy one')"),
        idle=device("idle").replace('("Add", "Mul", "Neg", "Relu")', "()"),
    )
    code, found, _ = run_command(site, "doctor", "fakes")
    assert code == 1
    said = {key.rpartition("/")[2]: (plugin["verdict"], reasons(plugin)) for key, plugin in found.items()}
    assert said["leaves"] == ("FAIL", "it ends the process with exit code 7 while importing fake_leaves")
    assert said["raises"][0] == "FAIL"
    assert "no libacme.so" in said["raises"][1]
    assert "no libacme.so" in found["fakes/devices/raises"]["traceback"]
    assert said["absent"] == ("WARN", "installed, but unavailable here: no card")
    assert said["idle"] == ("WARN", "IDLE claims none of the standard operators")


def test_what_metadata_tells_needs_no_import(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    site.plugin("devices", "old", "raise SystemExit('imported')", requires=("dovetail>=99",))
    site.plugin("devices", "off", "raise SystemExit('imported')")
    monkeypatch.setenv("DOVETAIL_PLUGINS", "-off")
    for key, verdict, reason in (("old", "FAIL", "needs dovetail>=99"), ("off", "WARN", "switched off by DOVETAIL_PLUGINS")):
        code, found, _ = run_command(site, "doctor", key)
        (plugin,) = found.values()
        assert (code, plugin["verdict"]) == (int(verdict == "FAIL"), verdict)
        assert reason in reasons(plugin)
        assert "import_seconds" not in plugin["facts"]


def test_a_frontend(site: Any) -> None:
    good = "from dovetail.errors import FormatError, UsageError\n\n@hookimpl\ndef dovetail_read_model(source, options):\n"
    good += (
        "    if options:\n        raise UsageError(f'unknown option {list(options)}')\n    raise FormatError(f'{source}: no')\n"
    )
    site.plugin("frontends", "good", good)
    site.plugin("frontends", "bad", "@hookimpl\ndef dovetail_read_model(source, options):\n    return source[10**6]\n")
    assert run_command(site, "doctor", "good")[0] == 0
    code, found, _ = run_command(site, "doctor", "bad")
    assert code == 1
    assert "PluginFailed instead of FormatError" in reasons(found["fake-frontends-bad/frontends/bad"])


def test_hooks(site: Any) -> None:
    source = "from dovetail.passes import GraphPass\n@hookimpl\ndef dovetail_graph_passes(options):\n"
    source += "    return [GraphPass('mine', 'recognise', lambda graph, context: {})]\n"
    site.standard_operators()
    site.plugin("hooks", "good", source.format("graph"))
    site.plugin("hooks", "bad", source.format("graph.replace(outputs=graph.outputs[::-1][:1] * len(graph.outputs))"))
    assert run_command(site, "doctor", "good")[0] == 0
    code, found, _ = run_command(site, "doctor", "bad")
    assert code == 1
    assert "random-" in reasons(found["fake-hooks-bad/hooks/bad"])


def test_an_unknown_name(site: Any) -> None:
    site.plugin("devices", "healthy", device("healthy"))
    for command in ("doctor", "test"):
        code, _, printed = run_command(site, command, "heathy")
        assert code == 1
        assert "Did you mean 'healthy'?" in printed


def test_the_kit_on_an_installed_plugin(site: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads what is in the cache, and adds none of its many kernels."""
    monkeypatch.delenv("DOVETAIL_CACHE_LIMIT", raising=False)
    monkeypatch.setenv("DOVETAIL_CACHE_DIR", str(tmp_path / "cache"))
    FileCache("fake").put(cache_key("there"), b"kept")
    keeps = "from dovetail.cache import FileCache, cache_key; cache = FileCache('fake'); cache.put(cache_key('new'), b'x'); "
    reads = "assert cache.get(cache_key('there')) == b'kept'"
    install(site, healthy=device("healthy", probe=keeps + reads))
    code, found, _ = run_command(site, "test", "healthy")
    assert code == 0
    healthy = found["fakes/devices/healthy"]
    assert healthy["ok"]
    assert healthy["table"]["Mul"]["float32"].keys() == {"passed"}
    assert healthy["table"]["Sin"]["float32"].keys() == {"refused"}
    assert FileCache("fake").get(cache_key("new")) is None
    run_command(site, "info", "healthy")
    assert FileCache("fake").get(cache_key("new")) == b"x"


def test_the_kit_on_a_second_device_that_lies(site: Any) -> None:
    """A plugin's name means its first device; the second one has its own name."""
    second = (
        device("lies", plus_one="Mul")
        .replace("[DeviceInfo(", '[DeviceInfo("LIES.0", "LIES", "CPU", "first"), DeviceInfo(')
        .replace("'LIES', 'LIES', \"CPU\"", "'LIES.1', 'LIES', \"CPU\"")
    )
    assert "LIES.1" in second
    install(site, lies=second)
    code, shown, _ = run_command(site, "test", "lies.1")
    assert (code, list(shown)) == (1, ["LIES.1"])
    assert shown["LIES.1"]["table"]["Mul"]["float32"]["failed"] > 3
    assert shown["LIES.1"]["table"]["Add"]["float32"].keys() == {"passed"}
    code, shown, error = run_command(site, "test", "lies.2")
    assert (code, shown) == (1, {})
    assert "unknown device 'lies.2'" in error


def test_the_kit_on_a_plugin_that_cannot_be_loaded(site: Any) -> None:
    install(site, raises="raise ImportError('no libacme.so')")
    code, found, printed = run_command(site, "test", "raises")
    assert (code, found) == (1, {})
    assert "no libacme.so" in printed


def test_a_device_that_does_not_open_is_one_finding(site: Any) -> None:
    install(site, shut=device("shut").replace("return Fake(info)", "raise OSError('no driver')"))
    code, found, _ = run_command(site, "doctor", "fakes", "--timeout", "600")
    assert code == 1
    assert reasons(found["fakes/devices/shut"]) == "PluginFailed: opening SHUT with fakes/devices/shut raised OSError: no driver"
    code, found, printed = run_command(site, "test", "shut")
    assert (code, found) == (1, {})
    assert printed.count("no driver") == 1
