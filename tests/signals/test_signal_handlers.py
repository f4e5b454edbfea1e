"""Packages besides the core: an error of the program's signal handler is not taken for an error of what it interrupted."""

import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.graph import TensorType
from dovetail_demo import measure
from dovetail_onnxruntime.binding import IOBinding
from dovetail_ops_onnx.relu import Relu
from dovetail_views.peers import OnnxRuntimePeer

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="the system has no SIGUSR1")


class Late(TimeoutError):
    """Raised by the handler."""


@pytest.fixture(autouse=True)
def _handler() -> Iterator[None]:
    def late(number: int, frame: Any) -> None:
        raise Late

    before = signal.signal(signal.SIGUSR1, late)
    yield
    signal.signal(signal.SIGUSR1, before)


def interrupt(*args: Any, **kwargs: Any) -> Any:
    """As if the signal came now."""
    signal.raise_signal(signal.SIGUSR1)


@pytest.mark.parametrize("where", ["_decisions._Template.resized", "_typed_again._of_classes"])
def test_in_planning_for_another_size(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    g = dovetail.GraphBuilder()
    model = g.model([g.node(Relu(), g.input("x", "float32", ["N", 3]))])
    compiled = dovetail.Core(config=False).compile_model(model, "NUMPY")
    for rows in (2, 3):
        compiled(np.ones((rows, 3), np.float32))
    monkeypatch.setattr(f"dovetail_ops_onnx.passes.{where}", interrupt)
    with pytest.raises(Late):
        compiled(np.ones((4, 3), np.float32))


def test_in_a_conversion_of_an_old_model(monkeypatch: pytest.MonkeyPatch) -> None:
    helper = pytest.importorskip("onnx.helper")
    value = helper.make_tensor_value_info("x", 1, [2])
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["y"])], "g", [value], [helper.make_tensor_value_info("y", 1, [2])]
    )
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 6)]).SerializeToString()
    monkeypatch.setattr("onnx.checker.check_model", interrupt)
    with pytest.raises(Late):
        dovetail.Core(config=False).read_model(content, format="onnx")


def test_in_a_run_of_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "_run", interrupt)
    with pytest.raises(Late):
        measure.run_devices(None, None, None, ["NUMPY"], print)  # type: ignore[arg-type]  # for `_run` alone


def test_in_reading_a_tokenizer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tokens = pytest.importorskip("dovetail_generate.tokens")
    monkeypatch.setattr(tokens, "Tokenizer", SimpleNamespace(from_file=interrupt))
    with pytest.raises(Late):
        tokens.of_file(tmp_path / "tokenizer.json")


@pytest.mark.parametrize(
    ("method", "where"), [("infer", "shape_inference.infer_node_outputs"), ("reference", "reference.ReferenceEvaluator")]
)
def test_in_an_operator_by_onnx(method: str, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnx.reference")
    op = dovetail.Core(config=False).plugins.operator("", "ImageDecoder", 20)()
    data = np.zeros(4, np.uint8)
    monkeypatch.setattr(f"onnx.{where}", interrupt)
    with pytest.raises(Late):
        getattr(op, method)(data if method == "reference" else TensorType.of(data))


def test_in_a_run_with_bound_outputs() -> None:
    binding = IOBinding(SimpleNamespace(_run=interrupt))  # type: ignore[arg-type]  # for `_run` alone
    binding._targets["y"] = None
    with pytest.raises(Late):
        binding.run()


def test_in_a_run_of_onnxruntime(monkeypatch: pytest.MonkeyPatch) -> None:
    onnxruntime, onnx = pytest.importorskip("onnxruntime"), pytest.importorskip("onnx")
    proto = onnx.helper.make_model(onnx.helper.make_graph([], "g", [], []))
    monkeypatch.setattr(onnx, "load", lambda path: proto)
    monkeypatch.setattr(onnxruntime, "InferenceSession", interrupt)
    with pytest.raises(Late):
        OnnxRuntimePeer(Path("model.onnx")).values(None, {}, [])  # type: ignore[arg-type]  # it reads the file
