"""Sessions: choosing devices, placing nodes, reports, properties and extensions."""

import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.device import Reason, Refusal
from dovetail.errors import CompileError, DeviceNotFound, UnsupportedNode, UsageError
from dovetail.graph import Model
from dovetail.op import Operator, UnboundOperator
from dovetail_ops_onnx.batch_normalization import BatchNormalization
from dovetail_ops_onnx.concat import Concat
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.expand import Expand
from dovetail_ops_onnx.reduce_max import ReduceMax
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.sigmoid import Sigmoid
from dovetail_ops_onnx.tanh import Tanh


class Bounded(Operator):
    """A composition of something that the device takes and something that it refuses."""

    domain = "test"

    def compose(self, g: Any, x: str) -> Any:
        return g.node(Relu(), g.node(Tanh(), x))


def nothing(node: Any) -> bool:
    return False


def refuses_tanh(node: Any) -> bool:
    return bool(node.op.op_type == "Tanh")


def chain(dim: int | str = 3) -> Model:
    g = dovetail.GraphBuilder()
    x = g.input("x", "float32", [dim])
    return g.model([g.node(Sigmoid(), g.node(Tanh(), g.node(Relu(), x)))])


def expected(x: Any) -> Any:
    return 1 / (1 + np.exp(-np.tanh(np.maximum(x.astype(np.float64), 0))))


X = np.array([-1, 0.5, 2], np.float32)


def test_auto_takes_the_device_of_highest_priority(toy_core: Any) -> None:
    core, _ = toy_core(FIRST=nothing, SECOND=nothing)
    assert core.available_devices == ["FIRST.0", "SECOND.0"]
    assert core.compile_model(chain()).device == "FIRST.0"
    assert core.compile_model(chain(), "second").device == "SECOND.0"
    assert core.compile_model(chain(), "CPU").device == "FIRST.0"


def test_an_unknown_device_is_an_error_with_a_suggestion(toy_core: Any) -> None:
    core, _ = toy_core(ALPHA=nothing)
    with pytest.raises(DeviceNotFound, match=r"ALPHA"):
        core.compile_model(chain(), "ALPHAA")
    with pytest.raises(DeviceNotFound, match=r"no GPU device is available; found: ALPHA.0 .CPU."):
        core.compile_model(chain(), "GPU")
    with pytest.raises(UsageError, match=r"virtual device 'MIX'"):
        core.compile_model(chain(), "MIX:ALPHA")


def test_devices_together_give_each_node_to_the_first_that_takes_it(toy_core: Any) -> None:
    core, _ = toy_core(A=refuses_tanh, B=nothing)
    compiled = core.compile_model(chain(), "TOGETHER:A,B")
    np.testing.assert_allclose(compiled(X)[0], expected(X), rtol=1e-6)
    report = compiled.report()
    assert [(n.op, n.device) for n in report.nodes] == [("Relu", "A.0"), ("Tanh", "B.0"), ("Sigmoid", "A.0")]
    assert report.nodes[1].refusals == (("A.0", Refusal(Reason.OPERATOR, "Tanh")),)
    assert report.partitions == 3
    assert report.memory == {"A.0": 24, "B.0": 12}
    assert set(report.seconds) == {"passes", "compile"}
    assert report.nodes[0].provider == f"dovetail-ops-onnx {dovetail.__version__}"


