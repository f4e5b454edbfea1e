"""A decoder in ONNX, as exporters write it: com.microsoft's operators, lengths from the mask, caches as inputs and outputs."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, load, numpy_helper, save

from dovetail.errors import UsageError
from dovetail_generate import TextGenerator

WORDS, HIDDEN, HEADS, KV, SIZE = 263, 64, 4, 2, 16


def _decoder(path: Path, with_positions: bool) -> None:
    """One layer; with `with_positions` keys and queries are turned by nodes of their own, at `position_ids`."""
    rng = np.random.default_rng(8)
    weights: dict[str, Any] = {
        "embedding": rng.standard_normal((WORDS, HIDDEN)).astype(np.float32),
        "gamma": np.ones(HIDDEN, np.float32),
    }
    angles = np.arange(512)[:, None] * 100.0 ** (-np.arange(SIZE // 2) / (SIZE // 2))
    weights |= {"cos": np.cos(angles).astype(np.float32), "sin": np.sin(angles).astype(np.float32)}
    weights |= {"one": np.array(1), "axis": np.array([1])}
    nodes = [
        helper.make_node("ReduceSum", ["attention_mask", "axis"], ["counts"], keepdims=0),
        helper.make_node("Sub", ["counts", "one"], ["ends"]),
        helper.make_node("Cast", ["ends"], ["seqlens_k"], to=TensorProto.INT32),
        helper.make_node("Shape", ["attention_mask"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["total64"], axis=0),
        helper.make_node("Cast", ["total64"], ["total"], to=TensorProto.INT32),
        helper.make_node("Gather", ["embedding", "input_ids"], ["x"]),
        helper.make_node("SimplifiedLayerNormalization", ["x", "gamma"], ["h"], epsilon=1e-5, axis=-1),
    ]
    for side, rows in (("q", HEADS * SIZE), ("k", KV * SIZE), ("v", KV * SIZE), ("o", HIDDEN), ("logits", WORDS)):
        weights[f"{side}_packed"] = rng.integers(0, 256, (rows, HIDDEN // 32, 16)).astype(np.uint8)
        weights[f"{side}_scales"] = rng.uniform(0.01, 0.06, (rows, HIDDEN // 32)).astype(np.float32)
    product = {"K": HIDDEN, "bits": 4, "block_size": 32, "domain": "com.microsoft"}

    def times(source: str, side: str, rows: int, result: str) -> Any:
        return helper.make_node("MatMulNBits", [source, f"{side}_packed", f"{side}_scales"], [result], N=rows, **product)

    nodes += [times("h", side, rows, side) for side, rows in (("q", HEADS * SIZE), ("k", KV * SIZE), ("v", KV * SIZE))]
    sides, rotation = ["q", "k"], ["cos", "sin"]
    if with_positions:
        turned = {"domain": "com.microsoft", "num_heads": 0}
        nodes += [
            helper.make_node("RotaryEmbedding", [s, "position_ids", "cos", "sin"], [f"{s}_turned"], **turned) for s in sides
        ]
        sides, rotation = ["q_turned", "k_turned"], []
    caches = [f"past_key_values.0.{name}" for name in ("key", "value")]
    presents = [f"present.0.{name}" for name in ("key", "value")]
    attributes = {"num_heads": HEADS, "kv_num_heads": KV, "do_rotary": int(not with_positions), "domain": "com.microsoft"}
    inputs = [*sides, "v", *caches, "seqlens_k", "total", *rotation]
    nodes += [
        helper.make_node("GroupQueryAttention", inputs, ["attended", *presents], **attributes),
        times("attended", "o", HIDDEN, "projected"),
        helper.make_node(
            "SkipSimplifiedLayerNormalization", ["x", "projected", "gamma"], ["last"], epsilon=1e-5, domain="com.microsoft"
        ),
        times("last", "logits", WORDS, "logits"),
    ]
    cache = ["batch", KV, "past", SIZE]
    values = [helper.make_tensor_value_info(n, TensorProto.INT64, ["batch", "sequence"]) for n in ("input_ids", "position_ids")]
    values = values if with_positions else values[:1]
    values.append(helper.make_tensor_value_info("attention_mask", TensorProto.INT64, ["batch", "total"]))
    values += [helper.make_tensor_value_info(name, TensorProto.FLOAT, cache) for name in caches]
    results = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "sequence", WORDS])]
    results += [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", KV, "total", SIZE]) for name in presents]
    constants = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "decoder", values, results, constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)


def _plain_decoder(path: Path, *, positions: bool = True) -> None:
    """One layer of the standard's operators alone, whose caches grow by Concat, with masks as exporters compute them."""
    rng = np.random.default_rng(9)
    weights: dict[str, Any] = {name: np.array(value) for name, value in {"zero": 0, "one": 1, "two": 2, "three": 3}.items()}
    weights |= {f"[{n}]": np.array([n]) for n in (0, 1, 2, 3)} | {"[1,2]": np.array([1, 2])}
    shapes = {"embedding": (WORDS, HIDDEN), "wq": (HIDDEN, HEADS * SIZE), "wo": (HEADS * SIZE, HIDDEN), "head": (HIDDEN, WORDS)}
    shapes |= {"wk": (HIDDEN, KV * SIZE), "wv": (HIDDEN, KV * SIZE)}
    weights |= {name: (rng.standard_normal(shape) / 4).astype(np.float32) for name, shape in shapes.items()}
    weights |= {"rate": (2.0 ** -np.arange(SIZE)).astype(np.float32), "scale": np.float32(SIZE**-0.5)}
    weights |= {"visible": np.float32(0), "hidden": np.float32(np.finfo(np.float32).min)}
    weights |= {f"{n} heads": np.array([0, 0, n, SIZE]) for n in (HEADS, KV)} | {"joined": np.array([0, 0, HEADS * SIZE])}
    weights |= {
        "[KV]": np.array([KV]),
        "[HEADS]": np.array([HEADS]),
        "[group]": np.array([HEADS // KV]),
        "[SIZE]": np.array([SIZE]),
    }
    nodes: list[Any] = []

    def node(op_type: str, inputs: list[str], result: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(op_type, inputs, [result], **attributes))
        return result

    caches = [f"past_key_values.0.{name}" for name in ("key", "value")]
    node("Shape", [caches[0]], "cache shape")
    node("Gather", ["cache shape", "two"], "past")
    node("Shape", ["input_ids"], "ids shape")
    node("Gather", ["ids shape", "one"], "count")
    node("Gather", ["ids shape", "[0]"], "[batch]")
    node("Add", ["past", "count"], "total")
    node("Unsqueeze", ["total", "[0]"], "[total]")
    node("Range", ["past", "total", "one"], "places")
    node("Range", ["zero", "total", "one"], "keys")
    node("LessOrEqual", ["keys", node("Unsqueeze", ["places", "[1]"], "column")], "causal")
    node("Cast", [node("Unsqueeze", ["attention_mask", "[1,2]"], "wide mask")], "given", to=TensorProto.BOOL)
    node("Where", [node("And", ["given", "causal"], "seen"), "visible", "hidden"], "mask")
    turned = "position_ids" if positions else node("Unsqueeze", ["places", "[0]"], "counted")
    node("Cast", [node("Unsqueeze", [turned, "[1,3]"], "positions")], "floats", to=TensorProto.FLOAT)
    weights["[1,3]"] = np.array([1, 3])
    node("Cos", [node("Mul", ["floats", "rate"], "angles")], "turn")
    node("Gather", ["embedding", "input_ids"], "x")
    for side, count in (("q", HEADS), ("k", KV), ("v", KV)):
        node("Reshape", [node("MatMul", ["x", f"w{side}"], f"{side} flat"), f"{count} heads"], f"{side} split")
        node("Transpose", [f"{side} split"], side, perm=[0, 2, 1, 3])
    new = [node("Mul", ["k", "turn"], "k turned"), "v"]
    for past, rows, name in zip(caches, new, ("key", "value"), strict=True):
        node("Concat", [past, rows], f"present.0.{name}", axis=-2)
        node("Concat", ["[batch]", "[KV]", "[group]", "[total]", "[SIZE]"], f"{name} wide", axis=0)
        node("Concat", ["[batch]", "[HEADS]", "[total]", "[SIZE]"], f"{name} flat", axis=0)
        node("Expand", [node("Unsqueeze", [f"present.0.{name}", "[2]"], f"{name} apart"), f"{name} wide"], f"{name} each")
        node("Reshape", [f"{name} each", f"{name} flat"], name)
    node("MatMul", [node("Mul", ["q", "turn"], "q turned"), node("Transpose", ["key"], "kt", perm=[0, 1, 3, 2])], "products")
    node("Add", [node("Mul", ["products", "scale"], "scores"), "mask"], "masked")
    node("MatMul", [node("Softmax", ["masked"], "weights", axis=-1), "value"], "y")
    node("Reshape", [node("Transpose", ["y"], "turned y", perm=[0, 2, 1, 3]), "joined"], "y flat")
    node("MatMul", [node("Add", ["x", node("MatMul", ["y flat", "wo"], "o")], "last"), "head"], "logits")
    names = ("input_ids", "attention_mask", *(("position_ids",) if positions else ()))
    values = [
        helper.make_tensor_value_info(n, TensorProto.INT64, ["batch", "total" if "mask" in n else "sequence"]) for n in names
    ]
    values += [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", KV, "past", SIZE]) for name in caches]
    results = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "sequence", WORDS])]
    results += [
        helper.make_tensor_value_info(f"present.0.{n}", TensorProto.FLOAT, ["batch", KV, "total", SIZE]) for n in ("key", "value")
    ]
    constants = [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "decoder", values, results, constants)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def _by_onnxruntime(path: Path, prompt: list[int], count: int) -> list[int]:
    """The most likely tokens, with caches that grow."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    pasts = [np.zeros((1, KV, 0, SIZE), np.float32)] * 2
    tokens, text, found = list(prompt), 0, []
    for _ in range(count):
        text += len(tokens)
        inputs = {"input_ids": np.array([tokens]), "attention_mask": np.ones((1, text), np.int64)}
        inputs |= {"position_ids": np.arange(text - len(tokens), text)[None]} if "position_ids" in names else {}
        inputs |= dict(zip([name for name in names if name.startswith("past")], pasts, strict=True))
        logits, *pasts = session.run(None, inputs)
        tokens = [int(logits[0, -1].argmax())]
        found += tokens
    return found


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN", "OPENCL"])
@pytest.mark.parametrize("with_positions", [False, True], ids=["rotary_inside", "rotary_outside"])
def test_tokens_are_those_of_onnxruntime(generator: Any, tmp_path: Path, with_positions: bool, device: str) -> None:
    path = tmp_path / "decoder.onnx"
    _decoder(path, with_positions)
    generator.tokens.tokenizer.save(str(tmp_path / "tokenizer.json"))
    other = TextGenerator(path, device, room=160)
    prompts = [[int(t) for t in np.random.default_rng(i).integers(3, WORDS, size)] for i, size in enumerate((3, 70))]
    pieces = list(other.generate(prompts, limit=12, ends=False))
    for index, prompt in enumerate(prompts):
        assert [piece.token for piece in pieces if piece.index == index] == _by_onnxruntime(path, prompt, 12)
    assert other.plans == 2


@pytest.mark.parametrize("packed", [False, True])
def test_caches_with_a_name_as_the_size_of_a_head(generator: Any, tmp_path: Path, packed: bool) -> None:
    """As onnxruntime-genai's builder writes them; queries, keys and values may be one input."""
    path = tmp_path / "decoder.onnx"
    _decoder(path, with_positions=False)
    model = load(path)
    if packed:
        place, node = next((i, node) for i, node in enumerate(model.graph.node) if node.op_type == "GroupQueryAttention")
        model.graph.node.insert(place, helper.make_node("Concat", ["q", "k", "v"], ["qkv"], axis=-1))
        node.input[:3] = ["qkv", "", ""]
    for value in (*model.graph.input, *model.graph.output):
        if len(value.type.tensor_type.shape.dim) == 4:
            value.type.tensor_type.shape.dim[3].dim_param = "kv_cache_dim"
    save(model, path)
    generator.tokens.tokenizer.save(str(tmp_path / "tokenizer.json"))
    pieces = TextGenerator(path, "NUMPY", room=64).generate([[5, 9, 4]], limit=6, ends=False)
    assert [piece.token for piece in pieces] == _by_onnxruntime(path, [5, 9, 4], 6)


