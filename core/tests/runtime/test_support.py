"""How devices would run each node, and which device is taken for the properties that are given."""

import logging
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

import dovetail
from dovetail.device import Accepted, DeviceInfo, Refusal, TypedNode
from dovetail.errors import DeviceError, DeviceUnavailable, DovetailError, UnknownOption, UsageError
from dovetail.graph import GraphBuilder, Model
from dovetail.op import Operator
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.sigmoid import Sigmoid
from dovetail_ops_onnx.tanh import Tanh


class Both(Operator):
    """Two operators in one."""

    domain = "test"

    def compose(self, g: Any, x: str) -> Any:
        return g.node(Relu(), g.node(Tanh(), x))


def model() -> Model:
    g = GraphBuilder()
    x = g.node(Sigmoid(), g.node(Both(), g.node(Relu(), g.input("x", "float32", [3]))))
    return g.model([x])


KERNELS = {"Relu": Accepted("fast"), "Sigmoid": Accepted("sigmoid.cl", from_operator=True)}


@pytest.fixture
def answering(toy_core: Any) -> Any:
    """A session with a device that has a kernel for Relu, runs the kernel source of Sigmoid, and references else."""
    core, opened = toy_core(A=lambda node: False)
    core.compile_model(model(), "A").close()
    device = opened[0]

    def supports(node: TypedNode) -> Accepted | Refusal:
        return KERNELS.get(node.op.op_type, Accepted("ref", from_operator=True))

    device.supports = supports
    return core, device


def shown(core: dovetail.Core, device: str) -> Any:
    return {name: (s.device, s.way, s.kernels, s.provider) for name, s in core.query_support(model(), device).items()}


def test_kernels_and_whose_they_are(answering: Any) -> None:
    core, _ = answering
    standard = core.plugins.provider(Relu)
    toy = core.plugins.owner("devices", "a").provider
    assert standard != toy
    assert shown(core, "A") == {
        "relu": ("A.0", "kernel", ("fast",), toy),
        "both": ("A.0", "composition", ("ref", "fast"), core.plugins.provider(Both)),
        "sigmoid": ("A.0", "own kernel", ("sigmoid.cl",), standard),
    }


def test_a_kernel_of_the_user_stands_for_the_operator(answering: Any) -> None:
    core, device = answering
    device.prescribes = lambda domain, op_type: op_type == "Relu"
    answers = shown(core, "A")
    assert answers["relu"][:3] == ("A.0", "custom kernel", ("fast",))
    assert answers["both"][1] == "composition"


def test_a_refusal_has_no_kernel(toy_core: Any) -> None:
    core, _ = toy_core(A=lambda node: node.op.op_type == "Sigmoid")
    answer = core.query_support(model(), "A")["sigmoid"]
    assert (answer.device, answer.way, answer.kernels, answer.provider) == ("A.0", "", (), "")
    assert answer.refusal is not None
    assert answer.refusal.detail == "Sigmoid"


# --- properties and kinds ---------------------------------------------------------------------------------------------


@pytest.fixture
def choosing(toy_core: Any, monkeypatch: pytest.MonkeyPatch) -> dovetail.Core:
    """Devices A, B, C, the best first: A has no property, B and C have FILE, which must not be empty."""
    core, _ = toy_core(A=lambda node: False, B=lambda node: False, C=lambda node: False)

    def configured(self: Any, options: Mapping[str, Any]) -> Any:
        if wrong := [name for name in options if name != "FILE" or self.info.type == "A"]:
            raise UnknownOption(f"{self.info.type} has no option {wrong[0]!r}", hint="known: some")
        if not options.get("FILE", "x"):
            raise UsageError("FILE is empty")
        return self

    kind = type(core.plugins.open_device("A.0", {}))
    monkeypatch.setattr(kind, "configured", configured)
    made: dovetail.Core = core
    return made


@pytest.mark.parametrize("word", ["DEFAULT", "CPU", "default"])
def test_kinds_take_the_best_device_that_has_the_properties(
    choosing: dovetail.Core, word: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "dovetail"):
        assert choosing.compile_model(model(), word, {"FUSION": False}).device == "A.0"
        assert not caplog.records
        assert choosing.compile_model(model(), word, {"FUSION": False, "FILE": "y"}).device == "B.0"
    assert f"{word.upper()} takes B.0, not A.0: A has no option 'FILE'" in caplog.text


def test_a_value_that_makes_no_sense_is_no_reason_to_look_further(choosing: dovetail.Core) -> None:
    with pytest.raises(UsageError, match="FILE is empty"):
        choosing.compile_model(model(), "DEFAULT", {"FILE": ""})


def test_properties_that_no_device_has(choosing: dovetail.Core) -> None:
    with pytest.raises(UnknownOption, match=r"no device has all .*A has no option 'FIEL' \(known: some\); B has no option"):
        choosing.compile_model(model(), "DEFAULT", {"FIEL": "y"})
    with pytest.raises(UnknownOption, match="no CPU device has all"):
        choosing.query_support(model(), "CPU", {"FIEL": "y"})
    with pytest.raises(UnknownOption, match="a property of every device: FUSION"):
        choosing.compile_model(model(), "DEFAULT", {"FUSOIN": False})


def test_a_device_that_was_named_is_not_replaced(choosing: dovetail.Core) -> None:
    with pytest.raises(UnknownOption, match="A has no option 'FILE'"):
        choosing.compile_model(model(), "A", {"FILE": "y"})


def _broken(core: dovetail.Core, device: str, error: Exception) -> None:
    """A device of the highest priority whose open raises."""

    @dovetail.hookimpl
    def dovetail_device_info(config: Any) -> list[DeviceInfo]:
        return [DeviceInfo(device, device, "CPU", "broken", 100)]

    @dovetail.hookimpl
    def dovetail_device_open(info: DeviceInfo, options: Any) -> Any:
        raise error

    plugin = SimpleNamespace(
        dovetail_api="1.0", dovetail_device_info=dovetail_device_info, dovetail_device_open=dovetail_device_open
    )
    core.plugins.register(plugin, name=f"acme-{device.lower()}", kind="devices", key=device.lower())


@pytest.mark.parametrize("error", [RuntimeError("driver says no"), DeviceError("driver says no")], ids=["foreign", "own"])
def test_the_default_goes_on_to_the_next_device_when_one_cannot_be_opened(
    toy_core: Any, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    core, _ = toy_core(A=lambda node: False)
    _broken(core, "BROKEN", error)
    g = dovetail.GraphBuilder()
    model = g.model([g.node(Relu(), g.input("x", "float32", [2]))])
    compiled = core.compile_model(model)
    assert compiled.device == "A.0"
    (skipped,) = compiled.report().passed_over.items()
    assert skipped[0] == "BROKEN"
    assert "driver says no" in skipped[1]
    assert "DEFAULT takes A.0, not BROKEN" in caplog.text
    with pytest.raises(DovetailError, match="driver says no"):
        core.compile_model(model, "BROKEN")


def test_the_default_says_so_when_no_device_can_be_opened(toy_core: Any) -> None:
    core, _ = toy_core()
    _broken(core, "BROKEN", RuntimeError("no driver"))
    _broken(core, "WORSE", RuntimeError("no hardware"))
    g = dovetail.GraphBuilder()
    with pytest.raises(DeviceUnavailable, match=r"(?s)no driver.*no hardware"):
        core.compile_model(g.model([g.node(Relu(), g.input("x", "float32", [2]))]))
