"""A decoder whose caches grow by each token, as exporters write it and with ONNX Runtime's attention; a program that runs it."""

from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

HEADS, SIZE, WORDS, LAYERS = 2, 8, 13, 2
WIDTH = HEADS * SIZE


def decoder_model(seed: int = 0, positions: bool = True, table: int = 0, copied_by: str = "") -> bytes:
    """A decoder as exporters write it: embeddings, attention over caches with a mask, logits.

    Without `positions` the graph counts them itself, from the size of a cache. It has a causal mask for `table` tokens, of which
    it takes the last rows, and copies its caches by Cast or Identity (`copied_by`): GPT-J, GPT-Neo and CodeGen do. "half" joins
    them in float16, as models do that were converted to half precision with inputs and outputs in float32.
    """
    rng = np.random.default_rng(seed)
    nodes, constants = [], {}

    def constant(value: Any, name: str = "") -> str:
        name = name or f"c{len(constants)}"
        constants[name] = np.asarray(value)
        return name

    def weight(*dims: int) -> str:
        return constant((rng.standard_normal(dims) / np.sqrt(dims[0])).astype(np.float32))

    def node(op: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        output = output or f"v{len(nodes)}"
        nodes.append(helper.make_node(op, list(inputs), [output], **attributes))
        return output

    places = "position_ids"
    if not positions:
        rows = node("Shape", "past_key_values.0.key", start=2, end=3)
        new = node("Shape", "input_ids", start=1, end=2)
        scalars = [node("Squeeze", one, constant([0])) for one in (rows, node("Add", rows, new))]
        places = node("Unsqueeze", node("Range", *scalars, constant(np.int64(1))), constant([0]))
    x = node("Add", node("Gather", weight(WORDS, WIDTH), "input_ids"), node("Gather", weight(64, WIDTH), places))
    mask = node("Unsqueeze", node("Cast", "attention_mask", to=TensorProto.FLOAT), constant([1, 2]))
    bias = node("Mul", node("Sub", constant(np.float32(1)), mask), constant(np.float32(-1e9)))
    if table:
        causal = constant(np.triu(np.full((table, table), -1e9, np.float32), 1))
        total, added = node("Shape", "attention_mask", start=1, end=2), node("Shape", "input_ids", start=1, end=2)
        rows = node("Slice", causal, node("Sub", total, added), total, constant([0]))
        seen = node("Slice", rows, constant([0]), total, constant([1]))
    split, join = constant([0, 0, HEADS, SIZE]), constant([0, 0, WIDTH])
    for layer in range(LAYERS):
        heads = [
            node("Transpose", node("Reshape", node("MatMul", x, weight(WIDTH, WIDTH)), split), perm=[0, 2, 1, 3]) for _ in "qkv"
        ]
        names = [f".{layer}.{kind}" for kind in ("key", "value")]
        pasts, news, half = [f"past_key_values{name}" for name in names], heads[1:], {"to": TensorProto.FLOAT16}
        if copied_by == "half":
            pasts, news = ([node("Cast", one, **half) for one in each] for each in (pasts, news))
        keys, values = (
            node("Concat", past, new, output=f"{'joined' if copied_by else 'present'}{name}", axis=2)
            for name, past, new in zip(names, pasts, news, strict=True)
        )
        if copied_by:
            attributes = {} if copied_by == "Identity" else {"to": TensorProto.FLOAT}
            op = "Identity" if copied_by == "Identity" else "Cast"
            keys, values = (node(op, f"joined{name}", output=f"present{name}", **attributes) for name in names)
        scores = node("MatMul", heads[0], node("Transpose", keys, perm=[0, 1, 3, 2]))
        scores = node("Mul", scores, constant(np.float32(SIZE**-0.5)))
        scores = node("Add", node("Add", scores, seen) if table else scores, bias)
        read = node("MatMul", node("Softmax", scores, axis=-1), values)
        read = node("Reshape", node("Transpose", read, perm=[0, 2, 1, 3]), join)
        x = node("Add", x, node("MatMul", read, weight(WIDTH, WIDTH)))
    node("MatMul", x, weight(WIDTH, WORDS), output="logits")
    inputs = {"input_ids": ["batch", "new"], "attention_mask": ["batch", "total"], "position_ids": ["batch", "new"]}
    infos = [
        helper.make_tensor_value_info(n, TensorProto.INT64, d) for n, d in inputs.items() if positions or n != "position_ids"
    ]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "new", WORDS])]
    for layer in range(LAYERS):
        for kind in ("key", "value"):
            for start, infos_of, size in (("past_key_values", infos, "past"), ("present", outputs, "total")):
                dims = ["batch", HEADS, size, SIZE]
                infos_of.append(helper.make_tensor_value_info(f"{start}.{layer}.{kind}", TensorProto.FLOAT, dims))
    tensors = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "g", infos, outputs, tensors)
    return bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString())


