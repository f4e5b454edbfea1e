"""One plugin, one transaction: what goes wrong stays in its record, and the others go on."""

import gc
import logging
import pickle
import sys
import textwrap
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import click
import pytest

from dovetail.errors import PluginFailed, PluginIncompatible, UsageError
from dovetail.hookspecs import hookimpl
from dovetail.op import Operator
from dovetail.plugins import PluginManager


def test_a_broken_import_stays_in_its_record(site: Any, pack: Any, caplog: pytest.LogCaptureFixture) -> None:
    broken = site.plugin("ops", "bad.dom", "import a_module_that_is_not_there")
    site.plugin("ops", "good.dom", pack("good.dom", "Twist"))
    manager = PluginManager()
    assert {operator.op_type for operator in manager.operators()} >= {"Twist"}
    record = manager.record(broken)
    assert record.state == "failed"
    assert record.reason == (
        "importing fake_ops_bad_dom raised ModuleNotFoundError: No module named 'a_module_that_is_not_there'"
    )
    missing = "a_module_that_is_not_there"
    assert record.hint == f"install what provides the module {missing}, for example: pip install {missing.replace('_', '-')}"
    assert "a_module_that_is_not_there" in record.traceback
    assert "Traceback" in record.traceback
    assert [r.levelno for r in caplog.records] == [logging.WARNING]
    assert broken in caplog.text


def test_another_failure_of_an_import_may_be_the_installations(site: Any) -> None:
    broken = site.plugin("ops", "bad.dom", "from math import no_such_name")
    manager = PluginManager()
    manager.operators()
    assert manager.record(broken).hint == "if the installation is damaged: pip install --force-reinstall fake-ops-bad-dom"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("acme_pack.nothing", "name a module of the package in the entry point 'acme.dom' of pyproject.toml, and install"),
        ("acme_pack:plugin", "name the module acme_pack in the entry point 'acme.dom' of pyproject.toml, and install"),
    ],
)
def test_an_entry_point_that_names_nothing(site: Any, value: str, said: str) -> None:
    site.metadata("acme-pack", {"ops": {"acme.dom": value}})
    site.module("acme_pack", "")
    manager = PluginManager()
    manager.operators()
    assert said in manager.record("acme-pack").hint


def test_what_a_plugin_prints_at_import_is_not_on_stdout(site: Any, pack: Any, capsys: pytest.CaptureFixture[str]) -> None:
    site.plugin("ops", "loud.dom", "print('hello from the pack')\n" + textwrap.dedent(pack("loud.dom", "Twist")))
    assert {operator.op_type for operator in PluginManager().operators("loud.dom")} == {"Twist"}
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "hello from the pack\n")


@pytest.mark.parametrize("crash", ["raise RuntimeError('boom')", "import sys; sys.exit('boom')", "raise RecursionError('boom')"])
def test_whatever_an_import_raises_the_host_goes_on(site: Any, crash: str) -> None:
    broken = site.plugin("devices", "acme", crash)
    manager = PluginManager()
    assert manager.devices() == ()
    assert "boom" in manager.record(broken).reason


def test_the_users_interrupt_is_not_swallowed(site: Any) -> None:
    broken = site.plugin("devices", "acme", "raise KeyboardInterrupt")
    manager = PluginManager()
    with pytest.raises(KeyboardInterrupt):
        manager.devices()
    assert manager.record(broken).state == "found"


def test_a_plugin_that_failed_is_not_tried_again(site: Any) -> None:
    site.plugin(
        "devices", "acme", "import builtins; builtins.acme_tries = getattr(builtins, 'acme_tries', 0) + 1; raise ValueError"
    )
    manager = PluginManager()
    for _ in range(3):
        with pytest.raises(PluginFailed):
            manager.device_info("ACME")
    import builtins

    assert vars(builtins).pop("acme_tries") == 1


@pytest.mark.parametrize("shortage", ["OSError(errno.EMFILE, 'Too many open files')", "MemoryError()"])
def test_a_plugin_is_tried_again_after_a_shortage(device: Any, shortage: str, caplog: pytest.LogCaptureFixture) -> None:
    short = device("SHORT", more=f"\nimport errno, sys\nif not hasattr(sys, 'plenty'):\n    raise {shortage}\n")
    manager = PluginManager()
    for _ in range(2):
        with pytest.raises(PluginFailed, match=r"importing .* raised .*\n.*close files or free memory"):
            manager.device_info("SHORT")
    assert (manager.record(short).state, len(caplog.records)) == ("found", 2)
    sys.plenty = True  # type: ignore[attr-defined]
    try:
        assert manager.device_info("SHORT").name == "SHORT"
    finally:
        del sys.plenty  # type: ignore[attr-defined]


