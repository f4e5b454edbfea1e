"""Devices and model formats by name: only the plugin that is asked for is imported, and a failure to load it is reported."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import dovetail
from dovetail.cli._devices import describe_devices
from dovetail.errors import (
    DeviceError,
    DeviceNotFound,
    DeviceUnavailable,
    FormatError,
    PluginConflict,
    PluginError,
    PluginFailed,
    UnknownFormat,
)
from dovetail.hookspecs import hookimpl
from dovetail.plugins import PluginManager


def infos(*names: str, type_: str = "ACME", priority: int = 0) -> str:
    return "[" + ", ".join(f"DeviceInfo({name!r}, {type_!r}, 'NPU', 'x', {priority})" for name in names) + "]"


def test_only_the_plugin_asked_for_is_imported(device: Any) -> None:
    device("acme")
    device("other")
    manager = PluginManager()
    assert manager.device_info("aCmE").name == "ACME"
    assert "fake_devices_other" not in sys.modules
    assert manager.record("other").state == "found"
    assert manager.record("acme").provides == ("ACME",)


def test_devices_by_number(device: Any) -> None:
    device("acme", infos=infos("ACME.0", "ACME.1", "ACME.10", "ACME.2"))
    manager = PluginManager()
    assert [manager.device_info(name).name for name in ("ACME", "acme.0", " ACME.10 ")] == ["ACME.0", "ACME.0", "ACME.10"]
    with pytest.raises(DeviceNotFound, match=r"unknown device 'ACME.7'") as caught:
        manager.device_info("ACME.7")
    assert caught.value.hint == "devices of this type: ACME.0, ACME.1, ACME.10, ACME.2"
    assert [info.name for info in manager.devices()] == ["ACME.0", "ACME.1", "ACME.2", "ACME.10"]


def test_devices_are_sorted_by_priority_then_name(device: Any) -> None:
    for type_, priority in (("bbb", 1), ("aaa", 1), ("zzz", 9)):
        device(type_, infos=infos(type_.upper(), type_=type_.upper(), priority=priority))
    assert [info.name for info in PluginManager().devices()] == ["ZZZ", "AAA", "BBB"]


def test_each_plugin_is_probed_once_with_the_configuration(device: Any) -> None:
    device("acme")
    manager = PluginManager(config={"devices": {"acme": {"SPEED": 1}}})
    for _ in range(2):
        manager.devices()
        manager.device_info("ACME")
        manager.open_device("ACME", {})
    assert [dict(config) for config in sys.modules["fake_devices_acme"].probes] == [{"devices": {"ACME": {"SPEED": 1}}}]


def test_a_device_that_is_not_there_is_unavailable_and_says_what_to_do(device: Any) -> None:
    device("acme", infos="Unavailable('no driver', 'apt install acme')")
    device("good")
    manager = PluginManager()
    assert [info.name for info in manager.devices()] == ["GOOD"]
    for ask in (manager.device_info, lambda name: manager.open_device(name, {})):
        with pytest.raises(DeviceUnavailable, match=r"device ACME \(fake-devices-acme 1.0\) is unavailable: no driver") as caught:
            ask("ACME.3")
        assert caught.value.hint == "apt install acme"
    record = manager.record("acme")
    assert (record.state, record.reason, record.hint) == ("unavailable", "no driver", "apt install acme")
    assert len(sys.modules["fake_devices_acme"].probes) == 1


def test_a_device_asked_for_by_name_fails_loudly_with_the_stored_cause(device: Any) -> None:
    device("acme", infos="1 / 0")
    device("good")
    manager = PluginManager()
    assert [info.name for info in manager.devices()] == ["GOOD"]
    assert manager.record("acme").state == "failed"
    assert "ZeroDivisionError" in manager.record("acme").traceback
    with pytest.raises(PluginFailed, match="dovetail_device_info raised ZeroDivisionError: division by zero") as caught:
        manager.device_info("ACME")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_probe_that_exits_does_not_take_the_host_along(device: Any) -> None:
    device("acme", infos="__import__('sys').exit(3)", opens="raise SystemExit(4)")
    device("other", opens="raise SystemExit(4)")
    manager = PluginManager()
    assert [info.name for info in manager.devices()] == ["OTHER"]
    assert manager.record("acme").reason == "dovetail_device_info raised SystemExit: 3"
    with pytest.raises(PluginFailed, match="raised SystemExit: 4"):
        manager.open_device("OTHER", {})


def test_long_texts_of_errors_are_shortened(device: Any) -> None:
    device("acme", infos="{}[5000 * 'x']")
    manager = PluginManager()
    with pytest.raises(PluginFailed, match=r"raised KeyError: 'x{999}\.\.\. \(5,002 characters\)$") as caught:
        manager.device_info("ACME")
    assert len(str(caught.value)) < 1200
    assert len(str(caught.value.__cause__)) > 5000


def test_an_unknown_device_gets_a_suggestion(device: Any) -> None:
    device("acme")
    with pytest.raises(DeviceNotFound, match=r"no installed plugin provides the device 'AMCE.1'") as caught:
        PluginManager().device_info("AMCE.1")
    assert caught.value.hint.startswith("Did you mean 'ACME'?")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("None", "returned None"),
        ("'ACME'", "returned 'ACME'"),
        ("[3]", "returned [3]"),
        ("[]", "returned no device"),
        ("Unavailable('', 'buy one')", "returned Unavailable(reason='', hint='buy one'), which gives no reason"),
        ("Unavailable(None)", "returned Unavailable(reason=None, hint=''), which gives no reason"),
        (infos("OTHER", type_="OTHER"), "names a device 'OTHER' of type 'OTHER'"),
        (infos("OTHER"), "names a device 'OTHER' of type 'ACME'"),
        (infos("ACME.x"), "names a device 'ACME.x'"),
        (infos("ACME."), "names a device 'ACME.'"),
        (infos("ACME.1", "ACME.1"), "names a device 'ACME.1'"),
    ],
)
def test_a_wrong_answer_fails_the_plugin(device: Any, answer: str, reason: str) -> None:
    device("acme", infos=answer)
    manager = PluginManager()
    assert manager.devices() == ()
    assert reason in manager.record("acme").reason
    assert manager.record("acme").state == "failed"


def test_opening_passes_the_device_and_the_options(device: Any) -> None:
    device("acme")
    opened: Any = PluginManager().open_device("acme", {"THREADS": 2})
    assert (opened.info.name, opened.options) == ("ACME", {"THREADS": 2})


def test_an_error_while_opening_names_the_plugin_and_keeps_dovetails_own_errors(device: Any) -> None:
    device("acme", opens="1 / 0")
    device("own", opens="raise DeviceError('busy')")
    device("none", opens="return None")
    manager = PluginManager()
    with pytest.raises(PluginFailed, match="opening ACME with fake-devices-acme/devices/acme raised ZeroDivisionError"):
        manager.open_device("ACME", {})
    with pytest.raises(DeviceError, match=r"^busy$"):
        manager.open_device("OWN", {})
    with pytest.raises(PluginFailed, match=r"returned None, which is not a dovetail.device.Device"):
        manager.open_device("NONE", {})
    assert manager.record("acme").state == "loaded", "it may work next time"


# --- two packages with the same device --------------------------------------------------------------------------------


def test_the_same_entry_name_from_two_distributions_is_a_conflict(device: Any, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("two", "one"):
        device("acme", name=name)
    device("good")
    manager = PluginManager()
    record = manager.record("one")
    assert (record.state, record.reason) == ("found", "device 'acme' is provided by one 1.0 and by two 1.0")
    for _ in range(2):
        assert [info.name for info in manager.devices()] == ["GOOD"]
    assert len(caplog.records) == 1, "reported once"
    with pytest.raises(PluginConflict, match=r"device 'acme' is provided by one 1.0 and by two 1.0") as caught:
        manager.device_info("ACME")
    assert caught.value.hint == "choose with prefer= or DOVETAIL_PREFER=one or DOVETAIL_PREFER=two"
    assert not {"one", "two"} & set(sys.modules)


@pytest.mark.parametrize("arguments", [{"prefer": ["two"]}, {"plugins": "-one"}, {"prefer": ["two", "one"]}])
def test_a_conflict_is_settled_by_the_user(device: Any, arguments: Any) -> None:
    for name in ("two", "one"):
        device("acme", name=name)
    manager = PluginManager(**arguments)
    assert manager.device_info("ACME").name == "ACME"
    assert manager.record("two").state == "loaded"
    assert manager.record("one").state in ("found", "blocked")
    assert "two" in manager.record("one").reason or manager.record("one").state == "blocked"
    assert manager.record("two").reason == ""


def test_a_preferred_device_that_fails_is_not_replaced_by_its_rival(site: Any, device: Any) -> None:
    device("acme", name="works")
    site.plugin("devices", "acme", "raise ValueError('boom')", name="broken")
    site.plugin("devices", "acme", "", name="old", requires=["dovetail<0.1"])
    for preferred in ("broken", "old"):
        manager = PluginManager(prefer=[preferred])
        for _ in range(2):
            with pytest.raises(PluginError, match=preferred):
                manager.device_info("ACME")


def test_a_rival_of_the_wrong_version_does_not_count(site: Any, device: Any) -> None:
    device("acme", name="works")
    site.plugin("devices", "acme", "", name="old", requires=["dovetail<0.1"])
    assert PluginManager().device_info("ACME").name == "ACME"


def test_a_device_in_process_replaces_an_installed_one_that_was_probed(device: Any) -> None:
    device("acme")
    manager = PluginManager()
    assert manager.device_info("ACME").full_name == "a fake device"
    source = sys.modules["fake_devices_acme"]
    mine: Any = ModuleType("mine")
    vars(mine).update({name: getattr(source, name) for name in ("dovetail_api", "dovetail_device_open", "DeviceInfo")})
    mine.dovetail_device_info = hookimpl(eval("lambda: [DeviceInfo('ACME', 'ACME', 'CPU', 'mine')]", vars(mine)))
    manager.register(mine, name="mine", kind="devices", key="ACME")
    assert manager.device_info("ACME").full_name == "mine"
    assert [info.full_name for info in manager.devices()] == ["mine"]


# --- model formats ----------------------------------------------------------------------------------------------------

READER = """
from dovetail.errors import FormatError
from dovetail.graph import Graph, Model
calls = []
@hookimpl
def dovetail_read_model(source, options):
    calls.append((source, options))
    return Model(Graph((), (), ()))