def test_states_that_are_not_caches(generator: Any, tmp_path: Path) -> None:
    path = tmp_path / "decoder.onnx"
    _decoder(path, with_positions=False)
    model = load(path)
    model.graph.input.append(helper.make_tensor_value_info("past.0.conv", TensorProto.FLOAT, ["batch", HIDDEN, 2]))
    save(model, path)
    generator.tokens.tokenizer.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(UsageError, match=r"inputs past\.0\.conv besides"):
        list(TextGenerator(path, "NUMPY", room=64).generate([[5, 9, 4]], limit=6))


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
def test_caches_that_grow_by_concat(generator: Any, tmp_path: Path, device: str) -> None:
    path = tmp_path / "decoder.onnx"
    _plain_decoder(path)
    generator.tokens.tokenizer.save(str(tmp_path / "tokenizer.json"))
    other = TextGenerator(path, device, room=160)
    prompts = [[int(t) for t in np.random.default_rng(i).integers(3, WORDS, size)] for i, size in enumerate((3, 70, 33))]
    pieces = list(other.generate(prompts, limit=12, ends=False))
    for index, prompt in enumerate(prompts):
        assert [piece.token for piece in pieces if piece.index == index] == _by_onnxruntime(path, prompt, 12)
    assert other.plans == 2


@pytest.mark.parametrize("lookup", [0, 2])
def test_positions_from_the_length_of_caches(generator: Any, tmp_path: Path, lookup: int) -> None:
    """They are right for one text, whose prompts are filled up; the model has one length for all texts of a batch, so each runs
    by a request of its own."""
    path = tmp_path / "decoder.onnx"
    _plain_decoder(path, positions=False)
    generator.tokens.tokenizer.save(str(tmp_path / "tokenizer.json"))
    prompts = [[int(t) for t in np.random.default_rng(i).integers(3, WORDS, size)] for i, size in enumerate((3, 70))]
    wanted = [_by_onnxruntime(path, prompt, 12) for prompt in prompts]
    other, options = TextGenerator(path, "NUMPY", room=160), {"limit": 12, "ends": False, "lookup": lookup}
    assert [[piece.token for piece in other.generate([prompt], **options)] for prompt in prompts] == wanted
    pieces = list(other.generate(prompts, **options))
    assert [[piece.token for piece in pieces if piece.index == index] for index in range(2)] == wanted
