"""Which class defines an operator, who provides it, and what happens when nobody or more than one does."""

import sys
from typing import Any

import pytest

import dovetail
import dovetail_ops_onnx as ops
from dovetail.errors import PluginError, PluginFailed, UnknownOperator
from dovetail.op import Operator
from dovetail.plugins import PluginManager
from dovetail.testing.packs import OpPackChecks


class Session(Operator):
    domain = "acme"
    op_type = "Twist"


def test_only_the_packs_of_the_domain_are_imported(site: Any, pack: Any) -> None:
    site.plugin("ops", "acme", pack("acme", "Twist"))
    site.plugin("ops", "other", "raise AssertionError('imported')")
    manager = PluginManager()
    twist = manager.operator("acme", "Twist", 1)
    assert (twist.domain, twist.op_type) == ("acme", "Twist")
    assert manager.operator("acme", "Twist", 1) is twist
    assert manager.provider(twist) == "fake-ops-acme 1.0"
    assert "fake_ops_other" not in sys.modules


@pytest.mark.parametrize("domain", ["", "ai.onnx"])
def test_standard_operators_come_from_a_pack_like_others(site: Any, domain: str) -> None:
    site.plugin("ops", "acme", "raise AssertionError('imported')")
    site.standard_operators()
    manager = PluginManager()
    conv = manager.operator(domain, "Conv", 13)
    assert conv is ops.find("Conv", 13)
    assert manager.provider(conv) == "dovetail-ops-onnx 0.1.0"
    assert conv in manager.operators(domain)
    assert all(operator.domain == "" for operator in manager.operators(domain))


def test_without_the_pack_a_standard_operator_is_refused_with_what_helps(site: Any, pack: Any) -> None:
    site.plugin("ops", "acme", pack("acme", "Twist"))
    manager = PluginManager()
    assert manager.operator("acme", "Twist", 1).op_type == "Twist"
    with pytest.raises(UnknownOperator, match=r"ai.onnx::Conv is known; no op pack of domain 'ai.onnx' is installed") as caught:
        manager.operator("", "Conv", 13)
    assert "an entry point 'ai.onnx' in the group dovetail.ops: pip install 'dovetail[all]'." in caught.value.hint


def test_a_supplement_adds_to_a_domain_and_replaces_nothing(site: Any, pack: Any) -> None:
    site.standard_operators()
    site.plugin("supplements", "ai.onnx", pack("", "Conv", "Novel"), name="more-ops")
    manager = PluginManager()
    assert manager.operator("", "Conv", 13) is ops.find("Conv", 13)
    assert manager.record("more-ops").state == "found", "imported for an operator that another pack defines"
    assert manager.provider(manager.operator("", "Novel", 13)) == "more-ops 1.0"
    assert manager.operator("", "Conv", 13) is ops.find("Conv", 13)
    assert manager.provider(PluginManager(prefer=["more-ops"]).operator("", "Conv", 13)).startswith("session") is False
    assert PluginManager(prefer={"Conv": "more-ops"}).operator("", "Conv", 13).__module__ == "more_ops"


def test_a_package_of_modules_is_imported_module_by_module(site: Any) -> None:
    site.plugin("ops", "lazy.dom", "def dovetail_register_ops(registry):\n    registry.add_package('lazy_ops')\n".replace(
        "def ", "@hookimpl\ndef ", 1
    ))  # fmt: skip
    (site.folder / "lazy_ops").mkdir()
    (site.folder / "lazy_ops" / "__init__.py").write_text("")
    source = "from dovetail.op import Operator\nclass {0}(Operator):\n    domain = 'lazy.dom'\n"
    source += "    def reference(self, X):\n        return X\n"
    (site.folder / "lazy_ops" / "first_one.py").write_text(source.format("FirstOne"))
    (site.folder / "lazy_ops" / "second.py").write_text(source.format("Second"))
    (site.folder / "lazy_ops" / "broken.py").write_text("raise ValueError('boom')")
    manager = PluginManager()
    first = manager.operator("lazy.dom", "FirstOne", 1)
    assert first.__module__ == "lazy_ops.first_one"
    assert "lazy_ops.second" not in sys.modules
    with pytest.raises(
        PluginFailed, match=r"importing lazy_ops.broken for fake-ops-lazy-dom/ops/lazy.dom raised ValueError: boom"
    ):
        manager.operator("lazy.dom", "Broken", 1)
    with pytest.raises(PluginFailed, match="boom"):
        manager.operators("lazy.dom")
    (site.folder / "lazy_ops" / "broken.py").unlink()
    assert [cls.op_type for cls in PluginManager().operators("lazy.dom")] == ["FirstOne", "Second"]


