"""Does planning grow with the nodes, and what does a new input shape cost? CPU seconds of reading and compiling.

`python benchmarks/planning.py [-d NUMPY] [--nodes 1250 --nodes 5000] [--json]` makes graphs of small operators: a chain;
branches from one input that are added up in pairs, equal ones, which runtimes merge, and ones of different slopes; as many
outputs as nodes, of one input; residual blocks of two convolutions. Each is read and compiled once in this process, after a
small one of its kind, and by onnxruntime. Further rows: the plan of MiniLM for one more length of its input, with the model
read and other lengths planned already.
"""

from __future__ import annotations

import functools
import resource
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnxruntime as ort
from _common import MODELS, Row, emit, limit_threads, median, parser
from onnx import NodeProto, TensorProto, helper, numpy_helper

import dovetail

THREADS = 2
DIMS = (1, 8, 4, 4)
LENGTHS = (16, 24, 32, 48, 64, 96, 128)
Nodes = tuple[list[NodeProto], list[str]]


def chain(count: int) -> Nodes:
    names = ["x", *(f"v{i}" for i in range(count))]
    kinds = ("Relu", "Sigmoid", "Tanh", "Neg")
    return [helper.make_node(kinds[i % 4], [names[i]], [names[i + 1]]) for i in range(count)], names[-1:]


def branches(count: int) -> Nodes:
    return added_up([helper.make_node("LeakyRelu", ["x"], [f"b{i}"], alpha=i / count) for i in range(count // 2)])


def equal_branches(count: int) -> Nodes:
    return added_up([helper.make_node("Sigmoid", ["x"], [f"b{i}"]) for i in range(count // 2)])


def added_up(nodes: list[NodeProto]) -> Nodes:
    values = [node.output[0] for node in nodes]
    while len(values) > 1:
        pairs = list(zip(values[::2], values[1::2], strict=False))
        sums = [f"{a}+" for a, _ in pairs]
        nodes += [helper.make_node("Add", [a, b], [s]) for (a, b), s in zip(pairs, sums, strict=True)]
        values = sums + values[2 * len(pairs) :]
    return nodes, values


def outputs(count: int) -> Nodes:
    names = [f"o{i}" for i in range(count)]
    return [helper.make_node("LeakyRelu", ["x"], [name], alpha=i / count) for i, name in enumerate(names)], names


def residual(count: int) -> Nodes:
    nodes, value = [], "x"
    for i in range(count // 4):
        conv = functools.partial(helper.make_node, "Conv", pads=[1, 1, 1, 1])
        nodes += [conv([value, "w"], [f"c{i}"]), helper.make_node("Relu", [f"c{i}"], [f"r{i}"]), conv([f"r{i}", "w"], [f"d{i}"])]
        nodes.append(helper.make_node("Add", [f"d{i}", value], [f"e{i}"]))
        value = f"e{i}"
    return nodes, [value]


KINDS: dict[str, Callable[[int], Nodes]] = {f.__name__: f for f in (chain, branches, equal_branches, outputs, residual)}


def model(kind: str, count: int) -> bytes:
    """An ONNX file of the kind with about `count` nodes."""
    nodes, ends = KINDS[kind](count)
    info = functools.partial(helper.make_tensor_value_info, elem_type=TensorProto.FLOAT, shape=DIMS)
    weights = np.random.default_rng(0).standard_normal((8, 8, 3, 3)).astype(np.float32) / 10
    constants = [numpy_helper.from_array(weights, "w")] if kind == "residual" else []
    graph = helper.make_graph(nodes, kind, [info("x")], [info(n) for n in ends], constants)
    return bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString())


def cpu_seconds(work: Callable[[], object]) -> float:
    def used() -> float:
        now = resource.getrusage(resource.RUSAGE_SELF)
        return now.ru_utime + now.ru_stime

    start = used()
    work()
    return used() - start


def session(content: bytes) -> Any:
    options = ort.SessionOptions()
    options.intra_op_num_threads = THREADS
    return ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def large(core: dovetail.Core, devices: list[str], kind: str, count: int) -> Iterator[Row]:
    content, small = model(kind, count), model(kind, 8)
    loads: dict[str, Callable[[bytes], Any]] = {
        **{d: lambda data, d=d: core.compile_model(core.read_model(data, "onnx"), d).create_infer_request() for d in devices},
        "onnxruntime": session,
    }
    for runtime, load in loads.items():
        load(small)
        seconds = cpu_seconds(functools.partial(load, content))
        yield {"graph": kind, "nodes": count, "runtime": runtime, "CPU s": seconds, "us a node": 1e6 * seconds / count}


def new_shape(core: dovetail.Core, device: str) -> Row:
    compiled = core.compile_model(core.read_model(MODELS["minilm"].path), device)
    found = [cpu_seconds(lambda n=n: compiled.report(dict.fromkeys(compiled.inputs, (1, n)))) for n in LENGTHS]
    return {"graph": "minilm, new length", "nodes": None, "runtime": device, "CPU s": median(found[1:]), "us a node": None}


def main() -> int:
    options = parser(__doc__)
    options.add_argument("-d", "--device", action="append", help="repeatable; NUMPY by default")
    options.add_argument("--nodes", type=int, action="append", help="repeatable; 1250 and 5000 by default")
    arguments = options.parse_args()
    limit_threads(THREADS)
    core, devices = dovetail.Core(), arguments.device or ["NUMPY"]
    rows = [r for kind in KINDS for n in arguments.nodes or (1250, 5000) for r in large(core, devices, kind, n)]
    rows += [new_shape(core, device) for device in devices]
    emit(arguments.json, rows, {"values": "x".join(map(str, DIMS))})
    return 0


if __name__ == "__main__":
    sys.exit(main())
