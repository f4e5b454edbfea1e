"""The framework's own cost a node: a chain of 200 tiny Adds, against the same 200 calls in a hand-written loop.

`python benchmarks/overhead.py [-d NUMPY -d OPENCL] [--nodes 200] [--json]`. Each Add takes the last result and a constant
of its own, 8 floats, and fusion is off, so that every node is one call. NUMPY's rival is a loop of `np.add(a, b, out=c)`
and a copy of the result; OPENCL's enqueues kernels whose arguments were set once, with the same upload and read-back.
`onnxruntime us` is its session on the same file, whose nodes it need not keep apart.
Rounds are interleaved. `us a node` is (median - median of the rival) / nodes; a chain of one node shows what a request
costs once, and `us a further node` is the difference between the two chains' overheads for each node more.
"""

from __future__ import annotations

import functools
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from _common import Row, emit, interleaved, limit_threads, median, parser
from _runners import Dovetail, OnnxRuntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

WIDTH = 8
GOALS = {"NUMPY": 1.5, "OPENCL": 0.5}
ADD = """
__kernel void add(__global const float* a, __global const float* b, __global float* c) {
    const size_t i = get_global_id(0);
    c[i] = a[i] + b[i];
}
"""
Floats = NDArray[np.float32]


def constants(nodes: int) -> list[Floats]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(WIDTH).astype(np.float32) for _ in range(nodes)]


def write_chain(path: Path, addends: list[Floats]) -> None:
    """An ONNX file: input + constant + constant + ..., one Add node each."""
    count = len(addends)
    names = ["input", *(f"sum_{index}" for index in range(count - 1)), "output"]
    nodes = [helper.make_node("Add", [names[i], f"addend_{i}"], [names[i + 1]], f"add_{i}") for i in range(count)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [WIDTH]) for name in ("input", "output")]
    initializers = [numpy_helper.from_array(value, f"addend_{i}") for i, value in enumerate(addends)]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], initializers)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def numpy_loop(x: Floats, addends: list[Floats]) -> Callable[[], Floats]:
    """The rival of NUMPY: bound operands, preallocated results."""
    results = [np.empty(WIDTH, np.float32) for _ in addends]
    steps = list(zip([x, *results[:-1]], addends, results, strict=True))
    add = np.add

    def run() -> Floats:
        for a, b, c in steps:
            add(a, b, out=c)
        return results[-1].copy()

    return run


def opencl_loop(x: Floats, addends: list[Floats]) -> Callable[[], Floats]:
    """The rival of OPENCL: one kernel object a node with its arguments set, an in-order queue, raw enqueues."""
    import pyopencl as cl

    context = cl.create_some_context(interactive=False)
    queue, flags = cl.CommandQueue(context), cl.mem_flags
    program = cl.Program(context, ADD).build()
    results = [cl.Buffer(context, flags.READ_WRITE, x.nbytes) for _ in range(len(addends) + 1)]
    weights = [cl.Buffer(context, flags.READ_ONLY | flags.COPY_HOST_PTR, hostbuf=value) for value in addends]
    kernels = [cl.Kernel(program, "add") for _ in addends]
    for index, kernel in enumerate(kernels):
        kernel.set_args(results[index], weights[index], results[index + 1])
    enqueue, copy, size = cl.enqueue_nd_range_kernel, cl.enqueue_copy, (WIDTH,)

    def run(_alive: object = (results, weights)) -> Floats:  # a kernel does not keep its arguments alive
        result = np.empty(WIDTH, np.float32)
        copy(queue, results[0], x, is_blocking=False)
        for kernel in kernels:
            enqueue(queue, kernel, size, None)
        copy(queue, result, results[-1])
        return result

    return run


RIVALS: dict[str, Callable[[Floats, list[Floats]], Callable[[], Floats]]] = {"NUMPY": numpy_loop, "OPENCL": opencl_loop}


def compare(device: str, nodes: int, rounds: int, folder: Path) -> Row:
    """Medians of the device and of its rival on a chain of `nodes`, after a check that both give the same numbers."""
    addends, x = constants(nodes), constants(1)[0] * 2
    path = folder / f"chain_{nodes}.onnx"
    write_chain(path, addends)
    runner, rival = Dovetail(path, device, {"FUSION": False}), RIVALS[device](x, addends)
    ours = functools.partial(runner.infer, {"input": x})
    if runner.nodes() != nodes:
        raise RuntimeError(f"{device} runs the chain of {nodes} nodes as {runner.nodes()}: this would not be a cost a node")
    np.testing.assert_allclose(ours()["output"], rival(), rtol=1e-5, atol=1e-5)
    session = OnnxRuntime(path, {}, 2)
    peer = functools.partial(session.run, {"input": x})
    np.testing.assert_allclose(peer()["output"], rival(), rtol=1e-5, atol=1e-5)
    samples = interleaved({"ours": ours, "rival": rival, "onnxruntime": peer}, rounds, budget_ms=50.0)
    found = {name: 1e3 * median(values) for name, values in samples.items()}
    return {
        "device": device,
        "nodes": nodes,
        "dovetail us": found["ours"],
        "by hand us": found["rival"],
        "onnxruntime us": found["onnxruntime"],
        "overhead us": found["ours"] - found["rival"],
        "us a node": (found["ours"] - found["rival"]) / nodes,
    }


def measure(device: str, nodes: int, rounds: int, folder: Path) -> list[Row]:
    """The rows of a chain of one node and of a chain of `nodes`."""
    one, many = (compare(device, count, rounds, folder) for count in (1, nodes))
    further = (many["overhead us"] - one["overhead us"]) / (nodes - 1)
    return [{**one, "us a further node": None, "goal": None}, {**many, "us a further node": further, "goal": GOALS[device]}]


def main() -> int:
    options = parser(__doc__)
    options.add_argument("-d", "--device", action="append", choices=sorted(RIVALS), help="repeatable; both by default")
    options.add_argument("--nodes", type=int, default=200)
    options.add_argument("--rounds", type=int, default=21)
    arguments = options.parse_args()
    limit_threads(2)
    with tempfile.TemporaryDirectory() as folder:
        rows = [
            row
            for device in arguments.device or RIVALS
            for row in measure(device, arguments.nodes, arguments.rounds, Path(folder))
        ]
    emit(arguments.json, rows, {"floats a tensor": WIDTH})
    return 0


if __name__ == "__main__":
    sys.exit(main())
