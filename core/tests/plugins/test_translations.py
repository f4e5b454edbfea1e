"""Operators of models that a pack expresses in others, without a class of its own: renamed, or as a sub-graph."""

import json
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import dovetail
from dovetail.cli import program
from dovetail.errors import OperatorError, PluginConflict, PluginFailed, UnknownOperator
from dovetail.graph import Graph
from dovetail.graph.builder import GraphBuilder
from dovetail.graph.model import Model
from dovetail.op import Operator, Translation, UnboundOperator
from dovetail.plugins import PluginManager
from dovetail.testing.packs import OpPackChecks
from dovetail_ops_onnx.concat import Concat
from dovetail_ops_onnx.gemm import Gemm
from dovetail_ops_onnx.leaky_relu import LeakyRelu
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.non_zero import NonZero
from dovetail_ops_onnx.sigmoid import Sigmoid
from dovetail_ops_onnx.split import Split

X = np.float32([[-2, 0.5, 3]])


def swish(g: Any, X: str, *, beta: float = 1.0) -> str:
    """X / (1 + exp(-beta * X))."""
    return str(g.node(Mul(), X, g.node(Sigmoid(), g.node(Mul(), X, g.constant(beta, g.type_of(X).dtype)))))


def gate(g: Any, X: str, bias: str = "", *more: str, times: int) -> tuple[str, ...]:
    halves: tuple[str, ...] = g.node(Split(axis=-1, num_outputs=2), g.node(Concat(axis=-1), *[X] * times, *more), outputs=2)
    return halves if not bias else (g.node(Mul(), halves[0], bias), halves[1])


def places(g: Any, X: str) -> str:
    return str(g.node(NonZero(), X))


TRANSLATIONS = (
    Translation(domain="com.acme", op_type="Leaky", to=LeakyRelu, attributes={"slope": "alpha"}),
    Translation(domain="com.acme", op_type="Linear", to=Gemm, inputs=(1, 0), attributes=lambda theirs: {"transB": theirs["t"]}),
    Translation(domain="com.acme", op_type="Swish2", to=swish, attributes={"alpha": "beta"}),
    Translation(domain="com.acme", op_type="Gate", to=gate, outputs=2),
    Translation(domain="com.acme", op_type="Where", to=places),
)


@pytest.fixture
def core() -> dovetail.Core:
    core = dovetail.Core(config=False)
    core.add_extension(TRANSLATIONS)
    return core


def model(op_type: str, *arrays: Any, outputs: int = 1, **attributes: Any) -> Model:
    g = GraphBuilder()
    names = ["" if a is None else g.input(f"x{i}", a.dtype.name, a.shape) for i, a in enumerate(arrays)]
    made = g.node(UnboundOperator("com.acme", op_type, 1, attributes), *names, name="it", outputs=outputs)
    return g.model(outputs=[made] if outputs == 1 else list(made))


def run(core: dovetail.Core, op_type: str, *arrays: Any, outputs: int = 1, **attributes: Any) -> tuple[Any, list[str]]:
    with core.compile_model(model(op_type, *arrays, outputs=outputs, **attributes), "NUMPY", {"FUSION": False}) as compiled:
        results = compiled({f"x{i}": a for i, a in enumerate(arrays) if a is not None})
        found = results[0] if outputs == 1 else tuple(results[i] for i in range(outputs))
        return found, [node.op for node in compiled.report().nodes]


def test_another_name_of_an_operator_that_exists(core: dovetail.Core) -> None:
    found, ran = run(core, "Leaky", X, slope=0.25)
    np.testing.assert_allclose(found, np.where(X < 0, X / 4, X))
    assert ran == ["LeakyRelu"]
    weights = np.float32([[1, 2, 3], [4, 5, 6]])
    np.testing.assert_allclose(run(core, "Linear", weights, X, t=1)[0], X @ weights.T)


@pytest.mark.parametrize(("attributes", "beta"), [({}, 1), ({"alpha": 2.0}, 2)])
def test_a_sub_graph(core: dovetail.Core, attributes: dict[str, float], beta: float) -> None:
    for x in (X, X.astype(np.float64)[0], X[:0]):
        found, ran = run(core, "Swish2", x, **attributes)
        assert (found.dtype, found.shape) == (x.dtype, x.shape)
        np.testing.assert_allclose(found, x / (1 + np.exp(-beta * x.astype(np.float64))), rtol=1e-6)
        assert "com.acme::Swish2" not in ran