def test_only_a_node_that_moves_to_a_device_that_nobody_asked_for_is_logged(
    toy_core: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    core, _ = toy_core(A=refuses_tanh, B=nothing)
    monkeypatch.setattr("dovetail.runtime.session.REFERENCE_DEVICE", "B.0")
    with caplog.at_level(logging.WARNING, "dovetail"):
        core.compile_model(chain(), "TOGETHER:A,B")
        assert not caplog.records
        core.compile_model(chain(), "A")
    assert "node tanh (Tanh) runs on B.0; A.0: no kernel for this operator: Tanh" in caplog.text


def test_a_node_that_moves_is_logged_once_a_model_not_once_a_shape(
    toy_core: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    core, _ = toy_core(A=refuses_tanh, B=nothing)
    monkeypatch.setattr("dovetail.runtime.session.REFERENCE_DEVICE", "B.0")
    with caplog.at_level(logging.WARNING, "dovetail"):
        for models in (1, 2):
            compiled = core.compile_model(chain("N"), "A", {"PLAN_CACHE": 1})
            for size in (2, 3, 2):
                compiled({0: X[:size]})
            assert [record.getMessage().partition(":")[2] for record in caplog.records] == [
                " node tanh (Tanh) runs on B.0; A.0: no kernel for this operator: Tanh"
            ] * models


def test_a_node_that_nobody_takes_is_an_error(toy_core: Any) -> None:
    core, _ = toy_core(A=refuses_tanh)
    with pytest.raises(UnsupportedNode, match=r"no device runs node 'tanh' \(Tanh\) .*float32\[3\].*A.0: no kernel") as caught:
        core.compile_model(chain(), "A", {"FALLBACK": False})
    assert caught.value.hint == "let FALLBACK be True"


def test_an_answer_that_is_neither_accepted_nor_a_refusal_is_an_error(toy_core: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    core, _ = toy_core(A=nothing)
    monkeypatch.setattr("dovetail.devices.contract.Device.accepts", lambda self, node: True)
    with pytest.raises(CompileError, match=r"device A.0: supports\(\) gave True for node 'relu' \(Relu\)\n  accepted: Accep"):
        core.compile_model(chain(), "A")


def test_query_model_tells_device_or_refusal(toy_core: Any) -> None:
    core, opened = toy_core(A=refuses_tanh)
    answer = core.query_model(chain("N"), "A")
    assert answer == {"relu": "A.0", "tanh": Refusal(Reason.OPERATOR, "Tanh"), "sigmoid": "A.0"}
    assert opened[0].compiled == []


def test_query_model_answers_for_merged_and_expanded_nodes(toy_core: Any) -> None:
    core, _ = toy_core(A=lambda node: node.op.op_type in ("BatchNormalization", "Tanh"))
    g = dovetail.GraphBuilder()
    x = g.input("x", "float32", [1, 2, 3, 3])
    conv = g.node(Conv(), x, g.constant(np.ones((2, 2, 1, 1)), "float32"))
    norm = g.node(BatchNormalization(), conv, *(g.constant(np.ones(2), "float32") for _ in range(4)))
    bounded = g.node(Bounded(), norm)
    assert core.query_model(g.model([bounded]), "A") == {
        "conv": "A.0",
        "batch_normalization": "A.0",
        "bounded": Refusal(Reason.OPERATOR, "Tanh"),
    }


def test_a_wrong_report_of_a_device_is_its_error(toy_core: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    core, opened = toy_core(A=nothing)
    core.compile_model(chain(), "A")
    honest = opened[0].compile

    def lying(graph: Any, options: Any) -> Any:
        made = honest(graph, options)
        made.reports = tuple(type(r)("ghost", r.op, r.kernel) for r in made.reports)
        return made

    monkeypatch.setattr(opened[0], "compile", lying)
    compiled = core.compile_model(chain(), "A")
    with pytest.raises(CompileError, match=r"A.0 reports a node 'ghost'"):
        compiled.report()


def test_a_report_is_made_when_it_is_read(toy_core: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    core, opened = toy_core(A=nothing)
    core.compile_model(chain(), "A")
    honest, read = opened[0].compile, []

    def counting(graph: Any, options: Any) -> Any:
        made = honest(graph, options)
        reports = made.reports
        found = type(made)
        monkeypatch.setattr(found, "reports", property(lambda self: read.append(self) or reports, lambda self, _: None), False)
        del made.__dict__["reports"]
        return made

    monkeypatch.setattr(opened[0], "compile", counting)
    compiled = core.compile_model(chain(), "A")
    compiled.create_infer_request()
    assert read == []
    assert compiled.report() is compiled.report()
    assert len(read) == 1
    assert compiled.report().seconds.keys() == {"passes", "compile"}


@pytest.mark.parametrize(
    "properties", [{"FUSION": 1}, {"PLAN_CACHE": 0}, {"PLAN_CACHE": True}, {"MEMORY_LIMIT": "1 GB"}, {"FALLBACK": None}]
)
def test_a_property_of_the_wrong_type_is_an_error(toy_core: Any, properties: dict[str, Any]) -> None:
    core, _ = toy_core(A=nothing)
    with pytest.raises(UsageError, match=f"property {next(iter(properties))} is .*; accepted"):
        core.compile_model(chain(), "A", properties)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda core: core.compile_model(chain(), None), "a device cannot be a NoneType; accepted: a name"),
        (lambda core: core.compile_model(3, "A"), "a model cannot be a int; accepted: a path, or bytes"),
        (lambda core: core.compile_model(chain(), "A", "FAST"), "properties are 'FAST'; accepted: a mapping"),
        (lambda core: core.set_property("A", ["FUSION"]), "properties are .*'FUSION'.*; accepted: a mapping"),
        (lambda core: core.set_property("B", {"FUSION": False}), "no installed plugin provides the device 'B'.*Known: .*A"),
        (lambda core: dovetail.AsyncInferQueue(core.compile_model(chain(), "A"), jobs="2"), "jobs is '2'; accepted"),
    ],
)
def test_wrong_kinds_of_arguments_are_named(toy_core: Any, ask: Any, message: str) -> None:
    core, _ = toy_core(A=nothing)
    with pytest.raises(dovetail.DovetailError) as caught:
        ask(core)
    assert re.search(message.replace("; ", ".*"), f"{caught.value.message} {caught.value.hint}"), str(caught.value)


def test_a_property_of_the_core_that_is_misspelt(toy_core: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    core, opened = toy_core(A=nothing)
    core.compile_model(chain(), "A")

    def strict(options: Any) -> Any:
        raise UsageError(f"A has no option {next(iter(options))!r}", hint="known: SPEED")

    monkeypatch.setattr(opened[0], "configured", strict)
    for name, hint in (("Fuson", "known: SPEED; a property of every device: FUSION"), ("COLOUR", "known: SPEED")):
        with pytest.raises(UsageError) as caught:
            core.compile_model(chain(), "A", {name: False})
        assert (caught.value.message, caught.value.hint) == (f"A has no option {name!r}", hint)


def test_a_report_in_words(toy_core: Any) -> None:
    core, _ = toy_core(A=nothing)
    report = core.compile_model(chain(), "A").report()
    assert str(report).splitlines() == [str(node) for node in report.nodes]
    assert re.match(r"relu \(Relu\) on A.0 by \w+ of \S", str(report))


def test_device_properties_reach_the_device(toy_core: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    core, opened = toy_core(A=nothing)
    core.set_property("A", {"SPEED": 1, "COLOUR": "red"})
    core.compile_model(chain(), "A")
    seen: list[Any] = []
    honest = opened[0].compile
    monkeypatch.setattr(opened[0], "compile", lambda graph, options: seen.append(dict(options)) or honest(graph, options))
    core.compile_model(chain(), "A.0", {"SPEED": 2, "FUSION": False})
    assert seen == [{"SPEED": 2, "COLOUR": "red"}]


def test_a_tensor_over_the_memory_limit_is_refused_before_it_is_made(toy_core: Any) -> None:
    core, _ = toy_core(A=nothing)
    g = dovetail.GraphBuilder()
    x = g.input("x", "float32", [200])
    model = g.model([g.node(Concat(axis=0), x, x, name="double")])
    with pytest.raises(dovetail.DovetailError, match=r"node 'double' .* asks for .* 1,600 bytes; the limit is 1,000"):
        core.compile_model(model, "A", {"MEMORY_LIMIT": 1000})


@pytest.mark.parametrize("size", [1_000_000, 2**62])
def test_an_input_over_the_memory_limit_is_refused(size: int) -> None:
    """With nothing else in the model that is as large; offsets of more than 64 bits cannot be planned."""
    g = dovetail.GraphBuilder()
    model = g.model([g.node(ReduceMax(), g.input("x", "float32", [size, 4]))])
    with pytest.raises(dovetail.errors.OutOfMemory, match=rf"input 'x' is .* takes {16 * size:,} bytes; the limit is 1,000"):
        dovetail.Core(config=False).compile_model(model, "NUMPY", {"MEMORY_LIMIT": 1000})


def test_values_that_are_too_much_together_are_refused_too() -> None:
    g = dovetail.GraphBuilder()
    x = g.input("x", "float32", [1000])
    model = g.model([g.node(op, x, name=f"r{i}") for i, op in enumerate((Relu(), Sigmoid(), Tanh()))])
    core = dovetail.Core(config=False)
    with pytest.raises(dovetail.errors.OutOfMemory, match=r"a request needs 16,\d+ bytes on NUMPY.* node 'r\d' .*limit is 9,000"):
        core.compile_model(model, "NUMPY", {"MEMORY_LIMIT": 9000})
    compiled = core.compile_model(model, "NUMPY", {"MEMORY_LIMIT": 20_000})
    assert set(compiled(np.ones(1000, np.float32))) == set(model.outputs)


class Wide(Operator):
    domain = "test"

    def compose(self, g: Any, x: str) -> Any:
        wide = g.node(Expand(), x, g.constant([1_000_000, 3], "int64"))
        return g.node(ReduceMax(keepdims=False), wide, g.constant([0], "int64"))


def test_the_memory_limit_holds_inside_compositions(toy_core: Any) -> None:
    core, _ = toy_core(A=nothing)
    g = dovetail.GraphBuilder()
    model = g.model([g.node(Wide(), g.input("x", "float32", [3]))])
    with pytest.raises(dovetail.DovetailError, match=r"node 'wide/expand' .* 12,000,000 bytes; the limit is 1,000"):
        core.compile_model(model, "A", {"MEMORY_LIMIT": 1000})


EXTENSION = """
import numpy as np
from dovetail.op import FLOATS, Operator

class Twice(Operator):
    domain = "my.ops"
    inputs = ("X: T",)
    types = {"T": FLOATS}
    def reference(self, X):
        return X * X.dtype.type(2)
"""


def test_an_operator_from_a_file_runs_at_once(toy_core: Any, tmp_path: Path) -> None:
    core, _ = toy_core(A=nothing)
    (tmp_path / "my_ops.py").write_text(EXTENSION)
    (added,) = core.add_extension(tmp_path / "my_ops.py")
    g = dovetail.GraphBuilder()
    x = g.input("x", "float32", [3])
    compiled = core.compile_model(g.model([g.node(UnboundOperator("my.ops", "Twice", 1, {}), x)]), "A")
    np.testing.assert_array_equal(compiled(X)[0], X * 2)
    assert added.op_type == "Twice"
    assert compiled.report().nodes[0].provider == "session (my_ops.py)"


@pytest.mark.parametrize("text", ["x = 1", "raise RuntimeError('boom')", "def broken(:"])
def test_a_bad_extension_file_is_a_usage_error(toy_core: Any, tmp_path: Path, text: str) -> None:
    core, _ = toy_core(A=nothing)
    path = tmp_path / "bad.py"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"bad.py"):
        core.add_extension(str(path))


@pytest.mark.parametrize("extension", ["nowhere.py", 7, None])
def test_something_that_is_no_extension_is_a_usage_error(toy_core: Any, extension: Any) -> None:
    core, _ = toy_core(A=nothing)
    with pytest.raises(UsageError, match=r"extension"):
        core.add_extension(extension)


def test_an_operator_that_no_pack_has_names_the_domain(toy_core: Any) -> None:
    core, _ = toy_core(A=nothing)
    g = dovetail.GraphBuilder()
    x = g.input("x", "float32", [3])
    model = g.model([g.node(UnboundOperator("com.nobody", "Thing", 1, {}), x, name="n1")])
    with pytest.raises(dovetail.DovetailError, match=r"node 'n1' \(com.nobody::Thing\).*com.nobody"):
        core.compile_model(model, "A")


def test_a_device_that_was_reset_is_closed_and_opened_anew(toy_core: Any) -> None:
    core, opened = toy_core(A=nothing, B=nothing)
    core.compile_model(chain(), "A")
    core.compile_model(chain(), "B")
    closed: list[str] = []
    for device in opened:
        device.close = lambda name=device.info.name: closed.append(name)
    core.reset_device("A")
    assert closed == ["A.0"]
    np.testing.assert_allclose(core.compile_model(chain(), "A")(X)[0], expected(X), rtol=1e-6)
    core.compile_model(chain(), "B")
    assert [device.info.name for device in opened] == ["A.0", "B.0", "A.0"]
    with pytest.raises(DeviceNotFound, match="'Z'"):
        core.reset_device("Z")
