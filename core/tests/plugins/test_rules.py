"""The six rules: each with a case in which it decides, against what every later rule would say."""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest

import dovetail
from dovetail.device import Accepted, Reason, Refusal, TypedNode
from dovetail.errors import OperatorError, PluginConflict, PluginError, PluginNotFound, UsageError
from dovetail.graph import Model
from dovetail.op import FLOATS, KernelSource, Operator, UnboundOperator
from dovetail.plugins import PluginManager
from dovetail.plugins.rules import RULES, Candidate, Suitability, decide
from dovetail_ops_onnx.relu import Relu


def operator(factor: float = 1, *, since: int = 1, kernels: Any = (), compose: Any = None, **more: Any) -> type[Operator]:
    """An operator acme::Scale that multiplies by `factor`, so that results show which class ran."""
    body: dict[str, Any] = {
        "__module__": "test_rules", "domain": "acme", "op_type": "Scale", "since": since, "kernels": kernels,
        "inputs": ("X: T",), "outputs": ("Y: T",), "types": {"T": FLOATS}, **more,
    }  # fmt: skip
    if compose is None:
        body["reference"] = lambda self, x: (factor * x).astype(x.dtype)
    else:
        body["compose"] = compose
    return type("Scale", (Operator,), body)


def candidate(name: str, cls: type[Operator] | None = None, **fields: Any) -> Candidate:
    fields = {"plugin": f"{name}/ops/acme", "distribution": name, "provider": f"{name} 1", "owner": True, **fields}
    return Candidate(cls or operator(), **fields)


def outcome(*candidates: Candidate, suitability_of: Any = None) -> tuple[str, int]:
    """Winner and rule, the same whatever the order."""
    decisions = [decide(order, suitability_of) for order in itertools.permutations(candidates)]
    (found,) = {(d.winner.distribution, d.rule) for d in decisions}
    (listed,) = {tuple(c.distribution for c in d.candidates) for d in decisions}
    assert listed[0] == found[0]
    assert sorted(listed) == sorted(c.distribution for c in candidates)
    assert all(set(d.lost) == {c.plugin for c in candidates if c is not d.winner} for d in decisions)
    return found


# --- one rule at a time; `a` wins by every later rule ---------------------------------------------------------------------


def suitability(**by_name: Suitability) -> Callable[[Candidate], Suitability]:
    return lambda c: by_name[c.distribution]


def test_one_candidate_needs_no_rule() -> None:
    assert outcome(candidate("a")) == ("a", 0)
    assert decide([candidate("a")]).is_settled


def test_rule_1_what_the_user_prefers() -> None:
    better = suitability(a=Suitability((0,), frozenset({"float32"})), z=Suitability((2,)))
    a, z = candidate("a", operator(since=2), priority=9), candidate("z", owner=False, rank=1)
    assert outcome(a, z, suitability_of=better) == ("z", 1)
    assert decide([a, z], better).is_settled
    assert outcome(candidate("a", rank=1), candidate("z", rank=2)) == ("z", 1)


@pytest.mark.parametrize(("first", "second"), [((0,), (1,)), ((1,), (2,)), ((2,), (3,)), ((1, 0), (1, 2))])
def test_rule_2_kernel_before_composition_before_reference(first: tuple[int, ...], second: tuple[int, ...]) -> None:
    suitability_of = suitability(a=Suitability(second, frozenset({"float32"})), z=Suitability(first))
    a, z = candidate("a", operator(since=2), priority=9), candidate("z", owner=False)
    assert outcome(a, z, suitability_of=suitability_of) == ("z", 2)
    assert not decide([a, z], suitability_of).is_settled
    assert outcome(a, z) == ("a", 3), "without a device the rule is left out"


def test_rule_3_exactly_the_data_type() -> None:
    suitability_of = suitability(a=Suitability((0,)), z=Suitability((0,), frozenset({"float32"})))
    assert outcome(candidate("a", priority=9), candidate("z", owner=False), suitability_of=suitability_of) == ("z", 3)
    two = suitability(a=Suitability((0,), frozenset({"float32", "float16"})), z=Suitability((0,), frozenset({"float32"})))
    assert outcome(candidate("a"), candidate("z"), suitability_of=two) == ("z", 3)


