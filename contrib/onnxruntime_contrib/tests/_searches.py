"""Models with a search: small language models with random weights, as onnxruntime's converters lay them out."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import GraphProto, TensorProto, helper, numpy_helper

VOCABULARY = 23
HEADS, SIZE = 2, 4
HIDDEN = HEADS * SIZE
LAYERS = 2

FLOAT, INT32 = TensorProto.FLOAT, TensorProto.INT32


def _info(name: str, dtype: int, *shape: Any) -> Any:
    return helper.make_tensor_value_info(name, dtype, shape)


def _weights(rng: np.random.Generator, shapes: Mapping[str, Sequence[int]]) -> list[Any]:
    return [numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32) * 0.7, name) for name, shape in shapes.items()]


def language_model(rng: np.random.Generator, name: str = "decoder") -> GraphProto:
    """A decoder as of GPT-2, of Attention with a past and a mask."""
    nodes = [
        helper.make_node("Gather", ["words", "input_ids"], ["w"]),
        helper.make_node("Gather", ["places", "position_ids"], ["p"]),
        helper.make_node("Add", ["w", "p"], ["x0"]),
    ]
    shapes: dict[str, Sequence[int]] = {"words": (VOCABULARY, HIDDEN), "places": (64, HIDDEN), "head": (HIDDEN, VOCABULARY)}
    for i in range(LAYERS):
        shapes |= {f"qkv{i}": (HIDDEN, 3 * HIDDEN), f"bias{i}": (3 * HIDDEN,)}
        given = [f"x{i}", f"qkv{i}", f"bias{i}", "attention_mask", f"past_{i}"]
        op: dict[str, Any] = {"domain": "com.microsoft", "num_heads": HEADS, "unidirectional": 1}
        nodes += [
            helper.make_node("Attention", given, [f"a{i}", f"present_{i}"], **op),
            helper.make_node("Add", [f"x{i}", f"a{i}"], [f"x{i + 1}"]),
        ]
    nodes.append(helper.make_node("MatMul", [f"x{LAYERS}", "head"], ["logits"]))
    cache = (2, "rows", HEADS, "length", SIZE)
    inputs = [_info(n, INT32, "rows", "tokens") for n in ("input_ids", "position_ids")]
    inputs += [_info("attention_mask", INT32, "rows", "total"), *(_info(f"past_{i}", FLOAT, *cache) for i in range(LAYERS))]
    outputs = [_info("logits", FLOAT, "rows", "tokens", VOCABULARY)]
    outputs += [_info(f"present_{i}", FLOAT, 2, "rows", HEADS, "total", SIZE) for i in range(LAYERS)]
    return helper.make_graph(nodes, name, inputs, outputs, _weights(rng, shapes))


def search(
    op_type: str, graphs: Mapping[str, GraphProto], inputs: Sequence[str], outputs: Sequence[str], **attributes: Any
) -> bytes:
    """The file of a model that is one search. `inputs` "" are left out."""
    node = helper.make_node(op_type, inputs, outputs, "search", domain="com.microsoft", **graphs, **attributes)
    floats = {"length_penalty", "repetition_penalty", "temperature"}
    ranks = {
        "input_ids": 2,
        "attention_mask": 2,
        "vocab_mask": 1,
        "prefix_vocab_mask": 2,
        "presence_mask": 2,
        "decoder_input_ids": 2,
    }
    given = []
    for name in filter(None, inputs):
        if name == "input_features":
            given.append(_info(name, FLOAT, "batch", "features", "frames"))
            continue
        shape = [f"{name}_{i}" for i in range(ranks[name])] if name in ranks else [1]
        given.append(_info(name, FLOAT if name in floats else INT32, *shape))
    found = [_info(name, INT32 if name == "sequences" else FLOAT) for name in filter(None, outputs)]
    for one in found:
        one.type.tensor_type.ClearField("shape")
    graph = helper.make_graph([node], "graph", given, found)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    content: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    return content


def encoder_decoder(
    rng: np.random.Generator, starts: bool = True, speech: bool = False, hidden: bool = False
) -> Mapping[str, Any]:
    """An encoder and a decoder: as of T5, or of Whisper for `speech`.

    `starts`: the encoder gives the first logits, too. `hidden`: the decoder takes the results of the encoder, unused.
    """
    shapes = {"words": (VOCABULARY, HIDDEN), "sounds": (5, HIDDEN), "head": (HIDDEN, VOCABULARY)}
    shapes |= dict.fromkeys(("q", "k", "v", "cross_q", "cross_k", "cross_v"), (HIDDEN, HIDDEN))
    weights = _weights(rng, shapes)
    mask = () if speech else ("encoder_attention_mask",)
    cache = ("rows", HEADS, "length", SIZE)

    def decode(ids: str, past: Sequence[str], cross: Sequence[str]) -> list[Any]:
        nodes = [helper.make_node("Gather", ["words", ids], ["x"])]
        nodes += [helper.make_node("MatMul", ["x", w], [f"x_{w}"]) for w in ("q", "k", "v")]
        op: dict[str, Any] = {"domain": "com.microsoft", "num_heads": HEADS}
        own = [f"x_{w}" for w in ("q", "k", "v")] + ["", "", "", *past]
        nodes += [
            helper.make_node(
                "MultiHeadAttention", own, ["a", "present_key_self_0", "present_value_self_0"], unidirectional=1, **op
            ),
            helper.make_node("Add", ["x", "a"], ["y"]),
            helper.make_node("MatMul", ["y", "cross_q"], ["y_q"]),
            helper.make_node("MultiHeadAttention", ["y_q", *cross, "", *mask], ["b"], **op),
            helper.make_node("Add", ["y", "b"], ["z"]),
            helper.make_node("MatMul", ["z", "head"], ["logits"]),
        ]
        return nodes

    source = helper.make_node("Gather", ["words", "encoder_input_ids"], ["encoder_hidden_states"])
    if speech:
        source = helper.make_node("Einsum", ["encoder_input_ids", "sounds"], ["encoder_hidden_states"], equation="bft,fh->bth")
    heads = numpy_helper.from_array(np.array([0, 0, HEADS, SIZE]), "heads")
    encoder = [source]
    for w, name in (("cross_k", "present_key_cross_0"), ("cross_v", "present_value_cross_0")):
        encoder += [
            helper.make_node("MatMul", ["encoder_hidden_states", w], [f"h_{w}"]),
            helper.make_node("Reshape", [f"h_{w}", "heads"], [f"r_{w}"]),
            helper.make_node("Transpose", [f"r_{w}"], [name], perm=[0, 2, 1, 3]),
        ]
    crossed = [_info(f"present_{n}_cross_0", FLOAT, *cache) for n in ("key", "value")]
    owned = [_info(f"present_{n}_self_0", FLOAT, *cache) for n in ("key", "value")]
    logits = _info("logits", FLOAT, "rows", "tokens", VOCABULARY)
    inputs = [
        _info("encoder_input_ids", FLOAT, "rows", 5, "frames") if speech else _info("encoder_input_ids", INT32, "rows", "tokens")
    ]
    inputs += [_info(name, INT32, "rows", "tokens") for name in mask]
    outputs = crossed
    if starts:
        empty = [helper.make_node("Shape", ["encoder_input_ids"], ["rows"], start=0, end=1)]
        empty += [
            helper.make_node("Concat", ["rows", "sizes"], ["empty_shape"], axis=0),
            helper.make_node("ConstantOfShape", ["empty_shape"], ["nothing"]),
        ]
        weights.append(numpy_helper.from_array(np.array([HEADS, 0, SIZE]), "sizes"))
        encoder += empty + decode("decoder_input_ids", ["nothing", "nothing"], [one.name for one in crossed])
        inputs.append(_info("decoder_input_ids", INT32, "rows", "starts"))
        outputs = [logits, _info("encoder_hidden_states", FLOAT, "rows", "frames", HIDDEN), *owned, *crossed]
    pasts = [f"past_{n}_{kind}_0" for kind in ("self", "cross") for n in ("key", "value")]
    given = [_info("input_ids", INT32, "rows", 1), *(_info(name, INT32, "rows", "frames") for name in mask)]
    given += [_info("encoder_hidden_states", FLOAT, "rows", "frames", HIDDEN)] if hidden else []
    given += [_info(name, FLOAT, *cache) for name in pasts]
    decoder = helper.make_graph(decode("input_ids", pasts[:2], pasts[2:]), "decoder", given, [logits, *owned], weights)
    return {"encoder": helper.make_graph(encoder, "encoder", inputs, outputs, [*weights, heads]), "decoder": decoder}