def test_modules_of_several_operators_are_imported_for_any_of_them(site: Any) -> None:
    hook = "@hookimpl\ndef dovetail_register_ops(registry):\n    registry.add_package('families', {'pairs': ['A', 'BTwo']})\n"
    site.plugin("ops", "lazy.dom", hook)
    (site.folder / "families").mkdir()
    (site.folder / "families" / "__init__.py").write_text("")
    source = "from dovetail.op import Operator\n"
    for name in ("A", "BTwo", "Unlisted", "_Base"):
        source += f"class {name}(Operator):\n    domain = 'lazy.dom'\n    def reference(self, X):\n        return X\n"
    (site.folder / "families" / "pairs.py").write_text(source)
    (site.folder / "families" / "alone.py").write_text(source.replace("BTwo", "Alone").replace("class A(", "class _A("))
    manager = PluginManager()
    assert manager.operator("lazy.dom", "Alone", 1).__module__ == "families.alone"
    assert "families.pairs" not in sys.modules
    assert [manager.operator("lazy.dom", name, 1).__module__ for name in ("BTwo", "A")] == ["families.pairs"] * 2
    assert [cls.op_type for cls in manager.operators("lazy.dom")] == ["A", "Alone", "BTwo"]
    (text,) = manager.misplaced("lazy.dom")
    assert text.startswith("families.pairs defines Unlisted, which is looked for in unlisted.py: rename the module, list")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("since = '2'", "operator Twist: since is '2'; accepted: int"),
        ("op_type = 7", "operator Twist: op_type is 7; accepted: str"),
        ("inputs = None", "operator Twist: inputs is None; accepted: a tuple of ports"),
        ("outputs = 7", "operator Twist: outputs is 7; accepted: a tuple of ports"),
    ],
)
def test_a_class_whose_fields_have_other_types(line: str, message: str) -> None:
    from dovetail.errors import OperatorError

    source = f"from dovetail.op import Operator\nclass Twist(Operator):\n    domain = 'acme.dom'\n    {line}\n"
    with pytest.raises(OperatorError, match=f"^{message}"):
        exec(source, {"__name__": "acme"})


def test_a_pack_in_a_group_that_there_is_not(site: Any, pack: Any) -> None:
    site.plugin("operators", "acme.dom", pack("acme.dom", "Twist"), name="acme-ops")
    with pytest.raises(UnknownOperator) as caught:
        PluginManager().operator("acme.dom", "Twist", 1)
    said = "acme-ops: this dovetail has no entry-point group dovetail.operators. Did you mean 'dovetail.ops'?"
    assert said in caught.value.hint


def test_a_module_with_another_name_than_its_operators(site: Any) -> None:
    site.plugin("ops", "lazy.dom", "@hookimpl\ndef dovetail_register_ops(registry):\n    registry.add_package('misnamed_ops')\n")
    (site.folder / "misnamed_ops").mkdir()
    (site.folder / "misnamed_ops" / "__init__.py").write_text("")
    source = (
        "from dovetail.op import Operator\nclass {0}(Operator):\n    domain = 'lazy.dom'\n    def reference(self, X): return X\n"
    )
    (site.folder / "misnamed_ops" / "carafe.py").write_text(source.format("MMCVCarafe"))
    (site.folder / "misnamed_ops" / "right.py").write_text(source.format("Right") + source.format("RightsBase"))
    (site.folder / "misnamed_ops" / "base.py").write_text(source.format("_Base"))
    manager = PluginManager()
    assert manager.operator("lazy.dom", "Right", 1)
    said = "misnamed_ops.carafe defines MMCVCarafe, which is looked for in mmcv_carafe.py: rename the module, list the operator"
    with pytest.raises(UnknownOperator) as caught:
        manager.operator("lazy.dom", "MMCVCarafe", 1)
    assert said in caught.value.hint
    (text,) = manager.misplaced("lazy.dom")
    assert said in text


def test_the_newest_class_that_the_version_allows(site: Any) -> None:
    source = "from dovetail.op import Operator\n@hookimpl\ndef dovetail_register_ops(registry):\n"
    source += "    for n in (7, 1, 3):\n        registry.add(type('A', (Operator,), dict(domain='acme', since=n, op_type='A')))\n"
    site.plugin("ops", "acme", source)
    manager = PluginManager()
    assert [manager.operator("acme", "A", version).since for version in (1, 2, 3, 6, 7, 99)] == [1, 1, 3, 3, 7, 7]
    assert manager.record("acme").provides == ("acme::A-1", "acme::A-3", "acme::A-7")
    with pytest.raises(UnknownOperator, match="acme::A exists from version 1 of its domain on; version 0 was requested"):
        manager.operator("acme", "A", 0)