@pytest.mark.parametrize(("narrow", "wide"), [((3, None), (1, None)), ((1, 4), (1, None)), ((2, 3), (1, 4))])
def test_rule_3_exactly_the_operator_set_version(narrow: tuple[int, Any], wide: tuple[int, Any]) -> None:
    a = candidate("a", operator(since=wide[0]), until=wide[1], priority=9)
    z = candidate("z", operator(since=narrow[0]), until=narrow[1], owner=False)
    assert outcome(a, z) == ("z", 3)


def test_rule_3_leaves_ranges_that_only_overlap() -> None:
    a, z = candidate("a", operator(since=1), until=5), candidate("z", operator(since=3))
    assert outcome(a, z) == ("a", 6)
    other = suitability(a=Suitability((0,), frozenset({"float32", "int8"})), z=Suitability((0,), frozenset({"float32", "int4"})))
    assert outcome(candidate("a"), candidate("z"), suitability_of=other) == ("a", 6)
    crossed = suitability(a=Suitability((0,), frozenset({"float32"})), z=Suitability((0,)))
    assert outcome(candidate("a"), candidate("z", operator(since=3)), suitability_of=crossed) == ("a", 6)


def test_rule_4_the_owner_of_the_domain() -> None:
    assert outcome(candidate("a", owner=False, priority=9), candidate("z")) == ("z", 4)


def test_rule_5_declared_priority() -> None:
    assert outcome(candidate("a"), candidate("z", priority=1)) == ("z", 5)
    assert outcome(candidate("a", priority=-1), candidate("z")) == ("z", 5)


def test_rule_6_the_name_of_the_distribution() -> None:
    assert outcome(candidate("b"), candidate("a"), candidate("c")) == ("a", 6)


def test_each_loser_knows_its_rule_and_the_last_one_counts() -> None:
    decision = decide([candidate("a"), candidate("b", priority=1), candidate("c", owner=False), candidate("d", priority=1)])
    assert (decision.winner.distribution, decision.rule) == ("b", 6)
    assert dict(decision.lost) == {"a/ops/acme": 5, "c/ops/acme": 4, "d/ops/acme": 6}


def test_every_rule_has_a_text() -> None:
    assert list(RULES) == [1, 2, 3, 4, 5, 6]
    assert all(RULES.values())


# --- schemas ------------------------------------------------------------------------------------------------------------


def attributes(**hints: Any) -> dict[str, Any]:
    return {"__annotations__": hints}


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        ({"inputs": ("X: T", "B?: T")}, "the number of inputs is 1 in the one, 2 in the other"),
        ({"outputs": ("Y: T", "Z: T")}, "the number of outputs is 1 in the one, 2"),
        ({"inputs": ("X?: T",)}, "input 0 is bfloat16, float16, float32, float64 in the one, optional bfloat16"),
        ({"inputs": ("X*: T",)}, "input 0 is bfloat16, float16, float32, float64 in the one, variadic bfloat16"),
        ({"types": {"T": FLOATS - {dovetail.DType.FLOAT64}}}, "in the one, bfloat16, float16, float32 in the other"),
        ({"types": {"T": FLOATS, "U": FLOATS}, "outputs": ("Y: U",)}, r"output 0 is .* \(as input 0\) in the one"),
        (attributes(alpha=float) | {"alpha": 1.0}, "attribute 'alpha' is missing in the one, float, default 1.0 in the other"),
        (attributes(alpha=float), "attribute 'alpha' is missing in the one, float, required in the other"),
        ({"legacy_attributes": {"axes": "X"}}, "old attribute 'axes' is missing in the one, input 0 in the other"),
    ],
)  # fmt: skip
def test_different_schemas_are_a_conflict(other: dict[str, Any], difference: str) -> None:
    both = candidate("one"), candidate("two", operator(**other))
    for order in (both, both[::-1]):
        with pytest.raises(PluginConflict, match=difference) as caught:
            decide(order)
        assert caught.value.message.startswith("operator acme::Scale is defined by one 1 and by two 1, and not in the same way")
        assert caught.value.hint == "choose one: DOVETAIL_PREFER=acme::Scale=one or DOVETAIL_PREFER=acme::Scale=two"


