"""The strict checks, and that every hook is documented, checked and called."""

import inspect
import re
from functools import wraps
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import dovetail
from dovetail import hookspecs
from dovetail.errors import PluginFailed
from dovetail.hookspecs import hookimpl
from dovetail.plugins.checks import HOOKS, check_plugin
from dovetail.plugins.records import KINDS

SPECS = {name: spec for name, spec in vars(hookspecs).items() if name.startswith("dovetail_")}
SOURCES = "\n".join(path.read_text(encoding="utf-8") for path in sorted(Path(dovetail.__file__).parent.rglob("*.py")))


def problem(plugin: object, *kinds: str) -> str:
    with pytest.raises(PluginFailed) as caught:
        check_plugin(plugin, kinds or ("hooks",))
    return caught.value.message


def plugin(**members: Any) -> ModuleType:
    module = ModuleType("fake")
    vars(module).update(members)
    return module


def test_every_hook_is_checked() -> None:
    assert set(HOOKS) == set(SPECS)
    assert {kind for kinds in HOOKS.values() for kind in kinds} == set(KINDS)


@pytest.mark.parametrize("hook", SPECS)
def test_every_hook_is_documented(hook: str) -> None:
    text = inspect.getdoc(SPECS[hook]) or ""
    groups = re.findall(r"`dovetail\.(\w+)`", text.splitlines()[0]) or (list(KINDS) if "every kind" in text else [])
    assert sorted(groups) == sorted(HOOKS[hook]), "the first line says for which groups"
    for part in ("Called ", " thread", "Return", "::\n\n    @hookimpl\n    def " + hook):
        assert part in text, f"{hook}: {part!r} is missing"


@pytest.mark.parametrize("hook", SPECS)
def test_every_hook_is_called_somewhere(hook: str) -> None:
    assert re.search(rf"hooks?\.{hook}\(", SOURCES)


@pytest.mark.parametrize("hook", SPECS)
def test_the_example_of_every_hook_passes_the_checks(hook: str) -> None:
    example = re.search(rf"(    def {hook}\(.*?\):)", SPECS[hook].__doc__ or "")
    assert example
    namespace: dict[str, Any] = {}
    exec(f"{example[1].strip()} pass", namespace)
    required = {"devices": ["dovetail_device_info", "dovetail_device_open"], "frontends": ["dovetail_read_model"]}
    kind = HOOKS[hook][0]
    members = {name: hookimpl(eval("lambda: None")) for name in required.get(kind, [])}
    if kind == "ops":
        members["dovetail_register_ops"] = hookimpl(eval("lambda: None"))
    check_plugin(plugin(**{**members, hook: hookimpl(namespace[hook])}), [kind])


def test_a_misspelled_hook_gets_a_suggestion() -> None:
    @hookimpl
    def dovetail_graph_pases(options: Any) -> None: ...

    assert problem(plugin(dovetail_graph_pases=dovetail_graph_pases)) == (
        "unknown hook dovetail_graph_pases. Did you mean 'dovetail_graph_passes'?"
    )


def test_a_forgotten_marker() -> None:
    def dovetail_graph_passes(options: Any) -> None: ...

    assert problem(plugin(dovetail_graph_passes=dovetail_graph_passes)) == "dovetail_graph_passes lacks the @hookimpl marker"


def test_a_wrong_argument_name_gets_a_suggestion() -> None:
    @hookimpl
    def dovetail_graph_passes(option: Any) -> None: ...

    message = problem(plugin(dovetail_graph_passes=dovetail_graph_passes))
    assert message == "dovetail_graph_passes has no argument 'option'. Did you mean 'options'?"


def test_a_default_argument_is_refused() -> None:
    @hookimpl
    def dovetail_graph_passes(options: Any = None) -> None: ...

    assert "gives 'options' a default" in problem(plugin(dovetail_graph_passes=dovetail_graph_passes))


@pytest.mark.parametrize("signature", ["*options", "**options", "*, options"])
def test_arguments_that_are_never_passed_are_refused(signature: str) -> None:
    function = hookimpl(eval(f"lambda {signature}: None"))
    assert "which is never passed; its arguments are (options)" in problem(plugin(dovetail_graph_passes=function))


@pytest.mark.parametrize("options", [{"wrapper": True}, {"hookwrapper": True}, {"specname": "dovetail_add_commands"}])
def test_wrappers_and_aliases_are_refused(options: dict[str, Any]) -> None:
    function = hookimpl(**options)(eval("lambda options: None"))
    assert "wrapper, hookwrapper or specname" in problem(plugin(dovetail_graph_passes=function))


def test_a_hook_of_another_group_is_refused_unless_the_plugin_is_in_that_group_too() -> None:
    function = hookimpl(eval("lambda source: None"))
    module = plugin(dovetail_read_model=function)
    assert problem(module, "hooks") == "dovetail_read_model is only called for plugins of the group dovetail.frontends"
    check_plugin(module, ["hooks", "frontends"])


def test_missing_hooks_are_named() -> None:
    assert problem(plugin(), "devices") == "dovetail_device_info is missing; dovetail_device_open is missing"
    missing = "dovetail_register_ops or dovetail_register_translations is missing"
    assert problem(plugin(), "ops") == problem(plugin(), "overrides") == missing
    assert problem(plugin(), "frontends") == "dovetail_read_model is missing"


def test_a_class_is_not_a_plugin() -> None:
    assert "is the class Site" in problem(type("Site", (), {}))


def test_no_property_is_evaluated() -> None:
    class Plugin:
        @property
        def anything(self) -> None:
            raise AssertionError("a property was evaluated")

        @property
        def dovetail_add_commands(self) -> None:
            raise AssertionError("a property was evaluated")

    assert problem(Plugin()) == "dovetail_add_commands is a property, not a function"


def test_methods_static_methods_and_namespaces_are_fine() -> None:
    class Plugin:
        @hookimpl
        def dovetail_graph_passes(self, options: Any) -> None: ...

        @staticmethod
        @hookimpl
        def dovetail_add_commands(cli: Any) -> None: ...

        @classmethod
        @hookimpl
        def dovetail_read_model(cls, source: Any) -> None: ...

    check_plugin(Plugin(), ["hooks", "frontends"])
    check_plugin(SimpleNamespace(dovetail_add_commands=hookimpl(eval("lambda: None"))), ["hooks"])


def test_data_modules_and_other_names_are_not_hooks() -> None:
    check_plugin(plugin(dovetail_version="1", dovetail_sub=ModuleType("sub"), helper=lambda x=1: x), ["hooks"])


def test_all_problems_are_reported_at_once() -> None:
    function = eval("lambda: None")
    message = problem(plugin(dovetail_typo=function, dovetail_read_model=function), "devices")
    assert message.count(";") == 3


def test_a_wrapped_hook_is_checked_by_the_arguments_of_what_it_wraps() -> None:
    @hookimpl
    def dovetail_add_commands(program: Any) -> None: ...

    @wraps(dovetail_add_commands)
    def wrapper(cli: Any) -> None: ...

    assert "no argument 'program'" in problem(plugin(dovetail_add_commands=wrapper))


def test_a_method_is_checked_without_self() -> None:
    class Plugin:
        @hookimpl
        def dovetail_add_commands(self, cli: Any) -> None: ...

    check_plugin(Plugin(), ("hooks",))
