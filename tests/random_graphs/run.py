"""Compares random graphs on dovetail with onnxruntime, onnx.reference and float64.

    python tests/random_graphs/run.py --graphs 10000 --seed 3 --device ONEDNN

A graph that differs is minimised and written to the folder of --out: FAILURE.onnx, FAILURE.npz with its inputs, and a line
with its seed.
"""

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import onnx

sys.path.insert(0, str(Path(__file__).parent))

from random_graphs.comparison import Difference, compare
from random_graphs.generator import generate
from random_graphs.graph import RandomGraph

import dovetail


def minimised(core: dovetail.Core, graph: RandomGraph, difference: Difference, device: str) -> RandomGraph:
    """The graph without the nodes that the difference does not need; values that these gave become inputs."""
    node = difference.node
    for other in reversed(graph.nodes):
        smaller = graph.without(other) if node is None or other.name != node.name else graph
        if smaller is not graph and any(_same(d, difference) for d in compare(core, smaller, device).differences):
            graph = smaller
    return graph


def _same(a: Difference, b: Difference) -> bool:
    return (None if a.node is None else a.node.name) == (None if b.node is None else b.node.name) and a.text[:5] == b.text[:5]


def write(graph: RandomGraph, folder: Path, name: str) -> Path:
    """Write the model and its inputs; returns the path of the model."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.onnx"
    onnx.save(graph.model(), path)
    np.savez(
        path.with_suffix(".npz"), **{k: a.view(np.uint16) if a.dtype.name == "bfloat16" else a for k, a in graph.inputs.items()}
    )
    return path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0, help="the seed of the first graph; the next ones count on")
    parser.add_argument("--device", default="NUMPY")
    parser.add_argument("--out", type=Path, default=Path("random_graphs_failures"))
    options = parser.parse_args()
    core, started = dovetail.Core(), time.perf_counter()
    compared: Counter[str] = Counter()
    unchecked: Counter[str] = Counter()
    failures: Counter[str] = Counter()
    for seed in range(options.seed, options.seed + options.graphs):
        graph = generate(seed)
        outcome = compare(core, graph, options.device)
        compared.update(outcome.compared)
        unchecked.update(outcome.unchecked)
        for difference in outcome.differences:
            op = "model" if difference.node is None else difference.node.op_type
            failures[op] += 1
            path = write(minimised(core, graph, difference, options.device), options.out, f"{op}_{seed}")
            print(f"seed {seed} opset {graph.opset} {op}: {difference.text}\n  {path}", flush=True)
    seconds = time.perf_counter() - started
    print(
        f"{options.graphs} graphs on {options.device} in {seconds:.1f} s: {compared.total()} nodes of {len(compared)} operators"
    )
    print(f"no peer decides: {dict(unchecked.most_common())}")
    print(f"differences: {dict(failures.most_common())}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