def test_names_of_ports_and_kernels_make_no_difference() -> None:
    other = operator(inputs=("data: E",), outputs=("result: E",), types={"E": FLOATS}, in_place=True)
    assert outcome(candidate("one"), candidate("two", other)) == ("one", 6)


def test_what_the_user_prefers_may_have_another_schema() -> None:
    other = operator(inputs=("X: T", "B?: T"))
    assert outcome(candidate("one"), candidate("two", other, rank=1)) == ("two", 1)


# --- from packs to candidates ---------------------------------------------------------------------------------------------


def test_pins(site: Any, pack: Any) -> None:
    for name in ("one", "two"):
        site.plugin("ops", "acme", pack("acme", "Twist", "Turn"), name=name)
    site.plugin("overrides", "acme", pack("acme", "Twist", "Turn"), name="extra")

    def winners(prefer: Any) -> list[tuple[str, int]]:
        manager = PluginManager(prefer=prefer)
        decisions = (manager.decide("acme", op, 1) for op in ("Twist", "Turn"))
        return [(d.winner.distribution, d.rule) for d in decisions]

    assert winners(()) == [("one", 6), ("one", 6)]
    assert winners({"acme::Twist": "two"}) == [("two", 1), ("one", 6)]
    assert winners(["acme::Twist=two"]) == [("two", 1), ("one", 6)]
    assert winners({"acme::Twist": "extra"}) == [("extra", 1), ("one", 6)], "an override, for this operator only"
    assert winners(["two", "acme::Twist=one"]) == [("one", 1), ("two", 1)], "a pin comes before the list"
    assert winners("extra, two") == [("extra", 1), ("extra", 1)]
    assert winners(["acme"]) == [("one", 6), ("one", 6)], "the entry name prefers them all; the override is not the owner"
    assert dict(PluginManager(prefer=["acme"]).decide("acme", "Twist", 1).lost) == {"extra/overrides/acme": 4, "two/ops/acme": 6}


def test_a_pin_to_the_owner_of_the_domain(site: Any, pack: Any) -> None:
    site.standard_operators()
    site.plugin("overrides", "ai.onnx", pack("", "Relu", "Abs"), name="fast")
    manager = PluginManager(prefer=["fast", "Relu=dovetail-ops-onnx"])
    assert manager.operator("", "Relu", 14) is Relu
    assert manager.provider(manager.operator("", "Abs", 13)) == "fast 1.0"


@pytest.mark.parametrize(
    ("prefer", "error", "message", "hint"),
    [
        ({"Twist": "on"}, PluginNotFound, r"'on' \(named by prefer=\)", "Did you mean 'one'?"),
        ({"acme::Twist": "far"}, UsageError, "acme::Twist to 'far', which has no operators of that", "packs that have: one"),
        ({"acme::Twist": "dovetail"}, PluginNotFound, "'dovetail'", ""),
        (["a b=one"], UsageError, "'a b=one' pins no operator", "domain::Operator=name"),
        (["acme::Twist="], UsageError, "pins no operator", ""),
        (["Conv=one", "ai.onnx::Conv=one"], UsageError, "prefer= pins Conv twice", ""),
    ],
)  # fmt: skip
def test_pins_that_cannot_be_meant(site: Any, pack: Any, prefer: Any, error: Any, message: str, hint: str) -> None:
    site.plugin("ops", "acme", pack("acme", "Twist"), name="one")
    site.plugin("ops", "other", pack("other", "X"), name="far")
    with pytest.raises(error, match=message) as caught:
        PluginManager(prefer=prefer)
    assert hint in caught.value.hint


