"""`TypeHelper` gives what onnxruntime's gives, as far as its module can be imported here: it needs torch."""

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dovetail_onnxruntime.transformers.io_binding_helper import TypeHelper


@pytest.mark.parametrize(
    ("name", "numpy", "torch"),
    [
        ("float", np.float32, "float32"),
        ("double", np.float64, "float64"),
        ("float16", np.float16, "float16"),
        ("bool", bool, "bool"),
        ("int64", np.int64, "int64"),
        ("uint8", np.uint8, "uint8"),
    ],
)
def test_types(monkeypatch: pytest.MonkeyPatch, name: str, numpy: Any, torch: str) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(**{torch: "found"}))  # type: ignore[arg-type]  # in its place
    assert TypeHelper.ort_type_to_numpy_type(f"tensor({name})") is numpy
    assert TypeHelper.ort_type_to_torch_type(f"tensor({name})") == "found"


def test_types_that_only_torch_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(bfloat16="found"))  # type: ignore[arg-type]  # in its place
    assert TypeHelper.ort_type_to_torch_type("tensor(bfloat16)") == "found"
    for given in ("tensor(bfloat16)", "seq(tensor(float))", "float"):
        with pytest.raises(ValueError, match="not found in map"):
            TypeHelper.ort_type_to_numpy_type(given)


def test_types_of_a_session() -> None:
    args = [SimpleNamespace(name="x", type="tensor(float)"), SimpleNamespace(name="y", type="tensor(int64)")]
    session = SimpleNamespace(get_inputs=lambda: args, get_outputs=lambda: args[1:])
    assert TypeHelper.get_input_type(session, "x") == "tensor(float)"
    assert TypeHelper.get_output_type(session, "y") == "tensor(int64)"
    with pytest.raises(ValueError, match="output name x not found"):
        TypeHelper.get_output_type(session, "x")
