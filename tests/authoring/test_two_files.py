"""A pack of two files, written outside the repository: install it and a model runs; remove it and the error says what to do."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, save

PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "org-example-audio"
version = "1.0"
dependencies = ["dovetail>=0.1"]

[project.entry-points."dovetail.ops"]
"org.example.audio" = "audio_ops"

[tool.hatch.build.targets.wheel]
include = ["audio_ops.py"]
"""
MODULE = '''\
import numpy as np
from dovetail.hookspecs import hookimpl
from dovetail.op import FLOATS, OpenCLKernel, Operator

dovetail_api = "1.0"

SOURCE = """
__kernel void fold(__global const float *src, __global float *dst, float limit)
{
    const size_t i = get_global_id(0);
    dst[i] = fabs(src[i]) > limit ? 2 * copysign(limit, src[i]) - src[i] : src[i];
}
"""


class Foldback(Operator):
    """Values over the limit are folded back down."""

    domain = "org.example.audio"
    inputs, outputs, types = ("X: T",), ("Y: T",), {"T": FLOATS}
    kernels = (OpenCLKernel(source=SOURCE, entry={"float32": "fold"}, scalars=(("limit", "float"),)),)
    limit: float = 1.0

    def reference(self, X):
        limit = X.dtype.type(self.limit)
        return np.where(np.abs(X) > limit, 2 * np.copysign(limit, X) - X, X)


@hookimpl
def dovetail_register_ops(registry):
    registry.add(Foldback)
'''


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """y = relu(foldback(x, limit 0.75)), x [N, 5]."""
    nodes = [
        helper.make_node("Foldback", ["x"], ["folded"], "fold", domain="org.example.audio", limit=0.75),
        helper.make_node("Relu", ["folded"], ["y"], "relu"),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 5]) for name in "xy")
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("org.example.audio", 1)]
    save(helper.make_model(helper.make_graph(nodes, "audio", [x], [y]), opset_imports=opsets, ir_version=8), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_a_pack_of_two_files(environment: Any, built: Callable[[Path], tuple[Path, Path]], model: Path, tmp_path: Path) -> None:
    pack = tmp_path / "pack"
    pack.mkdir()
    (pack / "pyproject.toml").write_text(PROJECT)
    (pack / "audio_ops.py").write_text(MODULE)
    x = np.float32(np.random.default_rng(4).integers(-12, 13, (7, 5)) / 8)
    np.savez(tmp_path / "x.npz", x=x)

    def ran(device: str) -> Any:
        environment.dovetail("run", "m.onnx", "-d", device, "-i", "x.npz", "-o", f"{device}.npz", cwd=tmp_path)
        with np.load(tmp_path / f"{device}.npz") as stored:
            return stored["y"]

    def refused(device: str) -> str:
        done = environment.dovetail("run", "m.onnx", "-d", device, "-i", "x.npz", cwd=tmp_path, ok=False)
        assert done.returncode == 1
        assert done.stdout == ""
        assert "Traceback" not in done.stderr
        return str(done.stderr)

    assert missing_is_explained(refused("NUMPY"))
    environment.install(built(pack)[0])
    # Eighths of small numbers: float32 holds every step exactly.
    expected = np.maximum(np.where(np.abs(x) > 0.75, np.sign(x) * 1.5 - x, x), 0)
    assert (np.abs(x) > 0.75).any()
    for device in ("NUMPY", "OPENCL"):
        np.testing.assert_array_equal(ran(device), expected)
    kernels = environment.python("-c", KERNELS, cwd=tmp_path).stdout
    assert re.findall(r"^(\S+) (\S+) (\S+) (.+)$", kernels, re.MULTILINE)[:2] == [
        ("NUMPY", "org.example.audio::Foldback", "ref", "org-example-audio 1.0"),
        ("OPENCL.0", "org.example.audio::Foldback", "fold", "org-example-audio 1.0"),
    ]

    environment.uninstall("org-example-audio")
    assert missing_is_explained(refused("NUMPY"))
    assert missing_is_explained(refused("OPENCL"))


KERNELS = """
import dovetail
for device in ("NUMPY", "OPENCL"):
    compiled = dovetail.Core().compile_model("m.onnx", device)
    compiled({"x": __import__("numpy").zeros((2, 5), "float32")})
    node = compiled.report().nodes[0]
    print(node.device, node.op, node.kernel, node.provider)
"""


def missing_is_explained(message: str) -> bool:
    """The error names file, node, operator and domain, and how to get it."""
    assert "org.example.audio::Foldback" in message
    assert "no op pack of domain 'org.example.audio' is installed" in message
    assert "Install a package with an entry point 'org.example.audio' in the group dovetail.ops" in message
    assert "core.add_extension" in message
    assert "node 'fold'" in message
    return True
