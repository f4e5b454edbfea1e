"""Nodes that run for seconds and are left, in processes of their own: the end of the process, and nodes of real size."""

import subprocess
import sys

import pytest

AT_EXIT = """
import sys, threading, time
import numpy as np, dovetail
from dovetail.errors import RunCancelled
from dovetail.op import FLOATS, Operator

class Slow(Operator):
    "X, after a while."
    domain, inputs, types = "test", ("X: T",), {"T": FLOATS}
    def flops(self, inputs, outputs):
        return 10**12
    def reference(self, X):
        entered.set()
        time.sleep(1)
        print("the node ended", flush=True)
        return X + X.dtype.type(0)

entered = threading.Event()
g = dovetail.GraphBuilder()
request = dovetail.Core().compile_model(g.model([g.node(Slow(), g.input("x", "float32", [3]))]), "NUMPY").create_infer_request()
threading.Thread(target=lambda: entered.wait() and request.cancel()).start()
try:
    request.infer(np.zeros(3, np.float32))
except RunCancelled:
    print("cancelled", flush=True)
"""


def test_a_process_ends_in_good_order_after_the_node() -> None:
    done = subprocess.run([sys.executable, "-c", AT_EXIT], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split("\n") == ["cancelled", "the node ended", ""]


REAL = """
import os, sys, threading, time
import numpy as np, dovetail
from dovetail.devices.interruptible import Call, are_calls_left
from dovetail.errors import RunCancelled
from dovetail_ops_onnx.cast import Cast
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.top_k import TopK

def product():
    return g.node(MatMul(), g.input("x", "int64", [3000, 3000]), g.input("w", "int64", [3000, 3000]), name="long")

def sort():
    return g.node(TopK(sorted=True), g.input("x", "float32", [20_000_000]), g.constant([20_000_000], "int64"), name="long")[0]

def convolution():
    x, w = g.input("x", "float32", [4, 128, 192, 192]), g.input("w", "float32", [128, 128, 31, 31])
    return g.node(Conv(kernel_shape=(31, 31)), x, w, name="long")

def text():
    return g.node(Cast(to="string"), g.input("x", "float64", [6_000_000]), name="long")

g = dovetail.GraphBuilder()
model = g.model([globals()[sys.argv[1]]()])
rng = np.random.default_rng(1)
feeds = {name: (99 * rng.random(t.dims)).astype(t.dtype.numpy) for name, t in model.inputs.items()}
request = dovetail.Core().compile_model(model, sys.argv[2]).create_infer_request()

calls, on_thread = [], Call.on_thread
Call.on_thread = lambda call, node: (calls.append(call), on_thread(call, node))[1]

def cancel():
    while "running" not in [call.state for call in calls]:
        time.sleep(0.01)
    time.sleep(0.1)
    request.cancel()

threading.Thread(target=cancel).start()
try:
    request.infer(feeds)
except RunCancelled as error:
    print(error.message, are_calls_left(), flush=True)
os._exit(0)  # the node goes on for many seconds
"""


@pytest.mark.parametrize(
    ("node", "device", "name"),
    [("product", "NUMPY", "MatMul"), ("sort", "NUMPY", "TopK"), ("convolution", "ONEDNN", "Conv"), ("text", "NUMPY", "Cast")],
)
def test_real_nodes(node: str, device: str, name: str) -> None:
    done = subprocess.run([sys.executable, "-c", REAL, node, device], capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr) == (f"the run was cancelled at node 'long' ({name}) True\n", "")
