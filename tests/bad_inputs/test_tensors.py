"""Tensors that claim what they do not have, wherever a tensor can occur, and data outside the model's folder."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

FLOAT, STRING, INT4 = TensorProto.FLOAT, TensorProto.STRING, TensorProto.INT4

BAD: dict[str, tuple[TensorProto, str]] = {
    "negative dimension": (TensorProto(data_type=FLOAT, dims=[-3]), "(-3,) has a negative dimension"),
    "2^63 - 1": (TensorProto(data_type=FLOAT, dims=[2**63 - 1]), "float_data has 0 values; 9223372036854775807 elements"),
    "overflow": (TensorProto(data_type=FLOAT, dims=[2**32, 2**31]), "more than 2^63 - 1 elements"),
    "10^12 without data": (TensorProto(data_type=FLOAT, dims=[10**12]), "float_data has 0 values; 1000000000000 elements"),
    "raw too short": (
        TensorProto(data_type=FLOAT, dims=[3], raw_data=b"\0" * 11),
        "raw_data has 11 bytes; 3 elements of float32 need 12",
    ),
    "raw too long": (
        TensorProto(data_type=FLOAT, dims=[3], raw_data=b"\0" * 13),
        "raw_data has 13 bytes; 3 elements of float32 need 12",
    ),
    "raw and typed": (TensorProto(data_type=FLOAT, dims=[1], raw_data=b"\0" * 4, float_data=[0]), "raw_data and float_data"),
    "unknown data type": (TensorProto(data_type=1000, dims=[1]), "unknown number 1000"),
    "undefined data type": (TensorProto(dims=[1]), "unknown number 0"),
    "odd count of int4": (
        TensorProto(data_type=INT4, dims=[5], raw_data=b"\0" * 2),
        "raw_data has 2 bytes; 5 elements of int4 need 3",
    ),
    "strings as bytes": (TensorProto(data_type=STRING, dims=[1], raw_data=b"abcd"), "string tensor has raw_data"),
    "zero size with data": (TensorProto(data_type=FLOAT, dims=[0, 3], raw_data=b"\0" * 4), "raw_data has 4 bytes; 0 elements"),
    "rank 65": (TensorProto(data_type=FLOAT, dims=[1] * 65, raw_data=b"\0" * 4), "rank 65; accepted: at most 64"),
}

Place = Callable[[Callable[..., ModelProto], TensorProto], tuple[ModelProto, str]]


def _initializer(build: Callable[..., ModelProto], tensor: TensorProto) -> tuple[ModelProto, str]:
    tensor.name = "w"
    return build([helper.make_node("Relu", ["w"], ["y"])], initializer=[tensor]), "initializer 'w': "


def _constant(build: Callable[..., ModelProto], tensor: TensorProto) -> tuple[ModelProto, str]:
    node = helper.make_node("Constant", [], ["y"], name="c")
    node.attribute.add(name="value", type=4).t.CopyFrom(tensor)
    return build([node]), "node 'c' (Constant): attribute 'value': "


def _in_branch(build: Callable[..., ModelProto], tensor: TensorProto) -> tuple[ModelProto, str]:
    tensor.name = "w"
    branch = helper.make_graph([], "b", [], [helper.make_tensor_value_info("w", FLOAT, None)], [tensor])
    node = helper.make_node("If", ["x"], ["y"], name="if", then_branch=branch)
    return build([node]), "node 'if' (If): attribute 'then_branch': initializer 'w': "


@pytest.mark.parametrize("place", [_initializer, _constant, _in_branch])
@pytest.mark.parametrize("name", BAD)
def test_bad_tensor(refuse: Any, build: Any, name: str, place: Place) -> None:
    tensor, words = BAD[name]
    copy = TensorProto()
    copy.CopyFrom(tensor)
    model, where = place(build, copy)
    refuse(model, where, words)


def test_string_weights_are_read(core: Any, build: Any) -> None:
    tensor = TensorProto(name="w", data_type=STRING, dims=[2], string_data=[b"a", b"b"])
    model = core.read_model(build([], outputs=["w"], initializer=[tensor]).SerializeToString(), format="onnx")
    assert model.graph.constants["w"].tolist() == ["a", "b"]


def test_tensors_of_size_zero_run(core: Any, build: Any) -> None:
    tensor = TensorProto(name="w", data_type=FLOAT, dims=[0, 3])
    model = core.read_model(
        build([helper.make_node("Relu", ["w"], ["y"])], [], initializer=[tensor]).SerializeToString(), format="onnx"
    )
    assert core.compile_model(model, "NUMPY")({})["y"].shape == (0, 3)


EXTERNAL: dict[str, tuple[dict[str, str], str]] = {
    "parent": ({"location": "../secret.bin"}, "leaves the model's folder"),
    "absolute": ({"location": "/dev/zero"}, "not a relative POSIX path"),
    "link to a file": ({"location": "link.bin"}, "cannot be opened"),
    "link to a folder": ({"location": "linked/secret.bin"}, "cannot be opened"),
    "hard link": ({"location": "hard.bin"}, "has 2 hard links"),
    "missing": ({"location": "gone.bin"}, "cannot be opened: No such file"),
    "offset past the end": ({"location": "data.bin", "offset": "13"}, "which has 12 bytes"),
    "huge length": ({"location": "data.bin", "length": str(2**63 - 1)}, "length of 9223372036854775807 bytes"),
    "negative length": ({"location": "data.bin", "length": "-1"}, "the length '-1'"),
    "length in words": ({"location": "data.bin", "length": "twelve"}, "the length 'twelve'"),
    "device": ({"location": "device"}, "'device' "),
    "FIFO": ({"location": "fifo"}, "is a FIFO"),
    "empty location": ({"location": ""}, "location of the data file is empty"),
    "only an unknown key": ({"place": "data.bin"}, "no valid location"),
}


@pytest.mark.parametrize("name", EXTERNAL)
def test_bad_external_data(refuse: Any, build: Any, tmp_path: Path, name: str) -> None:
    entries, words = EXTERNAL[name]
    secret, folder = tmp_path / "secret.bin", tmp_path / "models"
    folder.mkdir()
    secret.write_bytes(b"\0" * 12)
    (folder / "data.bin").write_bytes(b"\0" * 12)
    (folder / "link.bin").symlink_to(secret)
    (folder / "linked").symlink_to(tmp_path)
    (folder / "device").symlink_to("/dev/zero")
    (tmp_path / "other.bin").write_bytes(b"\0" * 12)
    (folder / "hard.bin").hardlink_to(tmp_path / "other.bin")
    os.mkfifo(folder / "fifo")
    tensor = TensorProto(name="w", data_type=FLOAT, dims=[3], data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    path = folder / "model.onnx"
    path.write_bytes(build([helper.make_node("Relu", ["w"], ["y"])], initializer=[tensor]).SerializeToString())
    refuse(path, "initializer 'w': ", words)


def test_external_data_runs(core: Any, build: Any, tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(np.array([-1, 1, 2], np.float32).tobytes())
    tensor = TensorProto(name="w", data_type=FLOAT, dims=[3], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="data.bin")
    tensor.external_data.add(key="unknown", value="ignored")
    path = tmp_path / "model.onnx"
    path.write_bytes(build([helper.make_node("Add", ["x", "w"], ["y"])], initializer=[tensor]).SerializeToString())
    compiled = core.compile_model(core.read_model(path), "NUMPY")
    (tmp_path / "data.bin").write_bytes(b"")  # what was read stays
    np.testing.assert_array_equal(compiled({"x": np.ones(3, np.float32)})["y"], np.array([0, 2, 3], np.float32))