def test_several_outputs_and_inputs_that_are_left_out(core: dovetail.Core) -> None:
    two, bias = X[:, :2], np.float32([3])
    np.testing.assert_array_equal(np.concatenate(run(core, "Gate", two, outputs=2, times=1)[0]), [[-2], [0.5]])
    first, second = run(core, "Gate", two, bias, outputs=2, times=2)[0]
    np.testing.assert_array_equal(first, 3 * two)
    np.testing.assert_array_equal(second, two)
    _, second = run(core, "Gate", two, None, two, 2 * two, outputs=2, times=2)[0]
    np.testing.assert_array_equal(second, np.concatenate([two, 2 * two], axis=1))


def test_shapes_that_depend_on_data(core: dovetail.Core) -> None:
    np.testing.assert_array_equal(run(core, "Where", np.float32([[1, 0], [0, 2]]))[0], [[0, 1], [0, 1]])


def test_what_is_known_is_computed_while_planning(core: dovetail.Core) -> None:
    g = GraphBuilder()
    x = g.input("x", "float32", X.shape)
    factor = g.node(UnboundOperator("com.acme", "Swish2", 1, {}), g.constant(np.float32(2)))
    with core.compile_model(g.model([g.node(Mul(), x, factor)]), "NUMPY") as compiled:
        assert [node.op for node in compiled.report().nodes] == ["Mul"]
        np.testing.assert_allclose(compiled(X)[0], X * 2 / (1 + np.exp(-2)), rtol=1e-6)


def test_inside_a_branch(core: dovetail.Core) -> None:
    def branch(op: Operator) -> Graph:
        inner = GraphBuilder("", {"x": dovetail.graph.TensorType(dovetail.graph.DType.FLOAT32, None)})
        return inner.graph([inner.node(op, "x")])

    g = GraphBuilder()
    g.input("x", "float32", X.shape)
    condition = g.input("condition", "bool", ())
    acme = branch(UnboundOperator("com.acme", "Swish2", 1, {}))
    raw = {"then_branch": acme, "else_branch": branch(Sigmoid())}
    compiled = core.compile_model(g.model([g.node(UnboundOperator("", "If", 21, raw), condition)]), "NUMPY")
    found = compiled({"x": X, "condition": np.array(True)})[0]
    np.testing.assert_allclose(found, X / (1 + np.exp(-X.astype(np.float64))), rtol=1e-6)


@pytest.mark.parametrize(
    ("op_type", "arrays", "attributes", "words"),
    [
        ("Leaky", [X], {"sloppy": 1.0}, r"'it' .*sloppy"),
        ("Swish2", [X], {"gamma": 1.0}, r"'it' \(com\.acme::Swish2\).*gamma.*"),
        ("Swish2", [X], {"alpha": "many"}, r"'it' .*'beta' is 'many'"),
        ("Swish2", [X, X], {}, r"'it' .*takes at most 1 inputs, got 2"),
        ("Gate", [X], {}, r"'it' .*times"),
        ("Gate", [X.astype(np.int32), X], {"times": 2}, r"'it' \(com\.acme::Gate\).*'gate/mul' \(Mul\).*must have the same type"),
    ],
)
def test_errors_name_the_node(core: dovetail.Core, op_type: str, arrays: Any, attributes: Any, words: str) -> None:
    with pytest.raises(OperatorError, match=words):
        core.compile_model(model(op_type, *arrays, **attributes), "NUMPY")


def test_a_function_that_returns_something_else() -> None:
    core = dovetail.Core(config=False)
    core.add_extension(Translation(domain="com.acme", op_type="Swish2", to=swish, outputs=2))
    with pytest.raises(
        OperatorError, match=r"'it' .*swish, which translates com\.acme::Swish2, returned(?s:.*)accepted: 2 names"
    ):
        core.compile_model(model("Swish2", X, outputs=2), "NUMPY")


@pytest.mark.parametrize(
    ("to", "words"),
    [
        (None, "has to=None(?s:.*)accepted: an operator class, or a function"),
        (Operator, "accepted: an operator class"),
        (LeakyRelu(), "accepted: an operator class"),
        (lambda g, X, scale=2: X, "is an input with the default 2"),
        (lambda g, X, *, scale: X, "is an attribute without a type"),
    ],
)
def test_what_is_no_translation(to: Any, words: str) -> None:
    with pytest.raises(OperatorError, match=words):
        dovetail.Core(config=False).add_extension(Translation(domain="com.acme", op_type="Swish2", to=to))


