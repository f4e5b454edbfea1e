"""Decoders beside encoders, as optimum exports them: they count positions by their caches and have a branch for the first run."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import GraphProto, TensorProto, helper, numpy_helper

import dovetail_onnxruntime

HEADS, SIZE, WORDS, LAYERS, PLACES = 2, 8, 13, 2, 40
WIDTH = HEADS * SIZE
CACHES = [f"{layer}.{part}.{kind}" for layer in range(LAYERS) for part in ("decoder", "encoder") for kind in ("key", "value")]


class Branch:
    """The nodes of a decoder with caches, or of one for the first tokens, over the constants of both."""

    def __init__(self, constants: dict[str, Any], with_past: bool) -> None:
        self.rng, self.nodes, self.constants = np.random.default_rng(0), [], constants
        self.prefix = "then" if with_past else "else"
        new = self.scalar(self.node("Shape", "input_ids", start=1, end=2))
        first = self.scalar(self.node("Shape", "past.0.decoder.key", start=2, end=3)) if with_past else self.constant(np.int64(0))
        total = self.node("Add", first, new)
        one, zero = self.constant(np.int64(1)), self.constant(np.int64(0))
        places = self.node("Range", first, total, one)
        hidden = self.node("Greater", self.node("Range", zero, total, one), self.node("Unsqueeze", places, self.constant([1])))
        self.bias = self.node("Mul", self.node("Cast", hidden, to=TensorProto.FLOAT), self.constant(np.float32(-1e9)))
        mask = self.node("Unsqueeze", self.node("Cast", "attention_mask", to=TensorProto.FLOAT), self.constant([1, 2]))
        self.source_bias = self.node("Mul", mask, self.constant(np.float32(3)))
        # As learned for each key: not the same at each distance.
        by_key = self.node("Slice", self.weight(HEADS, 1, PLACES), self.constant([0]), self.vector(total), self.constant([2]))
        self.bias = self.node("Add", self.bias, by_key)
        x = self.node(
            "Add",
            self.node("Gather", self.weight(WORDS, WIDTH), "input_ids"),
            self.node("Gather", self.weight(PLACES, WIDTH), places),
        )
        for layer in range(LAYERS):
            x = self.attention(x, f"{layer}.decoder", x, with_past, grows=True)
            x = self.attention(x, f"{layer}.encoder", "encoder_hidden_states", with_past, grows=False)
        self.node("MatMul", x, self.weight(WIDTH, WORDS), output="logits")

    def node(self, op: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        output = output or f"{self.prefix}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [output], **attributes))
        return output

    def constant(self, value: Any) -> str:
        name = f"{self.prefix}.c{len(self.constants)}"
        self.constants[name] = np.asarray(value)
        return name

    def weight(self, *dims: int) -> str:
        return self.constant((self.rng.standard_normal(dims) / 4).astype(np.float32))

    def scalar(self, x: str) -> str:
        return self.node("Squeeze", x, self.constant([0]))

    def vector(self, x: str) -> str:
        return self.node("Unsqueeze", x, self.constant([0]))

    def heads(self, x: str, output: str = "") -> str:
        split = self.node("Reshape", self.node("MatMul", x, self.weight(WIDTH, WIDTH)), self.constant([0, 0, HEADS, SIZE]))
        return self.node("Transpose", split, perm=[0, 2, 1, 3], output=output)

    def attention(self, x: str, name: str, source: str, with_past: bool, grows: bool) -> str:
        query, both = self.heads(x), []
        for kind in ("key", "value"):
            if with_past and not grows:
                self.weight(WIDTH, WIDTH)  # the other branch has it
                self.nodes.append(
                    helper.make_node(
                        "Constant", [], [f"present.{name}.{kind}"], value=numpy_helper.from_array(np.zeros(0, np.float32))
                    )
                )
                both.append(f"past.{name}.{kind}")
            elif with_past:
                both.append(
                    self.node("Concat", f"past.{name}.{kind}", self.heads(source), output=f"present.{name}.{kind}", axis=-2)
                )
            else:
                both.append(self.heads(source, output=f"present.{name}.{kind}"))
        scores = self.node("MatMul", query, self.node("Transpose", both[0], perm=[0, 1, 3, 2]))
        scores = self.node("Add", scores, self.bias if grows else self.source_bias)
        read = self.node("Transpose", self.node("MatMul", self.node("Softmax", scores, axis=-1), both[1]), perm=[0, 2, 1, 3])
        joined = self.node("Reshape", read, self.constant([0, 0, WIDTH]))
        return self.node("Add", x, self.node("MatMul", joined, self.weight(WIDTH, WIDTH)))


def decoder_model(new: str | int = "new") -> bytes:
    """A decoder of any number of tokens in each run, or of so many."""
    constants: dict[str, Any] = {}
    branches = [Branch(constants, with_past) for with_past in (True, False)]
    outputs = ["logits", *(f"present.{name}" for name in CACHES)]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    then, other = (helper.make_graph(branch.nodes, branch.prefix, [], infos) for branch in branches)
    node = helper.make_node("If", ["use_cache_branch"], outputs, then_branch=then, else_branch=other)
    inputs = [
        helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", new]),
        helper.make_tensor_value_info("encoder_hidden_states", TensorProto.FLOAT, ["batch", "source", WIDTH]),
        helper.make_tensor_value_info("attention_mask", TensorProto.INT64, ["batch", "source"]),  # the encoder's
        helper.make_tensor_value_info("use_cache_branch", TensorProto.BOOL, [1]),
    ]
    for name in CACHES:
        dims = ["batch", HEADS, "source" if "encoder" in name else "past", SIZE]
        inputs.append(helper.make_tensor_value_info(f"past.{name}", TensorProto.FLOAT, dims))
    tensors = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph: GraphProto = helper.make_graph([node], "g", inputs, infos, tensors)
    return bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString())


MODEL = decoder_model()


class Program:
    """Generates text as optimum does: the first run has caches of one row that nobody reads, others those of the run before."""

    def __init__(self, session: Any, source: Any) -> None:
        self.session, self.source, self.is_first = session, source, True
        self.caches = {name: np.zeros((len(source), HEADS, 1, SIZE), np.float32) for name in CACHES}
        self.outputs = [arg.name for arg in session.get_outputs()]

    def step(self, words: Any) -> Any:
        feed = {
            "input_ids": np.broadcast_to(np.asarray(words, np.int64), (len(self.source), np.shape(words)[-1])),
            "encoder_hidden_states": self.source,
            "attention_mask": np.arange(len(self.source) * self.source.shape[1]).reshape(self.source.shape[:2]) % 3,
            "use_cache_branch": np.array([not self.is_first]),
            **{f"past.{name}": cache for name, cache in self.caches.items()},
        }
        results = dict(zip(self.outputs, self.session.run(None, feed), strict=True))
        found = {name: results[f"present.{name}"] for name in CACHES if self.is_first or "decoder" in name}
        self.caches, self.is_first = {**self.caches, **found}, False
        return results["logits"]

    def reorder(self, beams: Sequence[int]) -> None:
        self.caches = {name: cache[list(beams)] for name, cache in self.caches.items()}


def source(seed: int, batch: int, length: int) -> Any:
    return np.random.default_rng(seed).standard_normal((batch, length, WIDTH)).astype(np.float32)


def same(ours: Program, theirs: Program, words: Any) -> None:
    np.testing.assert_allclose(ours.step(words), theirs.step(words), rtol=1e-4, atol=1e-5)
    for name, cache in theirs.caches.items():
        np.testing.assert_allclose(ours.caches[name], cache, rtol=1e-4, atol=1e-5)


def sessions(device: str = "NUMPY", model: bytes = MODEL) -> tuple[Any, Any]:
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    ours = dovetail_onnxruntime.InferenceSession(model, providers=[("DovetailExecutionProvider", {"device": device})])
    return ours, onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN", "OPENCL.0"])
def test_a_text_is_generated_without_new_plans(device: str) -> None:
    ours, theirs = sessions(device)
    mine, other = (Program(one, source(1, 1, 7)) for one in (ours, theirs))
    for words in ([3], [5], [1], [12], [2, 4, 4], [7], [9]):
        same(mine, other, words)
    assert len(ours._compiled.plans) == 1  # of the first run
    assert len(ours._decoder._texts[-1].held.compiled.plans) == 2  # of one token, and of three


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("new", [1, 3, 9])
def test_a_decoder_whose_number_of_new_tokens_is_fixed(new: int, batch: int) -> None:
    """As optimum exports `decoder_with_past_model`, whose tokens are [batch, 1]."""
    ours, theirs = sessions("ONEDNN", decoder_model(new))
    mine, other = (Program(one, source(1, batch, 7)) for one in (ours, theirs))
    for turn in range(PLACES // new):
        same(mine, other, [(turn + word) % WORDS for word in range(new)])
    assert len(ours._compiled.plans) == 1  # of the first run
    assert len(ours._decoder._texts[-1].held.compiled.plans) == 1


def test_texts_from_sources_of_several_lengths() -> None:
    ours, theirs = sessions()
    pairs = [[Program(one, source(seed, 2, length)) for one in (ours, theirs)] for seed, length in enumerate((7, 3, 11, 7))]
    for turn in range(4):
        for index, (mine, other) in enumerate(pairs):
            same(mine, other, [(index + 3 * turn) % WORDS])
    assert len(ours._decoder._texts) == 4


def test_beams_that_change_places() -> None:
    """The program gives other arrays than it got; their memory in the session is used again."""
    ours, theirs = sessions()
    mine, other = (Program(one, np.repeat(source(1, 1, 5), 3, 0)) for one in (ours, theirs))
    rng, requests = np.random.default_rng(2), set()
    for _ in range(8):
        same(mine, other, rng.integers(0, WORDS, (3, 1)))
        beams = rng.integers(0, 3, 3).tolist()
        for program in (mine, other):
            program.reorder(beams)
        requests.update(id(text._request) for text in ours._decoder._texts)
    assert len(requests) == 1


def test_a_text_longer_than_the_model_has_positions() -> None:
    """The error is that of the plain model, and the next text runs as those before."""
    ours, _ = sessions()
    program = Program(ours, source(1, 1, 4))
    for _ in range(PLACES):
        program.step([2])
    with pytest.raises(Exception, match="do not broadcast"):
        program.step([2])
    assert next(iter(program.caches.values())).shape[2] == PLACES
    again, plans = Program(ours, source(1, 1, 4)), len(ours._compiled.plans)
    for word in range(5):
        again.step([word])
    assert len(ours._compiled.plans) == plans