class Program:
    """Generates text as programs do: gives each run the caches that the one before returned."""

    def __init__(self, session: Any, batch: int = 1) -> None:
        self.session, self.batch = session, batch
        self.inputs = [arg.name for arg in session.get_inputs()]
        self.outputs = [arg.name for arg in session.get_outputs()]
        self.caches = self.empty()

    def empty(self) -> dict[str, Any]:
        return {name: np.zeros((self.batch, HEADS, 0, SIZE), np.float32) for name in self.inputs if name.startswith("past")}

    @property
    def length(self) -> int:
        return int(next(iter(self.caches.values())).shape[2])

    def step(self, words: Any, mask: Any = None, caches: dict[str, Any] | None = None) -> Any:
        """The logits of one run, which goes on from the last one, or from these caches."""
        self.caches = self.caches if caches is None else caches
        words = np.broadcast_to(np.asarray(words, np.int64), (self.batch, len(words)))
        total = self.length + words.shape[1]
        feed = {
            "input_ids": np.ascontiguousarray(words),
            "attention_mask": np.ones((self.batch, total), np.int64) if mask is None else mask,
            "position_ids": np.tile(np.arange(self.length, total), (self.batch, 1)),
            **self.caches,
        }
        results = dict(zip(self.outputs, self.session.run(None, {name: feed[name] for name in self.inputs}), strict=True))
        self.caches = {name: results[name.replace("past_key_values", "present")] for name in self.caches}
        return results["logits"]


def same(one: Any, other: Any) -> None:
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def same_caches(one: Program, other: Program) -> None:
    assert one.caches.keys() == other.caches.keys()
    for name, cache in one.caches.items():
        same(cache, other.caches[name])


def grouped_model(size: int | str = SIZE, **attributes: Any) -> bytes:
    """The decoder with ONNX Runtime's own attention, which takes the number of tokens from the mask.

    `size` is the declared size of a head; generators of models write a name.
    """
    import onnx

    model = onnx.load_from_string(decoder_model())
    graph, rng = model.graph, np.random.default_rng(4)
    del graph.node[:], graph.initializer[:]
    constants = {"one": np.array([1]), "1": np.int64(1), "zero": np.array([0])}
    constants |= {"words": rng.standard_normal((WORDS, WIDTH)).astype(np.float32)}

    def node(op: str, *inputs: str, outputs: Any = ("",), **attributes: Any) -> str:
        names = [name or f"v{len(graph.node)}" for name in outputs]
        graph.node.append(helper.make_node(op, list(inputs), names, **attributes))
        return names[0]

    def product(x: str, width: int, output: str = "") -> str:
        name = f"w{len(constants)}"
        constants[name] = (rng.standard_normal((WIDTH, width)) / 4).astype(np.float32)
        return node("MatMul", x, name, outputs=[output])

    count = node("Sub", node("ReduceSum", "attention_mask", "one", keepdims=0), "1")
    total = node("Squeeze", node("Shape", "attention_mask", start=1), "zero")
    lengths = [node("Cast", one, to=TensorProto.INT32) for one in (count, total)]
    x = node("Gather", "words", "input_ids")
    for layer in range(LAYERS):
        names = [f".{layer}.{kind}" for kind in ("key", "value")]
        inputs = [*(product(x, WIDTH) for _ in "qkv"), *(f"past_key_values{name}" for name in names), *lengths]
        outputs = ["", *(f"present{name}" for name in names)]
        heads = {"num_heads": HEADS, "kv_num_heads": HEADS, **attributes}
        y = node("GroupQueryAttention", *inputs, outputs=outputs, domain="com.microsoft", **heads)
        x = node("Add", x, product(y, WIDTH))
    product(x, WORDS, "logits")
    graph.initializer.extend(numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items())
    del graph.input[2]  # positions
    for info in [*graph.input, *graph.output]:
        if isinstance(size, str) and len(info.type.tensor_type.shape.dim) == 4:
            info.type.tensor_type.shape.dim[3].dim_param = size
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return bytes(model.SerializeToString())