def test_in_a_file(tmp_path: Any) -> None:
    path = tmp_path / "theirs.py"
    path.write_text(
        "from dovetail.op import Translation\nfrom dovetail_ops_onnx.relu import Relu\n"
        "A, B = (Translation(domain='com.acme', op_type=n, to=Relu) for n in ('A', 'B'))\n"
    )
    core = dovetail.Core(config=False)
    assert [cls.op_type for cls in core.add_extension(path)] == ["A", "B"]
    np.testing.assert_array_equal(run(core, "B", X)[0], np.maximum(X, 0))


# --- packs ------------------------------------------------------------------------------------------------------------

PACK = """
from dovetail.op import Translation
from dovetail_ops_onnx.elu import Elu
from dovetail_ops_onnx.leaky_relu import LeakyRelu

@hookimpl
def dovetail_register_translations(registry, domain):
    registry.add(Translation(domain=domain, op_type="Leaky", to={to}, attributes={{"slope": "alpha"}}))
"""


def test_a_pack_of_translations_alone(site: Any) -> None:
    site.plugin("ops", "com.acme", PACK.format(to="LeakyRelu"), name="acme-names")
    core = dovetail.Core(config=False)
    assert core.analyze(model("Leaky", X, slope=0.5)).nodes[0].op.describe() == "alpha=0.5"
    assert core.plugins.record("acme-names").provides == ("com.acme::Leaky-1",)
    with pytest.raises(UnknownOperator, match=r"(?s)com\.acme::Leeky is known.*Did you mean 'Leaky'"):
        core.analyze(model("Leeky", X))


def test_the_commands_say_what_it_becomes(site: Any) -> None:
    site.plugin("ops", "com.acme", PACK.format(to="LeakyRelu"), name="acme-names")
    which = json.loads(CliRunner().invoke(program, ["plugins", "which", "com.acme::Leaky", "--json"]).stdout)
    assert [(c["provider"], c["becomes"]) for c in which["candidates"]] == [("acme-names 1.0", "ai.onnx::LeakyRelu")]
    assert "acme-names 1.0: ai.onnx::LeakyRelu" in CliRunner().invoke(program, ["plugins", "which", "com.acme::Leaky"]).stdout
    listed = json.loads(CliRunner().invoke(program, ["ops", "--domain", "com.acme", "--json"]).stdout)["operators"]
    assert [(o["operator"], o["brings"]) for o in listed] == [("com.acme::Leaky", ["another name of ai.onnx::LeakyRelu"])]


def test_the_conformance_kit_needs_no_cases_of_it(site: Any) -> None:
    site.plugin("ops", "com.acme", PACK.format(to="LeakyRelu"), name="acme-names")
    kit = OpPackChecks("com.acme", lambda: dovetail.Core(config=False))
    found = [(check.name, check.result().outcome.value) for check in kit.checks]
    assert found == [("com.acme-Leaky-translation", "passed"), ("manifest", "passed"), ("modules", "passed")]


def misspelled(g: Any, X: str) -> str:
    return str(g.node(Sigmod(), X))  # type: ignore[name-defined]  # noqa: F821


def two_names(g: Any, X: str) -> tuple[str, ...]:
    return X, X


@pytest.mark.parametrize(
    ("translation", "outcome", "detail"),
    [
        ({"to": swish, "attributes": {"alpha": "beta"}}, "passed", ""),
        ({"to": gate, "outputs": 2}, "refused", "times have no default"),
        ({"to": places}, "passed", ""),
        ({"to": LeakyRelu, "attributes": {"slope": "alfa"}}, "failed", "attributes maps to alfa; the attributes are: alpha"),
        ({"to": swish, "attributes": {"alpha": "bete"}}, "failed", "attributes maps to bete; the attributes are: beta"),
        ({"to": LeakyRelu, "inputs": (1, 0)}, "failed", "inputs has (1, 0); there are 1 inputs"),
        ({"to": misspelled}, "failed", "NameError: name 'Sigmod' is not defined"),
        ({"to": two_names}, "failed", "accepted: 1 names of values"),
    ],
)
def test_the_conformance_kit_checks_translations(translation: dict[str, Any], outcome: str, detail: str) -> None:
    def core() -> dovetail.Core:
        made = dovetail.Core(config=False)
        made.add_extension(Translation(domain="com.acme", op_type="Theirs", **translation))
        return made

    (result,) = (check.result() for check in OpPackChecks("com.acme", core).checks if check.group == "translations")
    assert (result.outcome.value, detail in result.detail) == (outcome, True), result.detail