def test_an_operator_of_the_session_goes_first(site: Any, pack: Any) -> None:
    site.plugin("ops", "acme", pack("acme", "Twist"))
    manager = PluginManager()
    assert manager.operator("acme", "Twist", 1) is not Session
    manager.add_operator(Session, "my_ops.py")
    assert manager.operator("acme", "Twist", 1) is Session
    assert manager.provider(Session) == "session (my_ops.py)"
    assert Session in manager.operators("acme")
    assert PluginManager().operator("acme", "Twist", 1) is not Session


@pytest.mark.parametrize("wrong", [Session(), Operator, object, "Twist", None])
def test_only_operator_classes_can_be_added(site: Any, wrong: Any) -> None:
    with pytest.raises(PluginError, match="is not an operator class"):
        PluginManager().add_operator(wrong, "x.py")


def test_a_class_that_was_never_registered_comes_from_the_session(site: Any) -> None:
    assert PluginManager().provider(Session) == f"session ({__name__})"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("registry.add(Operator)", "is not an operator class"),
        ("registry.add(3)", "3 is not an operator class"),
        ("registry.add(type('A', (Operator,), {'domain': 'else'}))", "A has domain 'else', but the entry point owns 'acme'"),
        ("[registry.add(type(n, (Operator,), {'domain': domain, 'op_type': 'A'})) for n in 'XY']", "Y and X are both acme::A-1"),
        ("pass", "no operator of 'acme' was registered"),
    ],
)
def test_what_a_registry_refuses(site: Any, body: str, reason: str) -> None:
    site.plugin(
        "ops", "acme", f"from dovetail.op import Operator\n@hookimpl\ndef dovetail_register_ops(registry, domain):\n    {body}"
    )
    manager = PluginManager()
    with pytest.raises(UnknownOperator):
        manager.operator("acme", "A", 1)
    assert reason in manager.record("acme").reason


def test_an_unknown_operator_names_the_packs_and_a_neighbour(site: Any, pack: Any) -> None:
    site.plugin("ops", "acme", pack("acme", "Twist"))
    with pytest.raises(UnknownOperator) as caught:
        PluginManager().operator("acme", "Twits", 1)
    assert caught.value.message == "no operator acme::Twits is known; op packs of domain 'acme': fake-ops-acme 1.0 (loaded)"
    assert caught.value.hint.startswith("Did you mean 'Twist'? Or define the operator in a file")


def test_an_unknown_domain_says_how_to_get_a_pack(site: Any, pack: Any) -> None:
    site.plugin("ops", "acme", pack("acme", "Twist"))
    with pytest.raises(UnknownOperator) as caught:
        PluginManager().operator("com.none", "X", 1)
    assert (
        caught.value.message == "no operator com.none::X is known; no op pack of domain 'com.none' is installed, only of 'acme'"
    )
    assert caught.value.hint.startswith("Install a package with an entry point 'com.none' in the group dovetail.ops.")
    with pytest.raises(UnknownOperator) as caught:
        PluginManager().operator("acmee", "Twist", 1)
    assert caught.value.hint.startswith("Did you mean 'acme'? Install a package with an entry point 'acmee'")


def test_a_pack_that_cannot_be_had_says_what_to_do(site: Any, pack: Any) -> None:
    site.plugin("ops", "acme", pack("acme", "Twist"), requires=["dovetail>=99"])
    with pytest.raises(UnknownOperator) as caught:
        PluginManager().operator("acme", "Twist", 1)
    assert "fake-ops-acme 1.0 (incompatible: " in caught.value.message
    assert caught.value.hint.startswith("fake-ops-acme: pip install --upgrade 'dovetail>=99'. Or define the operator in a file")


def test_a_pack_that_fails_is_not_told_to_be_installed(site: Any, caplog: pytest.LogCaptureFixture) -> None:
    source = "@hookimpl\ndef dovetail_register_ops(registry):\n    raise RuntimeError('\\x1b[31mboom')\n"
    site.plugin("ops", "acme", source)
    with pytest.raises(UnknownOperator) as caught:
        PluginManager().operator("acme", "Twist", 1)
    assert "fake-ops-acme 1.0 (failed: dovetail_register_ops raised RuntimeError: \\x1b[31mboom)" in caught.value.message
    assert caught.value.hint.startswith("fake-ops-acme: dovetail plugins info acme shows more. Or define the operator")
    assert "\x1b" not in caplog.text


