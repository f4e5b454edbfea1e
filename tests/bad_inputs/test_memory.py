"""Small files that ask for much memory are refused, in a process that may have four times their size and 256 MB."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

ALLOWED = 256 * 2**20
READ_IN_LITTLE_MEMORY = f"""
import resource, sys
import numpy as np
import dovetail
core = dovetail.Core()
core.compile_model(core.read_model(sys.argv[1]), "NUMPY")({{"x": np.zeros(3, np.float32)}})  # everything is imported now
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
limit = used + 4 * int(sys.argv[3]) + {ALLOWED}
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    core.read_model(sys.argv[2])
except dovetail.errors.DovetailError as error:
    print(error.code, error)
compiled = core.compile_model(core.read_model(sys.argv[1]), "NUMPY")
print(compiled({{"x": np.array([-1, 0, 1], np.float32)}})["y"].tolist())
"""

IMPORTS = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]


def _call(function: str, source: str, target: str, name: str = "") -> Any:
    return helper.make_node(function, [source], [target], name=name, domain="f")


def _function(name: str, *nodes: Any) -> Any:
    return helper.make_function("f", name, ["X"], ["Y"], nodes, IMPORTS)


def _doubling_functions(build: Callable[..., ModelProto], folder: Path) -> ModelProto:
    functions = [_function(f"f{i}", _call(f"f{i + 1}", "X", "a"), _call(f"f{i + 1}", "a", "Y")) for i in range(60)]
    leaf = _function("f60", helper.make_node("Identity", ["X"], ["Y"]))
    return build([_call("f0", "x", "y")], functions=[*functions, leaf], opset_imports=IMPORTS)


def _doubling_long_names(build: Callable[..., ModelProto], folder: Path) -> ModelProto:
    body = [helper.make_node("Neg", ["X"], ["n" * 100_000 + str(i)]) for i in range(20)]
    calls = [_call("f", "x", f"y{i}", "c" * 100_000 + str(i)) for i in range(20)]
    return build(calls, outputs=["y0"], functions=[_function("f", *body)], opset_imports=IMPORTS)


def _sparse(build: Callable[..., ModelProto], folder: Path) -> ModelProto:
    one = numpy_helper.from_array(np.ones(1, np.float32), "w")
    sparse = helper.make_sparse_tensor(one, numpy_helper.from_array(np.zeros(1, np.int64)), [10**6, 10**6])
    model = build([helper.make_node("Relu", ["w"], ["y"])])
    model.graph.sparse_initializer.append(sparse)
    return model


def _many_sparse(build: Callable[..., ModelProto], folder: Path) -> ModelProto:
    model = build([helper.make_node("Relu", ["w0"], ["y"])])
    for i in range(100):
        one = numpy_helper.from_array(np.ones(1, np.float32), f"w{i}")
        model.graph.sparse_initializer.append(
            helper.make_sparse_tensor(one, numpy_helper.from_array(np.zeros(1, np.int64)), [10**7])
        )
    return model


def _declared_without_data(build: Callable[..., ModelProto], folder: Path) -> ModelProto:
    return build([helper.make_node("Relu", ["w"], ["y"])], initializer=[TensorProto(name="w", data_type=1, dims=[10**12])])


def _external(name: str, dims: list[int], offset: int) -> TensorProto:
    tensor = TensorProto(name=name, data_type=TensorProto.UINT8, dims=dims, data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="data.bin")
    tensor.external_data.add(key="offset", value=str(offset))
    return tensor


def _overlapping_external_data(build: Callable[..., ModelProto], folder: Path) -> ModelProto:
    (folder / "data.bin").write_bytes(b"\0" * 2**20)
    return build([], outputs=["w0"], initializer=[_external(f"w{i}", [2**20 - i], i) for i in range(1000)])


def _hole_as_external_data(build: Callable[..., ModelProto], folder: Path) -> ModelProto:
    with (folder / "data.bin").open("wb") as file:
        file.truncate(2**42)
    return build([], outputs=["w"], initializer=[_external("w", [2**42], 0)])


def _message(field: int, content: bytes) -> bytes:
    """A field of protobuf that holds a message or a string."""
    length, out = len(content), bytearray([field << 3 | 2])
    while length >= 0x80:
        out.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([*out, length]) + content


def _millions_of_nodes(build: Callable[..., ModelProto], folder: Path) -> bytes:
    return _message(7, _message(1, b"") * 3_000_000)


def _millions_of_attributes(build: Callable[..., ModelProto], folder: Path) -> bytes:
    return _message(7, _message(1, _message(5, b"") * 3_000_000))


def _millions_of_small_nodes(build: Callable[..., ModelProto], folder: Path) -> bytes:
    good: bytes = build([helper.make_node("Relu", ["x"], ["y"])]).SerializeToString()
    return good + _message(7, _message(1, _message(4, b"A")) * 1_000_000)


def _millions_of_packed_numbers(build: Callable[..., ModelProto], folder: Path) -> bytes:
    return _message(7, _message(5, _message(7, b"\0" * 40_000_000)))


NASTY = {
    _millions_of_nodes: "DT100 PATH: parsing the 6000005 bytes would take more than .*so many small messages",
    _millions_of_attributes: "DT100 PATH: parsing the 6000010 bytes would take more than .*so many small messages",
    _millions_of_small_nodes: "DT100 PATH: parsing the .*so many small messages",
    _millions_of_packed_numbers: "DT100 PATH: parsing the 40000015 bytes would take more than .*so many small messages",
    _doubling_functions: "DT100 PATH: node 'f0_0/.*the local functions are expanded",
    _doubling_long_names: "DT100 PATH: .*the local functions are expanded",
    _sparse: "DT100 PATH: initializer 'w': a sparse tensor of shape (1000000, 1000000) made dense",
    _many_sparse: "DT100 PATH: initializer 'w2': a sparse tensor",
    _declared_without_data: "DT100 PATH: initializer 'w': float_data has 0 values",
    _overlapping_external_data: "DT100 PATH: initializer 'w2': the tensors in 'data.bin' overlap",
    _hole_as_external_data: "DT402 PATH: initializer 'w': the external data in 'data.bin' needs 4398046511104 bytes",
}


@pytest.mark.parametrize("make", NASTY, ids=lambda make: make.__name__.strip("_"))
def test_little_memory(build: Any, good: bytes, tmp_path: Path, make: Any) -> None:
    path, fine = tmp_path / "nasty.onnx", tmp_path / "good.onnx"
    made = make(build, tmp_path)
    path.write_bytes(made if isinstance(made, bytes) else made.SerializeToString())
    fine.write_bytes(good)
    command = [sys.executable, "-c", READ_IN_LITTLE_MEMORY, str(fine), str(path), str(path.stat().st_size)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    start, _, end = NASTY[make].replace("PATH", str(path)).partition(".*")
    assert done.stdout.startswith(start), done.stdout[:2000]
    assert end in done.stdout
    assert done.stdout.endswith("[0.0, 0.0, -1.0]\n") or done.stdout.endswith("[-0.0, -0.0, -1.0]\n")
