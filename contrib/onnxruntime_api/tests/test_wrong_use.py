"""Wrong use raises the class and the words that programs catch: those of the onnxruntime that is installed."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import dovetail_onnxruntime

onnxruntime.set_default_logger_severity(4)

FLOAT = TensorProto.FLOAT
ONE = np.ones((2, 3), np.float32)


def outcome(call: Callable[[Any], Any], ort: Any) -> tuple[str, str]:
    """The name of the class that was raised, and the message up to where the runtimes use their own words."""
    with pytest.raises(Exception) as caught:  # noqa: PT011  # any class: both must raise the same
        call(ort)
    state = importlib.import_module(f"{ort.__name__}.capi.onnxruntime_pybind11_state")
    kind = type(caught.value)
    assert kind.__module__ == "builtins" or kind is getattr(state, kind.__name__)
    return kind.__name__, str(caught.value)


ARGUMENT = "[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : "
FIX = "Please fix either the inputs/outputs or the model."
TYPES = "Unexpected input data type. Actual: ({}) , expected: (tensor(float))"
TWO = {"y": ONE, "z": ONE}

RUNS: dict[str, tuple[dict[str, Any], str]] = {
    "missing": ({"x": ONE}, "Required inputs (['y', 'z']) are missing from input feed (['x'])."),
    "unknown name": ({"x": ONE, **TWO, "w": ONE}, f"{ARGUMENT}Invalid input name: w"),
    "rank": ({"x": ONE[0], **TWO}, f"{ARGUMENT}Invalid rank for input: x Got: 1 Expected: 2 {FIX}"),
    "size": (
        {"x": ONE[:, :2], **TWO},
        f"{ARGUMENT}Got invalid dimensions for input: x for the following indices\n index: 1 Got: 2 Expected: 3\n {FIX}",
    ),
    "float64": ({"x": ONE.astype(float), **TWO}, ARGUMENT + TYPES.format("tensor(double)")),
    "strings": ({"x": np.array([["a"] * 3]), **TWO}, ARGUMENT + TYPES.format("tensor(string)")),
    "tuple": ({"x": ((1, 2, 3),), **TWO}, "Input must be a list of dictionaries or a single numpy array for input 'x'."),
    "number": ({"x": np.float32(1), **TWO}, "Unable to handle object of type <class 'numpy.float32'>"),
    "broadcast": (
        {"x": ONE, "y": ONE, "z": np.ones((5, 3), np.float32)},
        "[ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned while running ",
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_runs(name: str, add: bytes) -> None:
    feed, words = RUNS[name]
    wanted, theirs = outcome(lambda ort: ort.InferenceSession(add).run(None, feed), onnxruntime)
    got, ours = outcome(lambda ort: ort.InferenceSession(add).run(None, feed), dovetail_onnxruntime)
    assert (got, theirs[: len(words)], ours[: len(words)]) == (wanted, words, words)


def test_an_unknown_output(add: bytes, feed: dict[str, Any]) -> None:
    def call(ort: Any) -> None:
        ort.InferenceSession(add).run(["q"], feed)

    assert outcome(call, dovetail_onnxruntime) == outcome(call, onnxruntime)


@pytest.mark.parametrize(
    "call",
    [
        lambda session, feed: session.run("s", feed),
        lambda session, feed: session.run(None, list(feed.values())),
        lambda session, feed: session.run(None, None),
        lambda session, feed: session.run(None, {**feed, "x": np.zeros((2, 3), "datetime64[s]")}),
    ],
    ids=["a name for names", "a list for a dictionary", "no inputs", "dates"],
)
def test_arguments_of_wrong_types(call: Any, add: bytes, feed: dict[str, Any]) -> None:
    wanted, _ = outcome(lambda ort: call(ort.InferenceSession(add), feed), onnxruntime)
    got, _ = outcome(lambda ort: call(ort.InferenceSession(add), feed), dovetail_onnxruntime)
    assert got == wanted


FILES: dict[str, bytes | None] = {
    "missing": None,
    "empty": b"",
    "text": b"not a model",
    "damaged": b"\x08\x07garbage garbage" * 3,
    "an error page": b"<!doctype html><html></html>",
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("kind", ["path", "bytes"])
def test_files(name: str, kind: str, tmp_path: Path) -> None:
    content, path = FILES[name], tmp_path / "model.onnx"
    if content is not None:
        path.write_bytes(content)
    source: Any = str(path) if kind == "path" or content is None else content
    wanted, theirs = outcome(lambda ort: ort.InferenceSession(source), onnxruntime)
    got, ours = outcome(lambda ort: ort.InferenceSession(source), dovetail_onnxruntime)
    # What follows in ours says more.
    assert (got, ours[: len(theirs)]) == (wanted, theirs)


def test_a_file_that_is_cut_off_and_a_folder(add: bytes, tmp_path: Path) -> None:
    path = tmp_path / "cut.onnx"
    path.write_bytes(add[: len(add) // 2])
    for source in (str(path), str(tmp_path)):
        wanted, theirs = outcome(lambda ort, source=source: ort.InferenceSession(source), onnxruntime)
        got, ours = outcome(lambda ort, source=source: ort.InferenceSession(source), dovetail_onnxruntime)
        assert (wanted, got) == ("InvalidProtobuf", "InvalidProtobuf")
        assert ours.startswith(theirs)


@pytest.mark.parametrize("source", [5, bytearray(b"x"), None])
def test_other_sources(source: Any) -> None:
    assert outcome(lambda ort: ort.InferenceSession(source), dovetail_onnxruntime) == outcome(
        lambda ort: ort.InferenceSession(source), onnxruntime
    )


MODELS: dict[str, Any] = {
    "unknown operator": ([helper.make_node("Foo", ["x"], ["y"])], [3]),
    "unknown domain": ([helper.make_node("Foo", ["x"], ["y"], domain="com.acme")], [3]),
    "undefined input": ([helper.make_node("Add", ["x", "nope"], ["y"])], [3]),
    "too few inputs": ([helper.make_node("Conv", ["x"], ["y"])], [3]),
    "shapes": ([helper.make_node("MatMul", ["x", "x"], ["y"])], [2, 3]),
}


@pytest.mark.parametrize("name", MODELS)
def test_models(name: str, make: Any) -> None:
    nodes, dims = MODELS[name]
    content = make(nodes, {"x": (FLOAT, dims)}, {"y": (FLOAT, None)})
    wanted, _ = outcome(lambda ort: ort.InferenceSession(content), onnxruntime)
    got, _ = outcome(lambda ort: ort.InferenceSession(content), dovetail_onnxruntime)
    assert got == wanted


def test_an_unknown_operator_is_found_before_the_first_run(make: Any) -> None:
    content = make([helper.make_node("Foo", ["x"], ["y"])], {"x": (FLOAT, ["N", 3])}, {"y": (FLOAT, None)})
    assert outcome(lambda ort: ort.InferenceSession(content), dovetail_onnxruntime)[0] == "InvalidGraph"