def test_a_failed_registration_leaves_nothing_behind(site: Any, pack: Any) -> None:
    source = pack("half.dom", "First") + "    raise RuntimeError('after the first')\n"
    half = site.plugin("ops", "half.dom", source)
    manager = PluginManager()
    assert "First" not in {operator.op_type for operator in manager.operators()}
    assert manager.record(half).reason == "dovetail_register_ops raised RuntimeError: after the first"
    assert manager.record(half).provides == ()


def test_a_missing_attribute_of_an_entry_point(site: Any) -> None:
    site.metadata("acme", {"ops": {"acme.dom": "acme_mod:plugin.inner"}})
    site.module("acme_mod", "plugin = object()")
    manager = PluginManager()
    manager.operators("acme.dom")
    assert "has no attribute 'inner'" in manager.record("acme").reason


def names(passes: Any) -> list[str]:
    return [one.name for one in passes]


def test_an_entry_point_may_name_an_object(site: Any) -> None:
    site.metadata("acme", {"hooks": {"acme": "acme_mod:plugin"}})
    site.module(
        "acme_mod",
        """
        from dovetail.hookspecs import hookimpl
        from dovetail.passes import GraphPass
        class Plugin:
            dovetail_api = "1.0"
            @property
            def unrelated(self):
                raise AssertionError("a property was evaluated")
            @hookimpl
            def dovetail_graph_passes(self, options):
                return [GraphPass("mine", "recognise", lambda graph, context: graph)]
        plugin = Plugin()
        """,
    )
    manager: Any = PluginManager()
    assert names(manager.graph_passes({})) == ["mine"]


def test_strict_checks_fail_the_plugin(site: Any) -> None:
    wrong = site.plugin("ops", "acme", "@hookimpl\ndef dovetail_register_ops(registery, domain): ...")
    manager = PluginManager()
    manager.operators("acme")
    assert manager.record(wrong).reason == "dovetail_register_ops has no argument 'registery'. Did you mean 'registry'?"
    assert manager.record(wrong).traceback == ""


def test_one_module_may_serve_two_groups_of_its_distribution(site: Any, pack: Any, passes: Any) -> None:
    site.metadata("both", {"ops": {"acme": "both_mod"}, "hooks": {"acme-passes": "both_mod"}})
    site.module(
        "both_mod", "from dovetail.hookspecs import hookimpl\ndovetail_api = '1.0'\n" + pack("acme", "Twist") + passes("mine")
    )
    manager: Any = PluginManager()
    assert manager.operator("acme", "Twist", 1).op_type == "Twist"
    assert names(manager.graph_passes({})) == ["mine"]


def test_an_incompatible_version_is_not_imported(site: Any) -> None:
    site.plugin("devices", "acme", "raise AssertionError('imported')", requires=["dovetail>=99"])
    manager = PluginManager()
    assert manager.record("acme").state == "incompatible"
    with pytest.raises(PluginIncompatible, match=r"fake-devices-acme 1.0 needs dovetail>=99; this is dovetail ") as caught:
        manager.device_info("acme")
    assert caught.value.hint == "pip install --upgrade 'dovetail>=99'"
    assert manager.devices() == ()
    assert "fake_devices_acme" not in sys.modules


@pytest.mark.parametrize("statement", ["dovetail_api = '9.0'", "del dovetail_api"])
def test_an_incompatible_api_is_found_after_import(device: Any, statement: str) -> None:
    device("acme", more=statement)
    manager = PluginManager()
    with pytest.raises(PluginIncompatible, match="fake_devices_acme"):
        manager.device_info("acme")
    record = manager.record("acme")
    assert record.state == "incompatible"
    assert record.hint
    with pytest.raises(PluginIncompatible):
        manager.device_info("acme")


def test_listing_loads_nothing(site: Any) -> None:
    site.plugin("devices", "acme", "print('imported')")
    out = site.run(
        """
        import sys
        from dovetail.plugins import PluginManager
        manager = PluginManager()
        assert {r.state for r in manager.records()} == {"found"}, manager.records()
        manager.formats()
        manager.record("acme")
        heavy = "numpy pluggy packaging logging email importlib.metadata importlib_metadata dovetail.op dovetail.device".split()
        modules = [r.value.partition(":")[0] for r in manager.records()]
        print([m for m in (*heavy, *modules) if m in sys.modules])
        """
    )
    assert out == "[]\n"