def test_an_unknown_standard_operator_gets_a_suggestion(site: Any) -> None:
    site.standard_operators()
    with pytest.raises(UnknownOperator, match=r"no operator ai.onnx::Convv is known") as caught:
        PluginManager().operator("", "Convv", 13)
    assert caught.value.hint.startswith("Did you mean 'Conv'?")


def test_a_pack_that_failed_or_is_blocked_is_named_with_its_reason(site: Any, pack: Any) -> None:
    site.plugin("ops", "acme", "raise ValueError('boom')")
    site.plugin("ops", "acme", pack("acme", "Twist"), name="switched-off")
    with pytest.raises(UnknownOperator) as caught:
        PluginManager(plugins="-switched-off").operator("acme", "Twist", 1)
    assert "fake-ops-acme 1.0 (failed: importing fake_ops_acme raised ValueError: boom)" in caught.value.message
    assert "switched-off 1.0 (blocked: switched off by plugins=)" in caught.value.message
    assert isinstance(caught.value.__cause__, ValueError)


# --- several packs ----------------------------------------------------------------------------------------------------


def test_packs_share_a_domain_as_long_as_they_share_no_operator(site: Any, pack: Any) -> None:
    site.plugin("ops", "acme", pack("acme", "Twist", "Both"), name="one")
    site.plugin("ops", "acme", pack("acme", "Shout", "Both", since=2), name="two")
    manager = PluginManager()
    assert manager.provider(manager.operator("acme", "Twist", 2)) == "one 1.0"
    assert manager.provider(manager.operator("acme", "Shout", 2)) == "two 1.0"
    assert manager.provider(manager.operator("acme", "Both", 1)) == "one 1.0"
    assert manager.provider(manager.operator("acme", "Both", 2)) == "two 1.0", "made for this version"
    assert PluginManager(prefer=["two"]).operator("acme", "Both", 2).since == 2
    assert PluginManager(prefer=["one"]).operator("acme", "Both", 2).since == 1
    assert PluginManager(plugins="-one").operator("acme", "Both", 2).since == 2


def test_the_same_class_from_two_packs_is_no_conflict(site: Any, pack: Any) -> None:
    site.plugin("ops", "acme", pack("acme", "Twist"), name="one")
    site.plugin(
        "ops",
        "acme",
        "from one import Twist\n@hookimpl\ndef dovetail_register_ops(registry):\n    registry.add(Twist)",
        name="two",
    )
    manager = PluginManager()
    assert manager.provider(manager.operator("acme", "Twist", 1)) == "one 1.0"


ASK_THE_OWNERS = """
    import os, sys
    real, backwards = os.listdir, os.environ["ORDER"] == "backwards"
    os.listdir = lambda folder: sorted(real(folder), reverse=backwards)
    folders = [sys.path[0] or sys.path[1], os.environ["SECOND"]]
    sys.path[:0] = folders[::-1] if backwards else folders
    from dovetail.errors import PluginConflict
    from dovetail.plugins import PluginManager
    manager = PluginManager()
    try:
        manager.device_info("ACME.1")
    except PluginConflict as error:
        print(error)
    decision = manager.decide("acme.two", "Twist", 1)
    print(decision.rule, [c.plugin for c in decision.candidates], sorted(decision.lost.items()))
    try:
        manager.operator("acme.two", "Differs", 1)
    except PluginConflict as error:
        print(error)
    print([r for r in manager.records() if r.key.startswith("acme") and r.state == "found"])
"""


def test_several_owners_give_one_answer_whatever_the_hash_seed_and_the_order_of_installation(
    site: Any, device: Any, pack: Any, tmp_path: Any
) -> None:
    second = type(site)(tmp_path / "second")
    for name, place in (("zeta", site), ("alpha", second), ("mid", site)):
        source = pack("acme.two", "Twist", "Differs").replace(
            "class Differs(Operator):", f"class Differs(Operator):\n    {name}: int = 1"
        )
        place.plugin("ops", "acme.two", source, name=name)
        device("acme", name=f"{name}-device")
    runs = (("0", "forwards"), ("1", "backwards"), ("77", "backwards"), ("77", "forwards"))
    answers = {site.run(ASK_THE_OWNERS, PYTHONHASHSEED=seed, ORDER=order, SECOND=str(second.folder)) for seed, order in runs}
    (answer,) = answers
    assert "alpha-device 1.0 and by mid-device 1.0 and by zeta-device 1.0" in answer
    assert "6 ['alpha/ops/acme.two', 'mid/ops/acme.two', 'zeta/ops/acme.two'] [('mid/ops/acme.two', 6), ('zeta/" in answer
    assert "acme.two::Differs is defined by alpha 1.0 and by mid 1.0, and not in the same way" in answer


