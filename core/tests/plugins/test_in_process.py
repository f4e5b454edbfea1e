"""`register` and `temporary`: plugins that are not installed, in every Core of the process."""

from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.device import Device, DeviceInfo, Reason, Refusal
from dovetail.errors import DeviceNotFound, PluginFailed, PluginIncompatible, UnknownOperator, UsageError
from dovetail.op import Operator
from dovetail.plugins import PluginManager, in_process, register, temporary
from dovetail_ops_onnx.relu import Relu


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    """Whatever a test registers is gone after it."""
    yield
    for registration in tuple(in_process._registered.values()):
        in_process._take_away(registration.record)


def pack(*classes: type[Operator], name: str = "notebook") -> ModuleType:
    module = ModuleType(name)

    @dovetail.hookimpl
    def dovetail_register_ops(registry: Any) -> None:
        for cls in classes:
            registry.add(cls)

    vars(module).update(dovetail_api="1.0", dovetail_register_ops=dovetail_register_ops)
    return module


class First(Operator):
    domain = "acme"
    op_type = "Twist"


class Second(Operator):
    domain = "acme"
    op_type = "Twist"


def twist(manager: PluginManager) -> type[Operator]:
    return manager.operator("acme", "Twist", 1)


def test_every_manager_sees_it_those_that_exist_and_those_to_come(site: Any) -> None:
    before = PluginManager()
    with pytest.raises(UnknownOperator):
        twist(before)
    record = register(pack(First), kind="ops", key="acme")
    assert record.id == "notebook/ops/acme"
    assert twist(before) is twist(PluginManager()) is First
    assert before.provider(First) == "notebook"
    assert before.record("notebook").provides == ("acme::Twist-1",)


def test_it_goes_before_installed_ones_and_a_second_one_replaces_it(site: Any, pack: Any) -> None:
    site.plugin("ops", "acme", pack("acme", "Twist"))
    manager = PluginManager(prefer=["fake-ops-acme"])
    assert twist(manager) not in (First, Second)
    for cls in (First, Second):
        register(globals()["pack"](cls), kind="ops", key="acme")
        assert twist(manager) is cls
        assert manager.decide("acme", "Twist", 1).rule == 1


def test_an_override_in_process_needs_no_preference(site: Any) -> None:
    site.standard_operators()

    class Mine(Relu):
        op_type = "Relu"

    manager = PluginManager()
    with temporary(pack(Mine), kind="overrides", key="ai.onnx"):
        assert manager.operator("", "Relu", 14) is Mine
    assert manager.operator("", "Relu", 14) is Relu


def test_temporary_puts_everything_back(site: Any, pack: Any) -> None:
    mine = globals()["pack"]
    identifier = site.plugin("ops", "acme", pack("acme", "Twist"))
    manager, untouched = PluginManager(), PluginManager()
    installed = twist(manager)
    with temporary(mine(First), kind="ops", key="acme") as record:
        assert twist(manager) is First
        with temporary(mine(Second), kind="ops", key="acme"):
            assert twist(manager) is twist(PluginManager()) is Second
        assert twist(manager) is First
    assert twist(manager) is installed
    assert [r.id for r in manager.records()] == [identifier] == [r.id for r in PluginManager().records()]
    assert manager.provider(First) == f"session ({__name__})"
    assert record.id not in {r.id for r in untouched.records()}


def test_temporary_puts_back_after_an_error(site: Any) -> None:
    manager = PluginManager()

    def fails() -> None:
        with temporary(pack(First), kind="ops", key="acme"):
            twist(manager)
            _ = 1 / 0

    with pytest.raises(ZeroDivisionError):
        fails()
    with pytest.raises(UnknownOperator, match="no op pack of domain 'acme' is installed"):
        twist(manager)


def test_one_with_the_id_of_an_installed_plugin_stands_in_for_it(site: Any) -> None:
    site.plugin("ops", "acme", "raise ValueError('boom')", name="broken")
    manager = PluginManager()
    with pytest.raises(UnknownOperator, match="boom"):
        twist(manager)
    with temporary(pack(First), kind="ops", key="acme", name="broken"):
        assert twist(manager) is First
    assert manager.record("broken").state == "found", "to be tried again"
    with pytest.raises(UnknownOperator, match="boom"):
        twist(manager)


def test_records_are_in_the_order_of_ids_whatever_comes_and_goes(site: Any) -> None:
    for name in ("bravo", "delta"):
        site.plugin("ops", f"com.{name}", "", name=name)
    manager = PluginManager()
    known = ["bravo/ops/com.bravo", "delta/ops/com.delta"]
    with (
        temporary(pack(First), kind="ops", key="acme", name="charlie"),
        temporary(pack(First), kind="ops", key="acme", name="alpha"),
    ):
        assert [record.id for record in manager.records()] == ["alpha/ops/acme", known[0], "charlie/ops/acme", known[1]]
    with temporary(pack(First), kind="ops", key="com.bravo", name="bravo"):
        assert [record.id for record in manager.records()] == known
    assert [record.id for record in manager.records()] == known


