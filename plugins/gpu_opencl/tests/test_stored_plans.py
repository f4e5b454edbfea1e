"""Plans in files and in `CACHE_DIR` give the results of the session that wrote them, bit for bit, or are refused."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper, numpy_helper

import dovetail
from dovetail.device import DeviceInfo
from dovetail.errors import DeviceError, FormatError
from dovetail_gpu_opencl.device import OpenCLDevice

Arrays = Mapping[str, NDArray[Any]]

RNG = np.random.default_rng(11)
WEIGHTS = {
    "w": RNG.standard_normal((40, 3, 3, 3)).astype(np.float32),
    "v": RNG.standard_normal((40, 640)).astype(np.float32),  # large enough to be left in the model's file
}
X = {"x": RNG.standard_normal((2, 3, 9, 7)).astype(np.float32)}
NETWORK = [
    helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
    helper.make_node("Relu", ["c"], ["r"]),
    helper.make_node("GlobalAveragePool", ["r"], ["p"]),
    helper.make_node("Flatten", ["p"], ["f"]),
    helper.make_node("MatMul", ["f", "v"], ["y"]),
]


def write_model(
    path: Path, nodes: Sequence[NodeProto], inputs: Arrays, constants: Arrays = MappingProxyType({}), *, external: bool = False
) -> Path:
    """A model with the output y; its inputs have the types of arrays, with an open first dimension where there is one."""

    def declared(name: str, array: NDArray[Any]) -> onnx.ValueInfoProto:
        shape = [f"{name}0", *array.shape[1:]] if array.ndim else []
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), shape)

    given = [declared(name, array) for name, array in inputs.items()]
    kept = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    made = helper.make_model(
        helper.make_graph(nodes, "test", given, [y], kept), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    onnx.save(made, path, save_as_external_data=external, location="weights.bin" if external else None, size_threshold=1000)
    return path


@pytest.fixture(autouse=True)
def _room(kept: Path) -> Path:
    return kept


def compiled_with(folder: Path, model: Path, device: str, **properties: Any) -> dovetail.CompiledModel:
    return dovetail.Core(config=False).compile_model(model, device, {"CACHE_DIR": str(folder), **properties})


def is_unread(compiled: dovetail.CompiledModel) -> bool:
    return "nodes" not in vars(compiled.model.graph)


def check_second(tmp_path: Path, model: Path, device: str, *runs: Arrays) -> dovetail.CompiledModel:
    """A second session reads no model, and gives the same bits; so does one that imports a file."""
    first = compiled_with(tmp_path / "plans", model, device)
    expected = [first(given)["y"].copy() for given in runs]
    second = compiled_with(tmp_path / "plans", model, device)
    first.export_model(tmp_path / "m.plans")
    imported = dovetail.Core(config=False).import_model(tmp_path / "m.plans")
    for again in (second, imported):
        for given, y in zip(runs, expected, strict=True):
            np.testing.assert_array_equal(again(given)["y"], y)
        assert is_unread(again)
    return second


@pytest.mark.parametrize("external", [False, True])
def test_a_network(tmp_path: Path, info: DeviceInfo, external: bool) -> None:
    model = write_model(tmp_path / "m.onnx", NETWORK, X, WEIGHTS, external=external)
    second = check_second(tmp_path, model, info.name, X, {"x": X["x"][:1]}, {"x": X["x"][:0]})
    assert {node.device for node in second.report().nodes} == {info.name}
    plain = dovetail.Core(config=False).compile_model(model, info.name)
    np.testing.assert_array_equal(plain(X)["y"], second(X)["y"])


@pytest.mark.parametrize("hint", ["f16", "bf16"])
def test_half_precision(tmp_path: Path, info: DeviceInfo, hint: str) -> None:
    """On a GPU with matrix units nodes read and write halves that their operators alone would refuse. Others refuse the hint."""
    model = write_model(tmp_path / "m.onnx", NETWORK, X, WEIGHTS)
    properties = {"INFERENCE_PRECISION_HINT": hint}
    if not OpenCLDevice(info).caps.ptx:
        with pytest.raises(DeviceError, match="has no matrix units"):
            dovetail.Core(config=False).compile_model(model, info.name, properties)
        return
    compiled = dovetail.Core(config=False).compile_model(model, info.name, properties)
    expected = compiled(X)["y"]
    compiled.export_model(tmp_path / "m.plans")
    imported = dovetail.Core(config=False).import_model(tmp_path / "m.plans", properties=properties)
    np.testing.assert_array_equal(imported(X)["y"], expected)
    assert is_unread(imported)


def test_another_process(tmp_path: Path, info: DeviceInfo) -> None:
    model = write_model(tmp_path / "m.onnx", NETWORK, X, WEIGHTS)
    np.savez(tmp_path / "x.npz", x=X["x"])
    code = (
        "import json, sys, numpy as np, dovetail\n"
        "model, device, folder, x, target = sys.argv[1:]\n"
        "compiled = dovetail.Core(config=False).compile_model(model, device, {'CACHE_DIR': folder})\n"
        "np.save(target, compiled(dict(np.load(x)))['y'])\n"
        "print(json.dumps(['nodes' in vars(compiled.model.graph), *{n.device for n in compiled.report().nodes}]))\n"
    )
    results = []
    for number in range(2):
        target = tmp_path / f"{number}.npy"
        given = (model, info.name, tmp_path / "plans", tmp_path / "x.npz", target)
        command = [sys.executable, "-c", code, *map(str, given)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
        results.append((json.loads(done.stdout), np.load(target)))
    (was_read, first), (is_read, second) = results
    assert (was_read, is_read) == ([True, info.name], [False, info.name])
    np.testing.assert_array_equal(first, second)


def test_parts_of_the_host(tmp_path: Path, info: DeviceInfo) -> None:
    """ArrayFeatureExtractor has no kernel of OPENCL here, so that NUMPY runs it between two parts."""
    nodes = [
        helper.make_node("MatMul", ["x", "v"], ["a"]),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("ArrayFeatureExtractor", ["r", "at"], ["e"], domain="ai.onnx.ml"),
        helper.make_node("Mul", ["e", "e"], ["y"]),
    ]
    at = np.array([3, 500, 0], np.int64)
    x = {"x": RNG.standard_normal((4, 40)).astype(np.float32)}
    model = write_model(tmp_path / "m.onnx", nodes, x, {"v": WEIGHTS["v"], "at": at})
    proto = onnx.load(model)
    proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    onnx.save(proto, model)
    second = check_second(tmp_path, model, info.name, x)
    assert {node.device for node in second.report().nodes} == {info.name, "NUMPY"}


def test_results_of_open_shapes(tmp_path: Path, info: DeviceInfo) -> None:
    """The rows that have a sum above zero, times weights: planned when their number is known."""
    nodes = [
        helper.make_node("ReduceSum", ["x", "one"], ["s"], keepdims=0),
        helper.make_node("Greater", ["s", "zero"], ["g"]),
        helper.make_node("Compress", ["x", "g"], ["rows"], axis=0),
        helper.make_node("MatMul", ["rows", "v"], ["y"]),
    ]
    constants: Arrays = {"one": np.array([1], np.int64), "zero": np.array(0, np.float32), "v": WEIGHTS["v"]}
    x = {"x": RNG.standard_normal((9, 40)).astype(np.float32)}
    check_second(tmp_path, write_model(tmp_path / "m.onnx", nodes, x, constants), info.name, x, {"x": -x["x"]}, {"x": 0 * x["x"]})


def test_bodies_of_control_flow(tmp_path: Path, info: DeviceInfo) -> None:
    """A Loop that multiplies by weights from outside, and adds or subtracts by an If in it."""
    typed = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("b", "state", "next")}
    go, going = (helper.make_tensor_value_info(name, TensorProto.BOOL, []) for name in ("go", "going"))
    i = helper.make_tensor_value_info("i", TensorProto.INT64, [])
    branches = {
        name: helper.make_graph([helper.make_node(op, ["m", "x"], ["b"])], name, [], [typed["b"]])
        for name, op in (("then_branch", "Add"), ("else_branch", "Sub"))
    }
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["state", "square"], ["m0"]),
            helper.make_node("Tanh", ["m0"], ["m"]),
            helper.make_node("ReduceSum", ["m"], ["sum"], keepdims=0),
            helper.make_node("Greater", ["sum", "zero"], ["above"]),
            helper.make_node("If", ["above"], ["next"], **branches),
            helper.make_node("Identity", ["go"], ["going"]),
        ],
        "body",
        [i, go, typed["state"]],
        [going, typed["next"]],
    )
    nodes = [helper.make_node("Loop", ["n", "", "x"], ["l"], body=body), helper.make_node("Relu", ["l"], ["y"])]
    constants: Arrays = {"square": RNG.standard_normal((160, 160)).astype(np.float32), "zero": np.array(0, np.float32)}
    x: Arrays = {"x": RNG.standard_normal((2, 160)).astype(np.float32), "n": np.array(3, np.int64)}
    model = write_model(tmp_path / "m.onnx", nodes, x, constants)
    check_second(tmp_path, model, info.name, x, {"x": -x["x"], "n": np.array(0, np.int64)}, {**x, "n": np.array(5, np.int64)})


def test_another_driver_is_named(tmp_path: Path, info: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    model, path = write_model(tmp_path / "m.onnx", NETWORK, X, WEIGHTS), tmp_path / "m.plans"
    first = dovetail.Core(config=False).compile_model(model, info.name)
    expected = first(X)["y"].copy()
    first.export_model(path)
    core = dovetail.Core(config=False)
    found = core.plugins.device_info(info.name)
    driver = re.escape(str(found.details["driver"]))
    monkeypatch.setitem(found.details, "driver", "another")
    with pytest.raises(FormatError, match=f"it was made for {info.name} driver {driver}, here is another"):
        core.import_model(path)
    compiled_with(tmp_path / "plans", model, info.name)(X)
    again = core.compile_model(model, info.name, {"CACHE_DIR": str(tmp_path / "plans")})
    np.testing.assert_array_equal(again(X)["y"], expected)
    assert not is_unread(again)


def test_damaged_entries_are_made_again(tmp_path: Path, info: DeviceInfo) -> None:
    model = write_model(tmp_path / "m.onnx", NETWORK, X, WEIGHTS)
    expected = compiled_with(tmp_path / "plans", model, info.name)(X)["y"].copy()
    for damage in (
        lambda content: content[:-1],
        lambda content: content[: len(content) // 2],
        lambda content: b"",
        lambda content: content[:-2] + bytes([content[-2] ^ 64, content[-1]]),  # of an array
    ):
        for entry in (tmp_path / "plans" / "plans").iterdir():
            entry.write_bytes(damage(entry.read_bytes()))
        np.testing.assert_array_equal(compiled_with(tmp_path / "plans", model, info.name)(X)["y"], expected)


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_that_cannot_be_written_is_read(tmp_path: Path, info: DeviceInfo) -> None:
    model = write_model(tmp_path / "m.onnx", NETWORK, X, WEIGHTS)
    expected = compiled_with(tmp_path / "plans", model, info.name)(X)["y"].copy()
    (tmp_path / "plans" / "plans").chmod(0o500)
    try:
        again = compiled_with(tmp_path / "plans", model, info.name)
        np.testing.assert_array_equal(again(X)["y"], expected)
        assert is_unread(again)
        again({"x": X["x"][:1]})  # is kept nowhere
    finally:
        (tmp_path / "plans" / "plans").chmod(0o700)


LAYER = """<CustomLayer name="Relu" type="SimpleGPU" version="1"><Kernel entry="k"><Source filename="k.cl"/></Kernel><Buffers>
<Tensor arg-index="0" type="input" port-index="0" format="{0}"/><Tensor arg-index="1" type="output" port-index="0" format="{0}"/>
</Buffers><WorkSizes global="X,Y,B*F"/></CustomLayer>"""
KERNEL = """__kernel void k(__global const float* in, __global float* out) {{
  const int x = get_global_id(0), y = get_global_id(1);
  const int f = get_global_id(2) % INPUT0_DIMS[1], b = get_global_id(2) / INPUT0_DIMS[1];
  const int at = b * INPUT0_PITCHES[0] + f * INPUT0_PITCHES[1] + y * INPUT0_PITCHES[2] + x * INPUT0_PITCHES[3] + INPUT0_OFFSET;
  out[at] = {} * in[at];
}}"""


@pytest.mark.parametrize("given", [str, lambda path: [str(path)], lambda path: path])
def test_changed_custom_layers_count(tmp_path: Path, info: DeviceInfo, given: Any) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Neg", ["r"], ["y"])]
    model, layers = write_model(tmp_path / "m.onnx", nodes, X), tmp_path / "layers.xml"
    for number, layout in enumerate(("BFYX", "BYXF", "BFYX")):
        layers.write_text(LAYER.format(layout) + " " * number)  # of another size
        (tmp_path / "k.cl").write_text(KERNEL.format(number + 2))
        for _ in range(2):
            found = compiled_with(tmp_path / "plans", model, info.name, CONFIG_FILE=given(layers))(X)["y"]
            np.testing.assert_array_equal(found, -(number + 2) * X["x"])
