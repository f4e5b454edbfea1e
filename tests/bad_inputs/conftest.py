"""Requirements for every bad input: an error of our own that names file and reason, nothing written, and a process that goes on.

After each test a good model is run in the same process.
"""

import pickle
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

import dovetail
from dovetail.errors import DovetailError, OutOfMemory
from dovetail.frontend import ModelSource

LONGEST_MESSAGE = 4000


@pytest.fixture
def build() -> Callable[..., ModelProto]:
    """`build(nodes, inputs, outputs)`: an ONNX model; a value is a name (float32, shape [3]) or a value info."""
    return _build


def _build(nodes: list[NodeProto], inputs: Any = ("x",), outputs: Any = ("y",), initializer: Any = (), **more: Any) -> ModelProto:
    graph = GraphProto(
        name="g", node=nodes, input=[_info(i) for i in inputs], output=[_info(o) for o in outputs], initializer=initializer
    )
    return helper.make_model(graph, **{"ir_version": 8, "opset_imports": [helper.make_opsetid("", 17)], **more})


def _info(item: Any) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(item, TensorProto.FLOAT, [3]) if isinstance(item, str) else item


@pytest.fixture(scope="session")
def good() -> bytes:
    """A model that computes y = -relu(x) for x of float32[3]."""
    return _build([helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Neg", ["r"], ["y"])]).SerializeToString()


@pytest.fixture(autouse=True)
def _process_goes_on(core: dovetail.Core, good: bytes) -> Iterator[None]:
    yield
    compiled = core.compile_model(core.read_model(good, format="onnx"), "NUMPY")
    result = compiled({"x": np.array([-1, 0.5, 2], np.float32)})
    np.testing.assert_array_equal(result["y"], np.array([0, -0.5, -2], np.float32))


Refuse = Callable[..., DovetailError]


@pytest.fixture
def refuse(core: dovetail.Core, tmp_path: Path) -> Refuse:
    """`refuse(source, "words", ...)`: reading a model, its bytes or its path must fail with a message that has these words."""

    def check(source: ModelProto | bytes | Path, *words: str) -> DovetailError:
        content = source.SerializeToString() if isinstance(source, ModelProto) else source
        before = _listing(tmp_path)
        with pytest.raises(DovetailError) as caught:
            core.read_model(content, format="onnx")
        assert _listing(tmp_path) == before
        _check_error(caught.value, ModelSource(content).name, words)
        return caught.value

    return check


def _check_error(error: DovetailError, name: str, words: tuple[str, ...]) -> None:
    text = str(error)
    assert error.code.startswith(("DT1", "DT2")), error.code
    assert not isinstance(error, OutOfMemory)
    assert text.startswith(name)
    for word in words:
        assert word in text
    assert len(text) < LONGEST_MESSAGE
    assert not [c for c in text if unicodedata.category(c) in ("Cc", "Cs", "Cf") and c != "\n"]
    assert text.count("\n") <= 1  # message, then hint
    assert str(pickle.loads(pickle.dumps(error))) == text


def _listing(folder: Path) -> list[tuple[str, int, int]]:
    return sorted((str(p), s.st_size, s.st_mtime_ns) for p in folder.rglob("*") if (s := p.lstat()))