@pytest.mark.parametrize(
    ("plugin", "kind", "key", "error", "message"),
    [
        (ModuleType("x"), "ops", "acme", PluginIncompatible, "x does not state dovetail_api"),
        (SimpleNamespace(dovetail_api="1.0"), "ops", "acme", PluginFailed, "dovetail_register_translations is missing"),
        (SimpleNamespace(dovetail_api="1.0", dovetail_register_opps=len), "ops", "acme", PluginFailed, "Did you mean"),
        (pack(First), "op", "acme", UsageError, "unknown kind of plugins 'op'"),
    ],
)
def test_what_is_wrong_is_told_at_once_and_nothing_is_registered(
    site: Any, plugin: object, kind: str, key: str, error: Any, message: str
) -> None:
    manager = PluginManager()
    with pytest.raises(error, match=message):
        register(plugin, kind=kind, key=key)
    with pytest.raises(error), temporary(plugin, kind=kind, key=key):
        pytest.fail("the plugin is registered")
    assert manager.records() == PluginManager().records() == ()


def test_one_that_fails_to_register_its_operators_fails_where_it_is_used(site: Any) -> None:
    register(pack(type("X", (Operator,), {"domain": "other"})), kind="ops", key="acme")
    manager = PluginManager()
    with pytest.raises(PluginFailed, match="X has domain 'other'"):
        twist(manager)
    assert manager.record("notebook").state == "failed"
    register(pack(First), kind="ops", key="acme")
    assert twist(manager) is First


def test_registering_imports_nothing_into_a_manager_that_only_lists(site: Any) -> None:
    out = site.run(
        """
        import sys
        from dovetail.plugins import PluginManager
        manager = PluginManager()
        from dovetail.plugins.in_process import Registration, _put
        _put(Registration.of(object(), kind="ops", key="acme", name="mine"))
        print(manager.record("mine").state, PluginManager().record("mine").location)
        print([m for m in ("numpy", "pluggy") if m in sys.modules])
        """
    )
    assert out == "found in process\n[]\n"


def device_plugin(opened: list[str], full_name: str) -> Any:
    class Toy(Device):
        info = DeviceInfo("TOY", "TOY", "NPU", full_name)

        def supports(self, node: Any) -> Any:
            return Refusal(Reason.OPERATOR, "the device runs nothing")

        def compile(self, graph: Any, options: Any) -> Any:
            raise AssertionError("the device accepts no node")

        def close(self) -> None:
            opened.append(f"{full_name} closed")

    @dovetail.hookimpl
    def dovetail_device_info(config: Any) -> list[DeviceInfo]:
        return [Toy.info]

    @dovetail.hookimpl
    def dovetail_device_open(info: Any, options: Any) -> Device:
        opened.append(full_name)
        return Toy()

    return SimpleNamespace(
        dovetail_api="1.0", dovetail_device_info=dovetail_device_info, dovetail_device_open=dovetail_device_open
    )


def test_a_device_that_is_replaced_is_opened_anew_and_all_are_closed(site: Any) -> None:
    opened: list[str] = []
    core = dovetail.Core()
    with pytest.raises(DeviceNotFound):
        core.plugins.device_info("TOY")
    for name in ("old", "new"):
        with temporary(device_plugin(opened, name), kind="devices", key="TOY", name="toy"):
            assert [info.full_name for info in core.devices] == [name]
            for _ in range(2):
                core._session.open("TOY", {})
    assert opened == ["old", "new"]
    assert core.available_devices == []
    core.close()
    assert sorted(opened[2:]) == ["new closed", "old closed"]


def test_a_compiled_model_keeps_what_it_was_compiled_with(toy_core: Any) -> None:
    core, _ = toy_core(A=lambda node: False)
    Twice = type("Twice", (Operator,), {"domain": "acme", "reference": lambda self, x: 2 * x})
    g = dovetail.GraphBuilder()
    from dovetail.op import UnboundOperator

    model = g.model([g.node(UnboundOperator("acme", "Twice", 1, {}), g.input("x", "float32", [2]), outputs=["y"])])
    with temporary(pack(Twice), kind="ops", key="acme"):
        compiled = core.compile_model(model, "A")
    assert compiled(np.array([1, 2], np.float32))["y"].tolist() == [2, 4]
    with pytest.raises(UnknownOperator):
        core.compile_model(model, "A")
