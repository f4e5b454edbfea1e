"""MEMORY_LIMIT holds where values grow: small models that would take gigabytes end with OutOfMemory in little memory."""

import itertools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

LIMIT = 32 * 2**20
PROGRAM = f"""
import resource, sys
import numpy as np
import dovetail
core = dovetail.Core()
options = {{"MEMORY_LIMIT": {LIMIT}}}
core.compile_model(core.read_model(sys.argv[1]), "NUMPY", options)({{"x": np.zeros(3, np.float32)}})  # everything is imported now
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
limit = used + 8 * {LIMIT}
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    with core.compile_model(core.read_model(sys.argv[2]), "NUMPY", options) as compiled:
        print(sum(a.size for a in compiled({{"x": np.zeros(3, np.float32)}}).values()))
except dovetail.errors.OutOfMemory as error:
    print("OutOfMemory", error)
"""

Build = Callable[..., ModelProto]


def _constant(name: str, value: Any, dtype: Any) -> TensorProto:
    return numpy_helper.from_array(np.array(value, dtype), name)


def _value(name: str, *shape: int, dtype: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, dtype, shape)


def _loop(*nodes: Any, results: list[Any], carried: list[Any], reads: list[str]) -> Any:
    inputs = [_value("i", dtype=TensorProto.INT64), _value("going", dtype=TensorProto.BOOL), *carried]
    body = helper.make_graph(
        [helper.make_node("Identity", ["going"], ["still"]), *nodes],
        "body",
        inputs,
        [_value("still", dtype=TensorProto.BOOL), *results],
    )
    return helper.make_node("Loop", ["count", "", *reads], ["y"], name="loop", body=body)


def _loop_stacks(build: Build) -> ModelProto:
    expanded = helper.make_node("Expand", ["x0", "shape"], ["row"])
    loop = _loop(expanded, results=[_value("row", 10**6)], carried=[], reads=[])
    first = _constant("x0", [1], np.float32)
    return build([loop], initializer=[_constant("count", 900, np.int64), _constant("shape", [10**6], np.int64), first])


def _loop_inserts(build: Build) -> ModelProto:
    nodes = [
        helper.make_node("Expand", ["x", "shape"], ["row"]),
        helper.make_node("SequenceInsert", ["before", "row"], ["after"]),
    ]
    sequences = [helper.make_tensor_sequence_value_info(n, TensorProto.FLOAT, None) for n in ("before", "after")]
    loop = _loop(*nodes, results=sequences[1:], carried=sequences[:1], reads=["none"])
    loop.output[0] = "all"
    nodes = [helper.make_node("SequenceEmpty", [], ["none"]), loop, helper.make_node("SequenceLength", ["all"], ["y"])]
    return build(nodes, initializer=[_constant("count", 900, np.int64), _constant("shape", [10**6 // 3, 3], np.int64)])


def _strings_double(build: Build) -> ModelProto:
    names = ["s0", *(f"s{i}" for i in range(1, 32)), "y"]
    nodes = [helper.make_node("StringConcat", [a, a], [b], name=b) for a, b in itertools.pairwise(names)]
    text = helper.make_tensor("s0", TensorProto.STRING, [1], [b"x"])
    return build(nodes, initializer=[text], opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def _string_expanded(build: Build) -> ModelProto:
    text = helper.make_tensor("s0", TensorProto.STRING, [1], [b"x"])
    return build([helper.make_node("Expand", ["s0", "n"], ["y"])], initializer=[text, _constant("n", [240_000_000], np.int64)])


@pytest.mark.parametrize("make", [_loop_stacks, _loop_inserts, _strings_double, _string_expanded])
def test_what_grows_is_refused(build: Build, tmp_path: Path, make: Callable[[Build], ModelProto]) -> None:
    assert _run(build, tmp_path, make(build)).startswith("OutOfMemory")


def test_a_wide_one_hot_takes_little_more_than_its_result(build: Build, tmp_path: Path) -> None:
    depth = 3 * LIMIT // 4
    given = [_constant("depth", depth, np.int64), _constant("v", [0, 1], np.uint8), _constant("i0", [0], np.int64)]
    node = helper.make_node("OneHot", ["k", "depth", "v"], ["y"])
    cast = helper.make_node("Cast", ["x"], ["k0"], to=TensorProto.INT64)
    first = helper.make_node("Gather", ["k0", "i0"], ["k"])
    assert _run(build, tmp_path, build([cast, first, node], initializer=given)) == str(depth)


@pytest.mark.parametrize("op_type", ["AveragePool", "LpPool", "MaxPool"])
def test_a_kernel_beyond_the_input(build: Build, tmp_path: Path, op_type: str) -> None:
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["a"]),
        helper.make_node(op_type, ["a"], ["y"], kernel_shape=[10**8], auto_pad="SAME_UPPER"),
    ]
    assert _run(build, tmp_path, build(nodes, initializer=[_constant("shape", [1, 1, 3], np.int64)])) == "3"


def _run(build: Build, folder: Path, model: ModelProto) -> str:
    good, path = folder / "good.onnx", folder / "model.onnx"
    good.write_bytes(build([helper.make_node("Relu", ["x"], ["y"])]).SerializeToString())
    del model.graph.output[:]
    model.graph.output.append(helper.make_empty_tensor_value_info("y"))
    path.write_bytes(model.SerializeToString())
    ended = subprocess.run([sys.executable, "-c", PROGRAM, str(good), str(path)], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()
