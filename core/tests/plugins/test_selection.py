"""Allow and block lists, preferences, and where they are taken from. None of it imports a plugin."""

import sys
from typing import Any

import pytest

from dovetail.errors import PluginBlocked, PluginNotFound, UsageError
from dovetail.plugins import PluginManager


@pytest.fixture
def three(site: Any) -> Any:
    """Three plugins whose modules raise when they are imported."""
    for name, kind, key in (("acme-npu", "devices", "acme"), ("acme-ops", "ops", "com.acme"), ("zip-reader", "frontends", "zip")):
        site.metadata(name, {kind: {key: f"exploding_{kind}"}})
        site.module(f"exploding_{kind}", "raise SystemExit('imported')")
    return site


def blocked(**arguments: Any) -> list[str]:
    return [r.key for r in PluginManager(**arguments).records() if r.state == "blocked"]


@pytest.mark.parametrize(
    ("switch", "expected"),
    [
        (None, []),
        ("all", []),
        ("none", ["acme", "com.acme", "zip"]),
        ("acme", ["com.acme", "zip"]),
        ("ACME , zip-reader", ["com.acme"]),
        ("acme-ops/ops/com.acme", ["acme", "zip"]),
        ("-acme", ["acme"]),
        ("-Acme_Ops,-zip", ["com.acme", "zip"]),
        (["-acme", "-zip"], ["acme", "zip"]),
    ],
)
def test_the_grammar(three: Any, switch: Any, expected: list[str]) -> None:
    assert blocked(plugins=switch) == expected
    assert blocked(config={} if switch is None else {"plugins": switch}) == expected


@pytest.mark.parametrize("switch", ["", "a,-b", "all,acme", "-", "-acme,none", "acme,,zip", ",", 7, ["acme", 7]])
def test_what_the_grammar_refuses(three: Any, switch: Any) -> None:
    with pytest.raises(UsageError, match="plugins=") as caught:
        PluginManager(plugins=switch)
    assert "-a,-b" in caught.value.hint


def test_argument_over_environment_over_configuration(three: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"plugins": "-zip"}
    for empty in ("", "  "):
        monkeypatch.setenv("DOVETAIL_PLUGINS", empty)
        assert blocked(config=config) == ["zip"]
    monkeypatch.setenv("DOVETAIL_PLUGINS", "-com.acme")
    assert blocked(config=config) == ["com.acme"]
    assert blocked(plugins="-acme", config=config) == ["acme"]


@pytest.mark.parametrize(
    "arguments", [{"plugins": "-amce"}, {"plugins": "amce"}, {"prefer": ["amce"]}, {"config": {"prefer": "amce"}}]
)
def test_an_unknown_name_is_an_error_with_a_suggestion(three: Any, arguments: Any) -> None:
    with pytest.raises(PluginNotFound, match="amce") as caught:
        PluginManager(**arguments)
    assert caught.value.hint == "Did you mean 'acme'?"


def test_the_environment_is_named_in_the_error_for_an_unknown_name(three: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_PREFER", "acme-npu/devices/amce")
    with pytest.raises(PluginNotFound, match="named by DOVETAIL_PREFER") as caught:
        PluginManager()
    assert caught.value.hint == "Did you mean 'acme-npu/devices/acme'?"


def test_a_blocked_plugin_is_not_imported_and_says_who_blocked_it(three: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_PLUGINS", "-acme")
    manager = PluginManager()
    with pytest.raises(PluginBlocked, match="switched off by DOVETAIL_PLUGINS") as caught:
        manager.device_info("ACME")
    assert caught.value.hint == "take '-acme' out of DOVETAIL_PLUGINS"
    assert manager.devices() == ()
    assert "exploding_devices" not in sys.modules
    assert manager.record("acme").state == "blocked"


def test_an_allow_list_names_the_line_that_admits_the_plugin(three: Any) -> None:
    with pytest.raises(PluginBlocked) as caught:
        PluginManager(plugins="acme").read_model(b"", "zip", {})
    assert caught.value.hint == "add 'zip' to plugins="


def test_the_essential_device_cannot_be_blocked(three: Any) -> None:
    three.metadata("the-essential", {"devices": {"numpy": "exploding_devices"}})
    assert "numpy" not in blocked(plugins="none")
    assert "numpy" not in blocked(plugins="acme")
    with pytest.raises(UsageError, match="cannot be"):
        PluginManager(plugins="-numpy")


def test_of_two_essential_devices_one_can_be_blocked(three: Any) -> None:
    three.metadata("the-essential", {"devices": {"numpy": "exploding_devices"}})
    three.metadata("impostor", {"devices": {"numpy": "exploding_devices"}})
    manager = PluginManager(plugins="-impostor")
    assert manager.record("impostor").state == "blocked"
    assert manager.record("the-essential").state == "found"


def test_an_override_is_opt_in_until_it_is_preferred(three: Any) -> None:
    three.metadata("faster", {"overrides": {"com.acme": "exploding_overrides"}})
    record = PluginManager().record("faster")
    assert record.state == "opt-in"
    assert "DOVETAIL_PREFER=faster" in record.hint
    assert PluginManager(prefer=["faster"]).record("faster").state == "found"
    assert PluginManager(plugins="-faster", prefer=["faster"]).record("faster").state == "blocked"


def test_records_answer_to_id_distribution_and_entry_name(three: Any) -> None:
    manager = PluginManager()
    assert {manager.record(name).id for name in ("acme", "ACME", "Acme_NPU", "acme-npu/devices/acme")} == {
        "acme-npu/devices/acme"
    }
    with pytest.raises(PluginNotFound, match="no installed plugin is called 'acmee'"):
        manager.record("acmee")