def test_a_pin_to_a_pack_that_does_not_define_the_operator_is_an_error_for_who_uses_it(site: Any, pack: Any) -> None:
    site.plugin("ops", "acme", pack("acme", "Twist"), name="one")
    site.plugin("ops", "acme", pack("acme", "Turn"), name="two")
    manager = PluginManager(prefer={"acme::Twist": "two"})
    assert manager.operator("acme", "Turn", 1)
    with pytest.raises(PluginError, match="pins acme::Twist to 'two', which does not define it in version 1") as caught:
        manager.operator("acme", "Twist", 1)
    assert caught.value.hint == "plugins that define it: one 1.0"
    blocked = PluginManager(prefer={"acme::Twist": "two"}, plugins="-two")
    with pytest.raises(PluginError, match="pins acme::Twist to 'two', which is blocked: switched off by plugins="):
        blocked.operator("acme", "Twist", 1)


def test_priority_is_declared_in_the_module(site: Any, pack: Any) -> None:
    site.plugin("ops", "acme", pack("acme", "Twist"), name="one")
    site.plugin("ops", "acme", pack("acme", "Twist") + "dovetail_priority = 10\n", name="two")
    site.plugin("ops", "acme", pack("acme", "Twist") + "dovetail_priority = True\n", name="wrong")
    manager = PluginManager()
    decision = manager.decide("acme", "Twist", 1)
    assert (decision.winner.provider, decision.rule) == ("two 1.0", 5)
    assert manager.record("wrong").reason == "dovetail_priority is True"


def test_an_operator_of_the_session_goes_first_and_needs_no_pack_to_load(site: Any) -> None:
    site.plugin("ops", "acme", "raise ValueError('boom')", name="broken")
    manager = PluginManager(prefer=["broken"])
    mine = operator()
    manager.add_operator(mine, "notebook")
    assert manager.operator("acme", "Scale", 1) is mine


def test_packs_that_differ_fail_only_the_model_that_uses_the_operator(site: Any, pack: Any) -> None:
    site.plugin("ops", "acme", pack("acme", "Twist", "Same"), name="one")
    more = pack("acme", "Twist", "Same").replace("class Twist(Operator):", "class Twist(Operator):\n    turns: int = 1")
    site.plugin("ops", "acme", more, name="two")
    core = dovetail.Core()
    core.analyze(unbound("Same"))
    with pytest.raises(PluginConflict, match="attribute 'turns' is missing in the one, int, default 1 in the other") as caught:
        core.analyze(unbound("Twist"))
    line = caught.value.hint.rpartition(" or ")[2].removeprefix("DOVETAIL_PREFER=")
    (node,) = dovetail.Core(prefer=[line]).analyze(unbound("Twist")).nodes
    assert node.op.turns == 1


def unbound(op_type: str = "Scale", version: int = 1, dtype: str = "float32") -> Model:
    """A model with one node of domain acme as a frontend reads it."""
    g = dovetail.GraphBuilder()
    x = g.input("x", dtype, [3])
    return g.model([g.node(UnboundOperator("acme", op_type, version, {}), x, name="scale", outputs=["y"])])


# --- in a plan ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ToyKernel(KernelSource):
    """A kernel that runs on devices of type TOY; `entry` is a mapping from data types, or any text."""

    language: ClassVar[str] = "toy"
    entry: str | Mapping[str, str] = "f"


def supports(node: TypedNode) -> Accepted | Refusal:
    """The answer of a device that takes such kernels and references."""
    first = node.inputs[0]
    assert first is not None
    for kernel in node.op.kernels:
        if isinstance(kernel, ToyKernel) and (isinstance(kernel.entry, str) or first.dtype.value in kernel.entry):
            return Accepted("own")
    return Accepted("ref") if node.op.has_reference() else Refusal(Reason.OPERATOR, node.op.key)