def test_importing_the_package_loads_next_to_nothing(site: Any) -> None:
    out = site.run("import sys, dovetail.plugins; print(sorted(m for m in sys.modules if m.startswith('dovetail')))")
    assert out == "['dovetail', 'dovetail._lazy', 'dovetail._version', 'dovetail.plugins']\n"


def test_a_failure_pickles_without_its_cause(site: Any) -> None:
    site.plugin("devices", "acme", "raise ValueError('boom')")
    with pytest.raises(PluginFailed) as caught:
        PluginManager().device_info("acme")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), type(copy)) == (str(caught.value), PluginFailed)


def test_times_and_contents_are_recorded(site: Any, pack: Any) -> None:
    site.plugin("ops", "acme", "import time; time.sleep(0.02)\n" + pack("acme", "B", "A"))
    manager = PluginManager()
    manager.operator("acme", "A", 1)
    record = manager.record("acme")
    assert (record.state, record.provides) == ("loaded", ("acme::A-1", "acme::B-1"))
    assert record.import_seconds > 0.02
    assert 0 < record.register_seconds != record.import_seconds


# --- in-process plugins -----------------------------------------------------------------------------------------------


def in_process_pack(domain_: str, name: str) -> ModuleType:
    module = ModuleType("notebook")

    @hookimpl
    def dovetail_register_ops(registry: Any) -> None:
        registry.add(type(name, (Operator,), {"domain": domain_, "__module__": "notebook"}))

    vars(module).update(dovetail_api="1.0", dovetail_register_ops=dovetail_register_ops)
    return module


def test_a_plugin_in_process(site: Any) -> None:
    manager = PluginManager()
    record = manager.register(in_process_pack("my.dom", "Mine"), name="My Notebook", kind="ops", key="my.dom")
    assert (record.state, record.provides) == ("loaded", ("my.dom::Mine-1",))
    mine = manager.operator("my.dom", "Mine", 1)
    assert manager.provider(mine) == record.provider
    assert manager.record(record.id) == record


def test_a_plugin_in_process_is_checked_like_any_other(site: Any) -> None:
    manager = PluginManager()
    with pytest.raises(PluginFailed, match="dovetail_register_ops or dovetail_register_translations is missing"):
        manager.register(SimpleNamespace(dovetail_api="1.0"), name="bad", kind="ops", key="my.dom")
    assert manager.record("bad").state == "failed"
    with pytest.raises(PluginIncompatible):
        manager.register(ModuleType("x"), name="bad", kind="ops", key="my.dom")


def test_a_plugin_in_process_goes_before_installed_ones_and_can_be_replaced(site: Any, pack: Any) -> None:
    site.plugin("ops", "my.dom", pack("my.dom", "Mine"))
    manager = PluginManager()
    installed = manager.operator("my.dom", "Mine", 1)
    for _ in range(2):
        manager.register(in_process_pack("my.dom", "Mine"), name="nb", kind="ops", key="my.dom")
        installed, before = manager.operator("my.dom", "Mine", 1), installed
        assert installed is not before
    with pytest.raises(PluginFailed):
        manager.register(in_process_pack("other", "Mine"), name="nb", kind="ops", key="my.dom")
    with pytest.raises(PluginFailed, match="has domain 'other'"):
        manager.operator("my.dom", "Mine", 1)