# --- overrides --------------------------------------------------------------------------------------------------------


def test_an_override_changes_nothing_until_it_is_preferred(site: Any, pack: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    site.standard_operators()
    site.plugin("overrides", "ai.onnx", pack("", "Conv"), name="fast-conv")
    assert PluginManager().operator("", "Conv", 13) is ops.find("Conv", 13)
    assert "fast_conv" not in sys.modules
    monkeypatch.setenv("DOVETAIL_PREFER", "fast-conv")
    manager = PluginManager()
    conv = manager.operator("", "Conv", 13)
    assert manager.provider(conv) == "fast-conv 1.0"
    assert manager.operator("", "Relu", 13) is ops.find("Relu", 13)
    assert PluginManager(plugins="-fast-conv").operator("", "Conv", 13) is ops.find("Conv", 13)


def test_a_preferred_pack_that_fails_is_an_error(site: Any, pack: Any) -> None:
    site.plugin("ops", "acme", pack("acme", "Twist"), name="works")
    site.plugin("overrides", "acme", "raise ValueError('boom')", name="faster")
    assert PluginManager().operator("acme", "Twist", 1).op_type == "Twist"
    with pytest.raises(PluginFailed, match="faster/overrides/acme failed: importing faster raised ValueError: boom"):
        PluginManager(prefer=["faster"]).operator("acme", "Twist", 1)


def test_an_override_is_not_used_through_its_record(site: Any, pack: Any) -> None:
    site.plugin("overrides", "acme", pack("acme", "Twist"), name="faster")
    manager = PluginManager()
    with pytest.raises(UnknownOperator, match="opt-in: replaces operators of acme"):
        manager.operator("acme", "Twist", 1)
    assert manager.operators("acme") == ()


TRANSLATING = """
from dovetail.hookspecs import hookimpl
from dovetail.op import Operator, Translation

dovetail_api = "1.0"

class Twist(Operator):
    domain = "acme"
    translations = (Translation(domain="com.vendor", op_type="twisted"),)

    def reference(self, X):
        return X

@hookimpl
def dovetail_register_ops(registry, domain):
    registry.add(Twist)
"""


def test_a_pack_serves_the_domain_that_it_translates(site: Any) -> None:
    site.metadata("translator", {"ops": {"acme": "translator", "com.vendor": "translator"}})
    site.module("translator", TRANSLATING)
    manager = PluginManager()
    found = manager.operator("com.vendor", "twisted", 3)
    assert (found.domain, found.op_type) == ("acme", "Twist")
    assert manager.operator("acme", "Twist", 1) is found
    with pytest.raises(UnknownOperator, match=r"com.vendor::Twist(.|\n)*Did you mean 'twisted'\?"):
        manager.operator("com.vendor", "Twist", 1)


def test_what_a_pack_translates_counts_as_the_domain_s(site: Any) -> None:
    """A pack may have nothing else in a domain: its checks and `dovetail ops` find the classes there."""
    site.metadata("translator", {"ops": {"acme": "translator", "com.vendor": "translator"}})
    site.module("translator", TRANSLATING)
    manager = PluginManager()
    assert manager.operators("com.vendor") == manager.operators("acme") != ()
    checks = OpPackChecks("com.vendor", lambda: dovetail.Core(config=False))
    assert {cls.op_type for cls in checks.operators} == {"Twist"}


def test_a_pack_may_not_serve_a_domain_that_it_neither_owns_nor_translates(site: Any) -> None:
    site.metadata("stranger", {"ops": {"com.other": "stranger"}})
    site.module("stranger", TRANSLATING)
    manager = PluginManager()
    with pytest.raises(UnknownOperator, match=r"has domain 'acme', but the entry point owns 'com.other'"):
        manager.operator("com.other", "twisted", 1)


def test_without_the_pack_of_standard_operators_the_error_says_what_to_install(site: Any) -> None:
    with pytest.raises(UnknownOperator) as caught:
        PluginManager().operator("", "Conv", 13)
    assert caught.value.hint.startswith("Install a package with an entry point 'ai.onnx' in the group dovetail.ops: pip install ")


def test_a_pack_whose_hook_raises_is_not_told_to_install_itself(site: Any) -> None:
    site.plugin("ops", "com.acme", "@hookimpl\ndef dovetail_register_ops(registry, domain):\n    raise ValueError('why')")
    with pytest.raises(UnknownOperator, match=r"(?s)fake-ops-com-acme 1\.0 \(failed: .*why") as caught:
        PluginManager().operator("com.acme", "Twist", 1)
    assert "Install a package" not in caught.value.hint