def test_the_conformance_kit_checks_translations_of_classes() -> None:
    class Mine(Operator):
        """x."""

        domain = "com.mine"
        inputs = ("X: float32",)
        translations = (Translation(domain="com.acme", op_type="Theirs", attributes={"a": "wrong"}),)

        def reference(self, X: Any) -> Any:
            return X

    def core() -> dovetail.Core:
        made = dovetail.Core(config=False)
        made.add_extension(Mine)
        return made

    for domain in ("com.acme", "com.mine"):
        (result,) = (check.result() for check in OpPackChecks(domain, core).checks if check.group == "translations")
        assert result.detail == "attributes maps to wrong; the attributes are: none"


def test_a_manifest_has_the_names_that_are_translated(site: Any) -> None:
    source = """
    from dovetail.op import Operator, Translation
    class Mine(Operator):
        domain = "com.mine"
        translations = (Translation(domain="com.acme", op_type="Theirs"), Translation(domain="com.else", op_type="Other"))
        def reference(self, X):
            return X
    @hookimpl
    def dovetail_register_ops(registry, domain):
        registry.add(Mine)
    """
    site.plugin("ops", "com.acme", source, name="acme-names")
    manager = PluginManager(config=False)
    manager.operators("com.acme")
    assert manager.record("acme-names").provides == ("com.mine::Mine-1", "com.acme::Theirs-1")


def test_two_packs_that_mean_different_things(site: Any) -> None:
    site.plugin("ops", "com.acme", PACK.format(to="LeakyRelu"), name="acme-names")
    site.plugin("ops", "com.acme", PACK.format(to="Elu"), name="other-names")
    with pytest.raises(PluginConflict) as caught:
        dovetail.Core(config=False).analyze(model("Leaky", X))
    assert "operator com.acme::Leaky is defined by acme-names 1.0 and by other-names 1.0, and not in the" in str(caught.value)
    assert "DOVETAIL_PREFER=com.acme::Leaky=other-names" in str(caught.value)
    chosen = dovetail.Core(config=False, prefer={"com.acme::Leaky": "other-names"})
    assert chosen.analyze(model("Leaky", X)).nodes[0].op.key == "Elu"


def test_a_conflict_of_classes_is_named_as_the_model_names_it(site: Any) -> None:
    source = """
    from dovetail.op import Operator, Translation
    class Mine(Operator):
        domain = {domain!r}
        translations = (Translation(domain="com.acme", op_type="Leaky"),)
        {attribute}: float = 0.5
        def reference(self, X):
            return X
    @hookimpl
    def dovetail_register_ops(registry, domain):
        registry.add(Mine)
    """
    for name in ("one", "two"):
        site.plugin("ops", "com.acme", source.format(domain=name, attribute=name), name=f"acme-{name}")
    with pytest.raises(PluginConflict, match=r"operator com\.acme::Leaky is defined by(?s:.*)PREFER=com\.acme::Leaky=acme-one"):
        PluginManager().operator("com.acme", "Leaky", 1)
    assert PluginManager(prefer={"com.acme::Leaky": "acme-two"}).operator("com.acme", "Leaky", 1).domain == "two"


def test_a_pack_that_translates_twice_or_elsewhere(site: Any) -> None:
    twice = PACK.format(to="Elu") + "    registry.add(Translation(domain=domain, op_type='Leaky', to=LeakyRelu))\n"
    site.plugin("ops", "com.acme", twice, name="twice")
    with pytest.raises(PluginFailed, match=r"dovetail_register_translations raised .* are both com\.acme::Leaky-1"):
        PluginManager(prefer=["twice"]).operator("com.acme", "Leaky", 1)
    site.plugin("ops", "com.other", PACK.format(to="Elu").replace("domain=domain", "domain='com.acme'"), name="elsewhere")
    with pytest.raises(PluginFailed, match=r"has domain 'com\.acme', but the entry point owns 'com\.other'"):
        PluginManager(prefer=["elsewhere"]).operator("com.other", "Leaky", 1)
