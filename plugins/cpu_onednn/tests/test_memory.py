"""Memory that the host refuses: an error that names device and node, and a process that goes on."""

import os
import subprocess
import sys

import numpy as np
import pytest

from dovetail.device import Arenas
from dovetail.errors import OutOfMemory
from dovetail.graph import GraphBuilder
from dovetail.op import FLOATS, Operator
from dovetail_cpu_onednn import constants, making, planned
from dovetail_cpu_onednn.binding import Onednn
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.conv import Conv

LIMITED = """
import resource
import sys
import numpy as np
import dovetail
from dovetail.graph import GraphBuilder
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.mat_mul import MatMul

core, rng = dovetail.Core(), np.random.default_rng(0)

def check(size, spare=None):
    # A convolution and a product, of sizes that nothing was compiled for before.
    x, w, v = (rng.standard_normal(d).astype(np.float32) for d in ((1, size, 9, 8), (size, size, 3, 3), (6, 5)))
    g = GraphBuilder()
    y = g.node(MatMul(), g.node(Conv(), g.input("x", "float32", x.shape), g.constant(w)), g.constant(v))
    model = g.model([y])
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if spare is not None:
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + spare, hard))
    try:
        with core.compile_model(model, "ONEDNN", {"INFERENCE_NUM_THREADS": 1}) as compiled:
            got = compiled({"x": x})[y]
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (3, 3), (2, 3))
    np.testing.assert_allclose(got, np.einsum("nchwij,mcij->nmhw", windows, w) @ v, rtol=1e-3, atol=1e-3)

check(8)
refused = 0
for turn, spare in enumerate(map(int, sys.argv[1:])):
    try:
        check(33 + 2 * turn, spare)
    except (dovetail.errors.OutOfMemory, MemoryError) as error:  # the latter from outside of the device
        refused += "ONEDNN" in str(error)
    check(9 + turn)
print("refused", refused)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the address space is limited as on Linux")
def test_the_device_goes_on_after_memory_was_refused():
    """oneDNN itself would fail for ever: its code generator does not forget the error."""
    env = {**os.environ, "PYTHONPATH": ":".join(p for p in sys.path if p)}
    spares = [0, 300_000, 1_000_000, 3_000_000, 10_000_000, 30_000_000, 66_000_000, 67_500_000, 70_000_000, 200_000_000]
    command = [sys.executable, "-c", LIMITED, *map(str, spares)]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout.split()[-1]) >= 5


def convolution(size=5):
    g = GraphBuilder()
    w = g.constant(np.ones((4, 3, 1, 1), np.float32))
    return g, g.node(Conv(), g.input("x", "float32", (1, 3, size, 5)), w, name="scarce")


def no_memory(*args, **kwargs):
    raise MemoryError("Unable to allocate 8.00 TiB")


@pytest.mark.parametrize(("module", "name"), [(constants, "moved"), (planned, "_plan")])
def test_compiling_names_the_node(bench, monkeypatch, module, name):
    g, y = convolution()
    monkeypatch.setattr(module, name, no_memory)
    with pytest.raises(OutOfMemory, match=r"^ONEDNN, node 'scarce'.*8\.00 TiB"):
        bench.executable(g.graph([y]))


def test_a_primitive_without_memory_names_the_node(bench, monkeypatch):
    def refuses(self, desc):
        raise OutOfMemory("oneDNN: dnnl_primitive_create: out of memory")

    g, y = convolution(size=11)  # for which no other test has made a primitive
    monkeypatch.setattr(making, "lends_any_memory", lambda: False)  # machine code would make it
    monkeypatch.setattr(Onednn, "primitive", refuses)
    with pytest.raises(OutOfMemory, match=r"^ONEDNN, node 'scarce'.*dnnl_primitive_create"):
        bench.executable(g.graph([y]))


def test_compiling_names_the_device(bench, monkeypatch):
    g, y = convolution()
    monkeypatch.setattr(constants, "aligned", no_memory)
    with pytest.raises(OutOfMemory, match=r"^ONEDNN: .*8\.00 TiB"):
        bench.executable(g.graph([y]))


def test_a_request_names_the_device(bench, monkeypatch):
    g, y = convolution()
    executable = bench.executable(g.graph([y]))
    monkeypatch.setattr(Arenas, "take", lambda self, size: no_memory(size))
    with pytest.raises(OutOfMemory, match=r"^ONEDNN: .*8\.00 TiB"):
        executable.create_request()


def test_constants_that_a_request_lays_out_name_the_device(bench, monkeypatch):
    g = GraphBuilder()
    y = g.node(Add(), g.input("x", "int64", (2, 3)), g.constant(np.ones((2, 3), np.int64)))
    executable = bench.executable(g.graph([y]))
    monkeypatch.setattr(constants, "in_layout", no_memory)
    with pytest.raises(OutOfMemory, match=r"^ONEDNN: .*8\.00 TiB"):
        executable.create_request()


class Large(Operator):
    domain = "test.memory"
    inputs = ("X: T",)
    types = {"T": FLOATS}

    def reference(self, X):
        raise MemoryError


def test_a_run_names_the_node(bench):
    executable = bench.executable(bench.single(Large(), [np.ones(3, np.float32)])[0])
    with pytest.raises(OutOfMemory, match=r"^ONEDNN, node 'node'.*no memory"):
        executable.create_request().run([np.ones(3, np.float32)])