@pytest.mark.parametrize(("kind", "key", "hint"), [("op", "a.dom", "Did you mean 'ops'?")])
def test_what_cannot_be_registered(site: Any, kind: str, key: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        PluginManager().register(ModuleType("x"), name="x", kind=kind, key=key)
    assert caught.value.hint == hint


# --- the groups dovetail.hooks and dovetail.commands -------------------------------------------------------------------


def test_passes_run_in_the_order_of_ids_but_for_tryfirst_and_trylast(site: Any, passes: Any) -> None:
    for name, marker in (
        ("a", "@hookimpl(trylast=True)"),
        ("b", "@hookimpl"),
        ("c", "@hookimpl"),
        ("d", "@hookimpl(tryfirst=True)"),
    ):
        site.plugin("hooks", name, passes(name, marker=marker))
    manager: Any = PluginManager()
    assert names(manager.graph_passes({})) == ["d", "b", "c", "a"]


def test_a_hook_that_raises_takes_only_its_own_plugin_out(site: Any, passes: Any) -> None:
    site.plugin("hooks", "bad", "@hookimpl\ndef dovetail_graph_passes(options):\n    raise ValueError(options['x'])")
    site.plugin("hooks", "good", passes("mine"))
    site.plugin("hooks", "quiet", "@hookimpl\ndef dovetail_graph_passes(options): ...")
    manager: Any = PluginManager()
    assert names(manager.graph_passes({"x": "why"})) == ["mine"]
    assert manager.record("bad").state == "failed"
    assert manager.record("bad").reason == "dovetail_graph_passes raised ValueError: why"
    assert names(manager.graph_passes({"x": "why"})) == ["mine"]


def test_passes_that_are_no_functions_fail_the_plugin(site: Any) -> None:
    site.plugin("hooks", "bad", "@hookimpl\ndef dovetail_graph_passes(options):\n    return [3]")
    manager: Any = PluginManager()
    assert manager.graph_passes({}) == ()
    assert manager.record("bad").reason == "dovetail_graph_passes returned [3]"


def adding(name: str, then: str = "pass") -> str:
    """The source of a plugin that adds a command, and what it does then."""
    return f"import click\n@hookimpl\ndef dovetail_add_commands(cli):\n    cli.add_command(click.Command({name!r}))\n    {then}"


def test_commands_are_added_to_the_group_given(site: Any) -> None:
    site.plugin("hooks", "cmd", adding("greet"))
    group = click.Group()
    PluginManager().add_commands(group)
    assert list(group.commands) == ["greet"]


def test_plugins_of_commands_are_not_loaded_for_passes(site: Any) -> None:
    site.plugin("commands", "cmd", adding("greet"))
    group, manager = click.Group(), PluginManager()
    assert (manager.graph_passes({}), manager.record("cmd").state) == ((), "found")
    manager.add_commands(group)
    assert ([*group.commands], manager.record("cmd").state) == (["greet"], "loaded")


def test_a_plugin_of_commands_has_no_passes(site: Any, passes: Any) -> None:
    site.plugin("commands", "cmd", passes("mine"))
    manager = PluginManager()
    manager.add_commands(click.Group())
    assert manager.record("cmd").reason == "dovetail_graph_passes is only called for plugins of the group dovetail.hooks"


def test_no_command_of_a_plugin_that_raises_is_added(site: Any) -> None:
    site.plugin("hooks", "bad", adding("greet", "raise ValueError('why')"))
    site.plugin("hooks", "good", adding("leave"))
    group, manager = click.Group(), PluginManager()
    manager.add_commands(group)
    assert list(group.commands) == ["leave"]
    assert manager.record("bad").reason == "dovetail_add_commands raised ValueError: why"
    assert manager.record("good").state == "loaded"


def writing(then: str) -> str:
    """The source of a plugin that writes traces, and what it does then."""
    return f"@hookimpl\ndef dovetail_write_trace(trace, path):\n    {then}"


def test_a_trace_is_written_by_the_first_plugin(site: Any, tmp_path: Path) -> None:
    site.plugin("commands", "a", writing("path.write_text(trace)"))
    site.plugin("hooks", "b", writing("raise ValueError('never called')"))
    PluginManager().trace_writer()("slices", tmp_path / "t.json")  # type: ignore[arg-type]  # it is handed on as it is
    assert (tmp_path / "t.json").read_text() == "slices"


def test_an_error_in_writing_a_trace_names_the_hook(site: Any, tmp_path: Path) -> None:
    site.plugin("hooks", "bad", writing("raise ValueError('why')"))
    with pytest.raises(PluginFailed, match=r"writing a trace with .*/hooks/.* raised ValueError: why"):
        PluginManager().trace_writer()(None, tmp_path / "t.json")  # type: ignore[arg-type]  # as above


def test_without_a_plugin_no_trace_can_be_written(site: Any) -> None:
    with pytest.raises(UsageError, match="no installed package writes traces"):
        PluginManager().trace_writer()


def test_managers_do_not_share_state(site: Any, pack: Any) -> None:
    site.plugin("ops", "acme", pack("acme", "A"))
    first, second = PluginManager(), PluginManager()
    first.operator("acme", "A", 1)
    assert (first.record("acme").state, second.record("acme").state) == ("loaded", "found")
    del first
    gc.collect()
    assert second.operator("acme", "A", 1).op_type == "A"
