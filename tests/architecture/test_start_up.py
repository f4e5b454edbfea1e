"""The modules that a new process imports until the first result of a small model: each costs time, and is easily added."""

import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

SCRIPT = """
import sys
import numpy as np
before = set(sys.modules)
import dovetail
model = dovetail.Core(config=None).compile_model(*sys.argv[1:])
assert model(np.zeros((2, 3), np.float32))["y"].shape == (4, 5)
print(*(set(sys.modules) - before))
"""
NEEDLESS = {
    "concurrent.futures": "nothing runs in the background",
    "dovetail.evaluate.post_ops": "the device computes post-ops",
    "dovetail.graph.growth": "no states grow",
    "dovetail.internal.convert": "all is float32",
    "dovetail.internal.copy": "no result is wanted twice",
    "dovetail.internal.post_ops": "no node has post-ops of its own",
    "dovetail.passes.inline": "there is no If",
    "dovetail.planning.any_shapes": "there is one shape",
    "dovetail.planning.deferred": "no shape depends on data",
    "dovetail.planning.report": "nobody asks for the report",
    "dovetail.planning.support": "nobody asks which device runs a node",
    "dovetail.runtime.extensions": "no operator is added",
    "dovetail.runtime.queue": "there is one request",
    "dovetail.runtime.traced_request": "no run is recorded",
    "dovetail.tracing": "nor is it asked for",
    "dovetail_authoring": "no command is asked for",
    "dovetail_gpu_opencl": "no other device is asked for",
    "dovetail_ops_onnx._strings": "no strings are cast",
    "dovetail_ops_onnx.attention": "no Softmax is read by a product",
    "dovetail_ops_onnx.cases": "cases are for tests",
    "dovetail_ops_onnx.conv": "no Pad is read by a convolution",
    "dovetail_ops_onnx.passes._decisions": "all runs have the same sizes",
    "dovetail_tools": "no command is asked for",
    "dovetail_views": "no command is asked for, and no trace is written",
    "heapq": "no strings are sorted",
    "logging": "there is nothing to warn of, and nobody asks for more",
    "onnx": "its message classes are made from the descriptor",
    **({"platformdirs": "the environment names the user's folders"} if sys.platform == "linux" else {}),
}
MODULES = {"NUMPY": 167, "ONEDNN": 185}
"""Modules of our packages that the model may import on a device, a few more than it does: each takes 0.2 ms."""


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
def test_a_small_model_imports_what_it_needs(tmp_path: Path, device: str) -> None:
    nodes = [helper.make_node("Pad", ["x", "pads"], ["padded"]), helper.make_node("Softmax", ["padded"], ["y"])]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", ["n", 3]), ("y", ["m", 5]))]
    pads = helper.make_tensor("pads", TensorProto.INT64, [4], [1, 1, 1, 1])
    graph = helper.make_graph(nodes, "small", ends[:1], ends[1:], [pads])
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    command = [sys.executable, "-W", "ignore:Selected implementation upb", "-c", SCRIPT, str(path), device]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    imported = set(done.stdout.split())
    assert {"dovetail_ops_onnx.pad", "dovetail_ops_onnx.softmax", "dovetail_frontend_onnx.reader"} <= imported
    assert {name: reason for name, reason in NEEDLESS.items() if name in imported} == {}
    assert len([name for name in imported if name.startswith("dovetail")]) <= MODULES[device]
    # ONEDNN runs both nodes: NUMPY is opened for what it refuses, and asked nothing.
    assert ("dovetail_cpu_numpy.placement" in imported) == (device == "NUMPY")
    assert ("dovetail.operators.host_kernel" in imported) == (device == "NUMPY")
