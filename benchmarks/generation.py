"""Text, token by token, by a decoder that takes and gives its caches, as programs of onnxruntime run them.

    python benchmarks/generation.py
    python benchmarks/generation.py --layers 4 --width 256 --heads 8 --prompt 8

The model has seeded random weights, by default GPT-2's sizes, and is written as exporters write it: inputs `input_ids`,
`attention_mask`, `position_ids` and `past_key_values.*`, outputs `logits` and `present.*`. Each run gets the caches that the one
before returned, so that each has new shapes. Each runtime has a process of its own, in turn: onnxruntime; `session`, dovetail
through dovetail-onnxruntime-api, which keeps the caches as states; `calls` of a compiled model, with a plan for each length.
Milliseconds: `first` from the file to the result of the prompt, then the second and third run, then the median of the others.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from _common import Arrays, Row, emit, limit_threads, median, parser
from onnx import TensorProto, helper, numpy_helper

WORDS = 8000
PEER, SESSION, CALLS = "onnxruntime", "session", "calls"


class Decoder:
    """A decoder under construction."""

    def __init__(self, layers: int, width: int, heads: int, length: int) -> None:
        self.rng, self.nodes, self.constants = np.random.default_rng(0), [], dict[str, Any]()
        self.width, self.heads, self.caches = width, heads, list[str]()
        words, places = self.weight(WORDS, width), self.weight(length, width)
        x = self.node("Add", self.node("Gather", words, "input_ids"), self.node("Gather", places, "position_ids"))
        mask = self.node("Unsqueeze", self.node("Cast", "attention_mask", to=TensorProto.FLOAT), self.constant([1, 2]))
        self.bias = self.node("Mul", self.node("Sub", self.number(1.0), mask), self.number(-1e9))
        for layer in range(layers):
            x = self.node("Add", x, self.attention(layer, self.normalized(x)))
            hidden = self.node("Gelu", self.node("MatMul", self.normalized(x), self.weight(width, 4 * width)))
            x = self.node("Add", x, self.node("MatMul", hidden, self.weight(4 * width, width)))
        self.nodes.append(helper.make_node("MatMul", [self.normalized(x), self.weight(width, WORDS)], ["logits"]))

    def node(self, op: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        output = output or f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [output], **attributes))
        return output

    def constant(self, value: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value)
        return name

    def number(self, value: float) -> str:
        return self.constant(np.float32(value))

    def weight(self, *dims: int) -> str:
        return self.constant((self.rng.standard_normal(dims, np.float32) / np.float32(np.sqrt(dims[0]))).astype(np.float32))

    def normalized(self, x: str) -> str:
        ones, zeros = (self.constant(np.full(self.width, value, np.float32)) for value in (1, 0))
        return self.node("LayerNormalization", x, ones, zeros)

    def attention(self, layer: int, x: str) -> str:
        size = self.width // self.heads
        split, join = self.constant([0, 0, self.heads, size]), self.constant([0, 0, self.width])
        products = [self.node("MatMul", x, self.weight(self.width, self.width)) for _ in range(3)]
        query, *new = (self.node("Transpose", self.node("Reshape", p, split), perm=[0, 2, 1, 3]) for p in products)
        names = [f"{layer}.key", f"{layer}.value"]
        self.caches += names
        keys, values = (
            self.node("Concat", f"past_key_values.{name}", rows, output=f"present.{name}", axis=2)
            for name, rows in zip(names, new, strict=True)
        )
        scores = self.node("MatMul", query, self.node("Transpose", keys, perm=[0, 1, 3, 2]))
        scores = self.node("Add", self.node("Mul", scores, self.number(size**-0.5)), self.bias)
        read = self.node("MatMul", self.node("Softmax", scores, axis=-1), values)
        read = self.node("Reshape", self.node("Transpose", read, perm=[0, 2, 1, 3]), join)
        return self.node("MatMul", read, self.weight(self.width, self.width))

    def write(self, path: Path) -> None:
        """The ONNX file."""
        sizes = {"input_ids": ["batch", "new"], "attention_mask": ["batch", "total"], "position_ids": ["batch", "new"]}
        inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, dims) for name, dims in sizes.items()]
        outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "new", WORDS])]
        for ends, start, rows in ((inputs, "past_key_values", "past"), (outputs, "present", "total")):
            dims = ["batch", self.heads, rows, self.width // self.heads]
            ends += [helper.make_tensor_value_info(f"{start}.{name}", TensorProto.FLOAT, dims) for name in self.caches]
        tensors = [numpy_helper.from_array(value, name) for name, value in self.constants.items()]
        graph = helper.make_graph(self.nodes, "decoder", inputs, outputs, tensors)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)


def runner(runtime: str, path: Path, device: str, threads: int) -> Callable[[Arrays], Arrays]:
    """Runs the model, by name."""
    if runtime == CALLS:
        import dovetail

        compiled = dovetail.Core().compile_model(path, device)
        return lambda feed: dict(compiled(feed))
    if runtime == SESSION:
        import dovetail_onnxruntime as module

        providers: Any = [("DovetailExecutionProvider", {"device": device})]
    else:
        import onnxruntime as module

        providers = ["CPUExecutionProvider"]
    options: Any = module.SessionOptions()
    options.intra_op_num_threads = threads
    session: Any = module.InferenceSession(str(path), options, providers=providers)
    names = [output.name for output in session.get_outputs()]
    return lambda feed: dict(zip(names, session.run(None, feed), strict=True))


def generate(run: Callable[[Arrays], Arrays], caches: Arrays, prompt: int, tokens: int) -> tuple[list[float], list[int]]:
    """Milliseconds of each run, and the tokens, of which each is the likeliest."""
    words, length, spent, found = np.random.default_rng(1).integers(0, WORDS, (1, prompt)), 0, [], []
    for _ in range(tokens):
        total = length + words.shape[1]
        feed = {
            "input_ids": words,
            "attention_mask": np.ones((1, total), np.int64),
            "position_ids": np.arange(length, total)[None],
        }
        start = time.perf_counter()
        results = run({**feed, **caches})
        spent.append((time.perf_counter() - start) * 1e3)
        caches = {name: results[name.replace("past_key_values", "present")] for name in caches}
        length, words = total, results["logits"][:, -1].argmax(1)[:, None]
        found.append(int(words[0, 0]))
    return spent, found


def work(runtime: str, arguments: Any, path: Path) -> Row:
    """The figures of a runtime, in this process."""
    start = time.perf_counter()
    run = runner(runtime, path, arguments.device, arguments.threads)
    ready = (time.perf_counter() - start) * 1e3
    size = arguments.width // arguments.heads
    names = [f"past_key_values.{layer}.{kind}" for layer in range(arguments.layers) for kind in ("key", "value")]
    empty = {name: np.zeros((1, arguments.heads, 0, size), np.float32) for name in names}
    spent, found = generate(run, empty, arguments.prompt, arguments.tokens)
    return {
        "runtime": runtime,
        "first": ready + spent[0],
        "second": spent[1],
        "third": spent[2],
        "token": median(spent[3:]),
        "tokens/s": 1e3 * len(spent[1:]) / sum(spent[1:]),
        "text": hash(tuple(found)),
    }


def main() -> int:
    options = parser(__doc__)
    options.add_argument("-d", "--device", default="ONEDNN", help="of dovetail")
    for name, value in (
        ("layers", 12),
        ("width", 768),
        ("heads", 12),
        ("prompt", 32),
        ("tokens", 64),
        ("rounds", 3),
        ("threads", 2),
    ):
        options.add_argument(f"--{name}", type=int, default=value)
    options.add_argument("--worker", nargs=2, metavar=("RUNTIME", "FILE"), help="for the program itself")
    arguments = options.parse_args()
    limit_threads(arguments.threads)
    if arguments.worker:
        print(json.dumps(work(arguments.worker[0], arguments, Path(arguments.worker[1]))))
        return 0
    found: dict[str, list[Row]] = {name: [] for name in (PEER, SESSION, CALLS)}
    with TemporaryDirectory() as folder:
        path = Path(folder) / "decoder.onnx"
        Decoder(arguments.layers, arguments.width, arguments.heads, arguments.prompt + arguments.tokens).write(path)
        for _ in range(arguments.rounds):
            for runtime, rows in found.items():
                command = [sys.executable, __file__, "--worker", runtime, str(path), *sys.argv[1:]]
                rows.append(json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout))
    table = [
        {k: v if k == "runtime" else median([row[k] for row in rows]) for k, v in rows[0].items()} for rows in found.values()
    ]
    same = len({row["text"] for rows in found.values() for row in rows}) == 1
    for row in table:
        row["ratio"] = row["token"] / table[0]["token"]
        del row["text"]
    emit(arguments.json, table, {"all give the same text": "yes" if same else "no"})
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
