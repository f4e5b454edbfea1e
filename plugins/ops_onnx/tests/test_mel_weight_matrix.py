"""MelWeightMatrix equals onnxruntime's in every element, and refuses what it refuses."""

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import dovetail
from dovetail.errors import OperatorError
from dovetail_ops_onnx.mel_weight_matrix import MelWeightMatrix

CORE = dovetail.Core()


def model(kind: int = TensorProto.FLOAT) -> bytes:
    value, kinds = helper.make_tensor_value_info, [TensorProto.INT64] * 3 + [TensorProto.FLOAT] * 2
    node = helper.make_node("MelWeightMatrix", [*"abcde"], ["y"], output_datatype=kind)
    graph = helper.make_graph(
        [node], "graph", [value(name, k, []) for name, k in zip("abcde", kinds, strict=True)], [value("y", kind, None)]
    )
    content: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    return content


def drawn(rng: np.random.Generator) -> list[Any]:
    rate = int(rng.choice([8000, 16000, 22050, 44100, 48000]))
    lower, upper = rng.choice([0, 20, rng.uniform(0, rate / 2)]), rng.choice([rate / 2, rate / 2 - 100, rng.uniform(0, rate / 2)])
    sizes = [np.array(rng.integers(0, 130)), np.array(rng.integers(0, 2049)), np.array(rate)]
    return [*sizes, np.array(lower, np.float32), np.array(upper, np.float32)]


def test_every_element_is_as_onnxruntimes(rng: np.random.Generator) -> None:
    session, op = onnxruntime.InferenceSession(model(), providers=["CPUExecutionProvider"]), MelWeightMatrix()
    made = 0
    for _ in range(400):
        arrays = drawn(rng)
        try:
            (want,) = session.run(None, dict(zip("abcde", arrays, strict=True)))
        except Exception:  # onnxruntime has no common class for its errors
            with pytest.raises(OperatorError, match="where the spectrum ends"):
                op.reference(*arrays)
            continue
        made += 1
        np.testing.assert_array_equal(op.reference(*arrays), want)
    assert made > 100


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT32, TensorProto.UINT8])
def test_models_give_what_onnxruntime_gives(kind: int) -> None:
    arrays = [np.array(80), np.array(512), np.array(16000), np.array(20, np.float32), np.array(7600, np.float32)]
    session = onnxruntime.InferenceSession(model(kind), providers=["CPUExecutionProvider"])
    (want,) = session.run(None, dict(zip("abcde", arrays, strict=True)))
    with CORE.compile_model(CORE.read_model(model(kind), format="onnx"), "NUMPY") as compiled:
        found = compiled(arrays)[0]
    assert found.dtype == want.dtype
    np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ((-1, 16, 8000, 0, 100), "num_mel_bins, dft_length"),
        ((4, 16, 0, 0, 100), "are 4, 16, 0; accepted: 0 or more, 0 or more, 1 or more"),
        ((4, 16, 8000, -1, 100), "lower_edge_hertz is -1; accepted: from 0 to below 4235.29"),
        ((4, 16, 8000, 0, np.nan), "upper_edge_hertz is nan"),
    ],
)
def test_what_is_refused(arrays: tuple[float, ...], message: str) -> None:
    given = [*(np.array(a) for a in arrays[:3]), *(np.array(a, np.float32) for a in arrays[3:])]
    compiled = CORE.compile_model(CORE.read_model(model(), format="onnx"), "NUMPY")
    with pytest.raises(OperatorError, match=message):
        compiled(given)