@pytest.fixture
def planned(toy_core: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`planned(a=Scale, z=Scale)`: (factor, kernel, provider, rule) of acme::Scale on TOY when packs have these classes."""

    def run(device: str = "TOY", dtype: str = "float32", version: int = 1, **packs: Any) -> tuple[Any, ...]:
        core, opened = toy_core(TOY=lambda node: False, PLAIN=lambda node: False)
        for name, cls in packs.items():
            core.plugins.register(pack_of(*(cls if isinstance(cls, tuple) else (cls,))), name=name, kind="ops", key="acme")
        for name in core.available_devices:
            core.compile_model(unbound_relu(), name)
        monkeypatch.setattr(opened[0], "supports", supports)
        compiled = core.compile_model(unbound(version=version, dtype=dtype), device)
        (y,) = compiled(np.array([1, 2, 3], dtype)).values()
        assert (y / y[0]).tolist() == [1, 2, 3]
        node = compiled.report().nodes[0]
        assert core.query_model(unbound(version=version, dtype=dtype), device)
        return y[0], node.provider, node.rule

    return run


def unbound_relu() -> Model:
    g = dovetail.GraphBuilder()
    return g.model([g.node(Relu(), g.input("x", "float32", [1]))])


def pack_of(*classes: type[Operator], priority: int = 0) -> ModuleType:
    module = ModuleType("pack")

    @dovetail.hookimpl
    def dovetail_register_ops(registry: Any) -> None:
        for cls in classes:
            registry.add(cls)

    vars(module).update(dovetail_api="1.0", dovetail_priority=priority, dovetail_register_ops=dovetail_register_ops)
    return module


def composed(factor: float) -> Any:
    def compose(self: Any, g: Any, X: str) -> Any:
        from dovetail_ops_onnx.mul import Mul

        return g.node(Mul(), X, g.constant(np.asarray(factor, g.type_of(X).dtype.numpy)))

    return compose


KERNEL = (ToyKernel(),)


def test_a_plan_with_one_definition_names_no_rule(planned: Any) -> None:
    assert planned(a=operator(2)) == (2, "a", 0)


def test_a_plan_takes_the_kernel_for_its_device(planned: Any) -> None:
    packs = {"a": operator(2), "z": operator(3, kernels=KERNEL)}
    assert planned(**packs) == (3, "z", 2)
    assert planned("PLAIN", **packs) == (2, "a", 6), "another device, another class"


def test_a_plan_takes_a_composition_before_a_reference(planned: Any) -> None:
    assert planned(a=operator(2), z=operator(compose=composed(3)))[::2] == (3, 2)


def test_a_plan_takes_the_kernel_made_for_the_data_type(planned: Any) -> None:
    packs = {"a": operator(2, kernels=KERNEL), "z": operator(3, kernels=(ToyKernel(entry={"float32": "f"}),))}
    assert planned(**packs) == (3, "z", 3)
    assert planned(dtype="float64", **packs) == (2, "a", 2), "there the other one has no kernel"


def test_a_plan_takes_the_class_made_for_the_version(planned: Any) -> None:
    packs = {"a": operator(2), "z": operator(3, since=5)}
    assert planned(version=5, **packs) == (3, "z", 3)
    assert planned(version=4, **packs) == (2, "a", 0)


def test_attributes_go_along_with_the_change_of_class(toy_core: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    core, opened = toy_core(TOY=lambda node: False)
    hints = attributes(alpha=float, axes=tuple[int, ...]) | {"alpha": 1.0, "axes": ()}
    for name, kernels in (("a", ()), ("z", KERNEL)):
        core.plugins.register(pack_of(operator(1, kernels=kernels, **hints)), name=name, kind="ops", key="acme")
    core.compile_model(unbound_relu(), "TOY")
    monkeypatch.setattr(opened[0], "supports", supports)
    g = dovetail.GraphBuilder()
    node = UnboundOperator("acme", "Scale", 1, {"alpha": 2.5, "axes": [1, 2]})
    core.compile_model(g.model([g.node(node, g.input("x", "float32", [3]))]), "TOY")
    op = opened[0].compiled[-1].nodes[0].op
    assert (op.kernels, op.alpha, op.axes) == (KERNEL, 2.5, (1, 2))


def test_a_class_that_infers_something_else_is_found_out(toy_core: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    core, opened = toy_core(TOY=lambda node: False)
    wrong = operator(3, kernels=KERNEL, infer=lambda self, X: X.with_shape((7, 7)))
    for name, cls in (("a", operator(2)), ("z", wrong)):
        core.plugins.register(pack_of(cls), name=name, kind="ops", key="acme")
    core.compile_model(unbound_relu(), "TOY")
    monkeypatch.setattr(opened[0], "supports", supports)
    with pytest.raises(OperatorError, match=r"output 'y' is float32\[7, 7\] by z, float32\[3\] by a"):
        core.compile_model(unbound(), "TOY")