"""


def test_a_model_is_read_by_the_frontend_of_its_suffix(site: Any) -> None:
    site.plugin("frontends", "acme", READER)
    site.plugin("frontends", "other", "raise AssertionError('imported')")
    manager = PluginManager()
    assert manager.formats() == ("acme", "other")
    manager.read_model(Path("a.ACME"), "ACME", {"x": 1})
    manager.read_model(b"bytes", ".acme", {})
    assert sys.modules["fake_frontends_acme"].calls == [(Path("a.ACME"), {"x": 1}), (b"bytes", {})]
    assert "fake_frontends_other" not in sys.modules


def test_a_file_of_plans_is_no_format_and_says_what_runs_it() -> None:
    with pytest.raises(UnknownFormat, match=r"(?s)a file of plans is not a model file.*Core\.import_model"):
        dovetail.Core(config=False).compile_model("digits.plans")


def test_an_unknown_suffix_names_the_known_ones_and_those_out_of_order(site: Any) -> None:
    site.plugin("frontends", "acme", READER)
    site.plugin("frontends", "zip", READER)
    with pytest.raises(UnknownFormat, match=r"no installed frontend reads \.amce files") as caught:
        PluginManager(plugins="-zip").read_model(b"", "amce", {})
    assert caught.value.hint == (
        "Did you mean 'acme'? zip: fake-frontends-zip 1.0 is blocked (switched off by plugins=). "
        "Packages add formats by entry points of dovetail.frontends; for ours, pip install 'dovetail[all]'."
    )


def test_errors_of_a_frontend(site: Any) -> None:
    site.plugin("frontends", "bad", READER.replace("return Model", "raise ValueError('odd')\n    return Model"))
    site.plugin("frontends", "own", READER.replace("return Model", "raise FormatError('not mine')\n    return Model"))
    site.plugin("frontends", "none", READER.replace("return Model(", "print("))
    manager = PluginManager()
    with pytest.raises(PluginFailed, match=r"reading x.bad with fake-frontends-bad/frontends/bad raised ValueError: odd"):
        manager.read_model(Path("x.bad"), "bad", {})
    with pytest.raises(FormatError, match=r"^not mine$"):
        manager.read_model(b"", "own", {})
    with pytest.raises(PluginFailed, match=r"returned None, which is not a dovetail.graph.Model"):
        manager.read_model(b"", "none", {})
    assert manager.record("bad").state == "loaded", "the file may be at fault"


WRONG_MODEL = """
from dovetail.graph import Graph, Model, Node, TensorType
from dovetail.op import DType, UnboundOperator

