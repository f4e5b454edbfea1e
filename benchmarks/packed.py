"""The time of a product by weights of 2, 4 or 8 bits (MatMulNBits), from one row to a prompt's: ms of CPU, beside onnxruntime.

    python benchmarks/packed.py -d ONEDNN -d NUMPY
    python benchmarks/packed.py -d ONEDNN --size 896x4864 --bits 8 --accuracy 4 --rows 1 32

Models of one node with seeded random weights and no zero points, on one thread. Each figure is the least CPU time of interleaved
runs, so it also holds on a busy machine. `error` is the largest difference from the product in float64, over its largest number:
at accuracy level 4 a runtime may round activations to int8, which shows as 5e-3; at level 0 all compute in float32.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from importlib import import_module
from itertools import product
from typing import Any

import numpy as np
from _common import Row, emit, error_figures, limit_threads, parser
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Array = NDArray[Any]
Run = Callable[[Array], Array]


def weights(k: int, n: int, bits: int, block: int, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Packed numbers [n, blocks, bytes], scales [n * blocks] and the matrix [k, n] that they are, in float64."""
    blocks, per_byte = -(-k // block), 8 // bits
    packed = rng.integers(0, 256, (n, blocks, block // per_byte)).astype(np.uint8)
    scales = rng.uniform(0.01, 0.1, n * blocks).astype(np.float32)
    parts = [packed >> np.uint8(bits * part) & np.uint8(2**bits - 1) for part in range(per_byte)]
    numbers = np.stack(parts, -1).reshape(n, blocks, block) - 2.0 ** (bits - 1)
    return packed, scales, (numbers * scales.reshape(n, blocks, 1)).reshape(n, -1)[:, :k].T


def model(packed: Array, scales: Array, attributes: dict[str, Any]) -> bytes:
    """One MatMulNBits with any number of rows."""
    constants = [numpy_helper.from_array(packed, "B"), numpy_helper.from_array(scales, "scales")]
    node = helper.make_node("MatMulNBits", ["A", "B", "scales"], ["Y"], domain="com.microsoft", **attributes)
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["M", attributes[size]]) for name, size in (("A", "K"), ("Y", "N"))
    ]
    graph = helper.make_graph([node], "packed", values[:1], values[1:], constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    found: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    return found


def runs(file: bytes, devices: list[str]) -> dict[str, Run]:
    """A function from A to Y for each device, and for onnxruntime."""
    ort: Any = import_module("onnxruntime")
    dovetail = import_module("dovetail")
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session, core = ort.InferenceSession(file, options, providers=["CPUExecutionProvider"]), dovetail.Core()
    requests = [core.compile_model(core.read_model(file, format="onnx"), name).create_infer_request() for name in devices]
    ours = {
        name: lambda a, one=request: next(iter(one.infer({"A": a}).values()))
        for name, request in zip(devices, requests, strict=True)
    }
    return {**ours, "onnxruntime": lambda a: session.run(None, {"A": a})[0]}


def least(calls: dict[str, Run], a: Array, rounds: int) -> dict[str, float]:
    """The least CPU time of each in ms, in `rounds` interleaved runs after two that warm up."""
    found: dict[str, float] = {}
    for turn in range(rounds + 2):
        for name, call in calls.items():
            start = time.process_time()
            call(a)
            taken = 1e3 * (time.process_time() - start)
            if turn > 1:
                found[name] = min(found.get(name, taken), taken)
    return found


def main() -> int:
    """One row for each matrix, accuracy level and number of rows."""
    options = parser(__doc__)
    options.add_argument("-d", "--device", action="append", help="repeatable; ONEDNN and NUMPY by default")
    options.add_argument("--size", nargs="+", default=["2048x2048", "896x4864"], help="K x N")
    options.add_argument("--bits", type=int, nargs="+", default=[4], choices=(2, 4, 8))
    options.add_argument("--block", type=int, nargs="+", default=[32, 128], help="numbers that share a scale")
    options.add_argument("--accuracy", type=int, nargs="+", default=[0, 4], help="accuracy_level of the nodes")
    options.add_argument("--rows", type=int, nargs="+", default=[1, 4, 16, 32, 128, 512])
    options.add_argument("--rounds", type=int, default=20)
    given = options.parse_args()
    limit_threads(1)
    devices, rng, rows = given.device or ["ONEDNN", "NUMPY"], np.random.default_rng(0), list[Row]()
    for size, bits, block in product(given.size, given.bits, given.block):
        k, n = map(int, size.split("x"))
        packed, scales, matrix = weights(k, n, bits, block, rng)
        for level in given.accuracy:
            attributes = {"K": k, "N": n, "bits": bits, "block_size": block, "accuracy_level": level}
            calls = runs(model(packed, scales, attributes), devices)
            for count in given.rows:
                a = rng.standard_normal((count, k)).astype(np.float32)
                expected = (a.astype(np.float64) @ matrix).astype(np.float32)
                row: Row = {"K x N": size, "bits": bits, "block": block, "level": level, "rows": count}
                for name, ms in least(calls, a, given.rounds).items():
                    row |= {f"{name} ms": ms, f"{name} error": error_figures(calls[name](a), expected)[1]}
                rows.append(row)
    emit(given.json, rows, {})
    return 0


if __name__ == "__main__":
    sys.exit(main())