X = TensorType(DType.FLOAT32, (2, 3))
RELU = UnboundOperator("", "Relu", 14, {{}})

@hookimpl
def dovetail_read_model(source, options):
    return Model({})
"""


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        ("None", "the graph is None; accepted: a Graph"),
        ("Graph((7,), ('x',), ('y',), types={'x': X})", "the nodes of the graph have 7; accepted: a tuple of Node"),
        ("Graph((), 'x', ('x',), types={'x': X})", "the inputs of the graph are 'x'; accepted: a tuple of str"),
        ("Graph((), ('x',), ('x',))", "the graph has no type for 'x'"),
        ("Graph((), ('x',), ('x',), types={'x': 'float32'})", "have 'float32' for 'x'; accepted: TensorType"),
        ("Graph((), ('x',), ('x',), {'c': 7}, {'x': X, 'c': X})", "have 7 for 'c'; accepted: ndarray"),
        ("Graph((Node('n', 7, ('x',), ('y',)),), ('x',), ('y',), types={'x': X})", "the name 'n' and the operator 7"),
        ("Graph((Node('n', RELU, (7,), ('y',)),), ('x',), ('y',), types={'x': X})", "the inputs of node n (Relu) have 7"),
        ("Graph((Node('n', RELU, ('x',), 'y'),), ('x',), ('y',), types={'x': X})", "the outputs of node n (Relu) are 'y'"),
    ],
)
def test_a_frontend_whose_model_is_not_valid_is_named(site: Any, graph: str, message: str) -> None:
    site.plugin("frontends", "odd", WRONG_MODEL.format(graph))
    with pytest.raises(PluginFailed) as caught:
        PluginManager().read_model(b"", "odd", {})
    where = "dovetail_read_model of fake-frontends-odd/frontends/odd returned a model that is not valid: "
    assert str(caught.value).startswith(where)
    assert message in str(caught.value).replace("node 'n'", "node n")


def test_the_command_lists_a_device_with_two_providers_once(device: Any) -> None:
    for name in ("two", "one"):
        device("acme", name=name)
    (missing,) = describe_devices(dovetail.Core())["missing"]
    assert (missing["device"], missing["state"]) == ("ACME", "conflict")
    assert missing["plugin"] == "one/devices/acme, two/devices/acme"
    assert describe_devices(dovetail.Core(prefer=["two"]))["missing"] == []
