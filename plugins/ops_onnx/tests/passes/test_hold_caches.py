"""Decoders with caches that grow by Concat: as states they give what the unchanged graph gives, or are refused with a reason."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from dovetail.errors import InferError, UsageError
from dovetail.graph import DType, GraphBuilder, Model
from dovetail.op import Operator
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.attention import Attention_23
from dovetail_ops_onnx.cast import Cast
from dovetail_ops_onnx.concat import Concat
from dovetail_ops_onnx.cos import Cos
from dovetail_ops_onnx.div import Div
from dovetail_ops_onnx.equal import Equal
from dovetail_ops_onnx.expand import Expand
from dovetail_ops_onnx.gather import Gather
from dovetail_ops_onnx.identity import Identity
from dovetail_ops_onnx.is_nan import IsNaN
from dovetail_ops_onnx.less_or_equal import LessOrEqual
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.range import Range
from dovetail_ops_onnx.reduce_sum import ReduceSum
from dovetail_ops_onnx.reshape import Reshape
from dovetail_ops_onnx.shape import Shape
from dovetail_ops_onnx.slice import Slice
from dovetail_ops_onnx.softmax import Softmax
from dovetail_ops_onnx.squeeze import Squeeze
from dovetail_ops_onnx.transpose import Transpose
from dovetail_ops_onnx.unsqueeze import Unsqueeze
from dovetail_ops_onnx.where import Where

WORDS, HEADS, KV, SIZE, ROOM, LAYERS = 19, 4, 2, 6, 23, 2
WIDE = HEADS * SIZE
STATES = "past_key_values.*:present.*"


class Decoder:
    """A decoder of two layers, as exporters write it: shapes and masks are computed from the shapes of inputs and caches."""

    def __init__(
        self,
        *,
        attention: str = "eager",
        positions: str = "given",
        keep: Callable[..., str] | None = None,
        masked: bool = True,
        counted: bool = False,
        copy: Operator | None = None,
        half: bool = False,
    ) -> None:
        self.g, self.rng, self.attention, self.keep = GraphBuilder(), np.random.default_rng(5), attention, keep
        self.copy, self.half = copy, half
        g = self.g
        self.ids = g.input("input_ids", "int64", ("batch", "sequence"))
        self.mask = g.input("attention_mask", "int64", ("batch", "total")) if masked else ""
        if counted:
            g.input("cache_length", "int64", (1,))
        given = g.input("position_ids", "int64", ("batch", "sequence")) if positions == "given" else ""
        cache = ("batch", KV, "past", SIZE)
        self.pasts = [[g.input(f"past_key_values.{i}.{n}", "float32", cache) for n in ("key", "value")] for i in range(LAYERS)]
        self.before = g.node(Shape(start=2, end=3), self.pasts[0][0])
        self.count = g.node(Shape(start=1, end=2), self.ids)
        self.total = g.node(Add(), self.before, self.count)
        self.places = g.node(Range(), self.scalar(self.before), self.scalar(self.total), g.constant(1, "int64"))
        self.turn = self.rotation(given or g.node(Unsqueeze(), self.places, self.ints(0)))
        self.seen = self.visible()
        x = g.node(Gather(), self.weight(WORDS, WIDE), self.ids)
        presents = []
        for layer in range(LAYERS):
            x, *caches = self.layer(x, layer)
            presents += caches
        g.node(MatMul(), x, self.weight(WIDE, WORDS), outputs=["logits"])
        self.model = g.model(["logits", *presents])
        if half:  # converters write casts of inputs behind the nodes that read them
            nodes = tuple(reversed(self.model.graph.nodes))
            self.model = dataclasses.replace(self.model, graph=self.model.graph.replace(nodes=nodes))

    def ints(self, *values: int) -> str:
        return self.g.constant(list(values), "int64")

    def scalar(self, x: str) -> str:
        return self.g.node(Squeeze(), x, self.ints(0))

    def weight(self, *shape: int) -> str:
        return self.g.constant(self.rng.standard_normal(shape) / 2, "float32", name="weight")

    def rotation(self, positions: str) -> str:
        """Factors [batch, 1, sequence, size] from positions, in the place of a rotation."""
        g = self.g
        angles = g.node(Mul(), g.node(Cast(to=DType.FLOAT32), positions), g.constant(0.7, "float32"))
        angles = g.node(Mul(), g.node(Unsqueeze(), angles, self.ints(1, 3)), g.constant(1 + np.arange(SIZE), "float32"))
        return g.node(Cos(), angles)

    def visible(self) -> str:
        """Bool [batch, 1, sequence, total]: earlier keys whose `attention_mask` is 1."""
        g = self.g
        keys = g.node(Range(), g.constant(0, "int64"), self.scalar(self.total), g.constant(1, "int64"))
        causal = g.node(LessOrEqual(), keys, g.node(Unsqueeze(), self.places, self.ints(1)))
        if not self.mask:
            return g.node(Unsqueeze(), causal, self.ints(0, 1))
        given = g.node(Equal(), g.node(Unsqueeze(), self.mask, self.ints(1, 2)), g.constant(1, "int64"))
        return g.node(Where(), given, causal, g.constant(False, "bool"))

    def bias(self) -> str:
        zero, hidden = (self.g.constant(x, "float32") for x in (0.0, np.finfo(np.float32).min))
        return self.g.node(Where(), self.seen, zero, hidden)

    def heads(self, x: str, count: int) -> str:
        split = self.g.node(Reshape(), x, self.ints(0, 0, count, SIZE))
        return self.g.node(Transpose(perm=(0, 2, 1, 3)), split)

    def shared(self, x: str) -> str:
        """Each head of keys or values for two heads of queries."""
        g = self.g
        batch, total = (g.node(Shape(start=at, end=at + 1), x) for at in (0, 2))
        shapes: list[tuple[str, ...]] = [(batch, self.ints(KV), self.ints(HEADS // KV), total, self.ints(SIZE))]
        shapes += [(batch, self.ints(HEADS), total, self.ints(SIZE))]
        wide, flat = (g.node(Concat(axis=0), *sizes) for sizes in shapes)
        return g.node(Reshape(), g.node(Expand(), g.node(Unsqueeze(), x, self.ints(2)), wide), flat)

    def layer(self, x: str, index: int) -> tuple[str, str, str]:
        g = self.g
        q, k, v = (self.heads(g.node(MatMul(), x, self.weight(WIDE, n * SIZE)), n) for n in (HEADS, KV, KV))
        q, k = g.node(Mul(), q, self.turn), g.node(Mul(), k, self.turn)
        caches = [
            self.joined(past, new, f"present.{index}.{name}")
            for past, new, name in zip(self.pasts[index], (k, v), ("key", "value"), strict=True)
        ]
        keys, values = map(self.shared, caches)
        y = getattr(self, self.attention)(q, keys, values)
        if self.keep is not None:
            y = self.keep(self, y, caches[0], index)
        joined = g.node(Reshape(), g.node(Transpose(perm=(0, 2, 1, 3)), y), self.ints(0, 0, WIDE))
        y = g.node(Add(), x, g.node(MatMul(), joined, self.weight(WIDE, WIDE)))
        return y, f"present.{index}.key", f"present.{index}.value"

    def joined(self, past: str, new: str, present: str) -> str:
        if self.copy is None:
            return self.g.node(Concat(axis=2), past, new, outputs=[present])
        if not self.half:
            return self.g.node(self.copy, self.g.node(Concat(axis=2), past, new), outputs=[present])
        joined = self.g.node(Concat(axis=2), *(self.g.node(Cast(to=DType.FLOAT16), one) for one in (past, new)))
        self.g.node(self.copy, joined, outputs=[present])
        return self.g.node(Cast(to=DType.FLOAT32), joined)

    # --- attention as different exporters write it ---------------------------------------------------------------------

    def scores(self, q: str, keys: str) -> str:
        g = self.g
        turned = g.node(Transpose(perm=(0, 1, 3, 2)), keys)
        return g.node(Mul(), g.node(MatMul(), q, turned), g.constant(SIZE**-0.5, "float32"))

    def eager(self, q: str, keys: str, values: str) -> str:
        """An added mask, cut to the keys that there are."""
        g = self.g
        bias = g.node(Slice(), self.bias(), self.ints(0), g.node(Shape(start=2, end=3), keys), self.ints(3))
        weights = g.node(Softmax(axis=-1), g.node(Add(), self.scores(q, keys), bias))
        return g.node(MatMul(), weights, values)

    def chosen(self, q: str, keys: str, values: str) -> str:
        """Where in place of a sum, as in GPT-2, and zeros for rows without keys."""
        g = self.g
        scores = g.node(Where(), self.seen, self.scores(q, keys), g.constant(-3e38, "float32"))
        weights = g.node(Softmax(axis=3), scores)
        weights = g.node(Where(), g.node(IsNaN(), weights), g.constant(0, "float32"), weights)
        return g.node(MatMul(), weights, values)

    def by_key(self, q: str, keys: str, values: str) -> str:
        """Biases by the place of a key, not by distance: squares, of which differences are not shifted squares."""
        return self._biased(q, keys, values, self.g.node(Mul(), self.squares, self.g.constant(0.01, "float32")))

    def apart(self, q: str, keys: str, values: str) -> str:
        """Places of keys and of new tokens that meet in a run alone."""
        g, total = self.g, self.scalar(self.total)
        places = g.node(Range(), g.constant(0, "int64"), total, g.constant(1, "int64"))
        if self.mask:
            places = g.node(Unsqueeze(), g.node(Mul(), places, self.mask), self.ints(1, 2))
        seen = g.node(LessOrEqual(), places, g.node(Unsqueeze(), self.places, self.ints(1)))
        bias = g.node(Where(), seen, g.constant(0, "float32"), g.constant(-1e9, "float32"))
        return g.node(MatMul(), g.node(Softmax(axis=-1), g.node(Add(), self.scores(q, keys), bias)), values)

    def by_index(self, q: str, keys: str, values: str) -> str:
        """Biases by places from which rows are taken, and others by places as numbers."""
        g = self.g
        places = g.node(Range(), g.constant(0, "int64"), self.scalar(self.total), g.constant(1, "int64"))
        taken = g.node(Gather(axis=1), g.node(Cast(to=DType.FLOAT32), self.mask), places)
        number = g.node(Mul(), g.node(Cast(to=DType.FLOAT32), self.mask), self.squares)
        bias = g.node(Unsqueeze(), g.node(Add(), taken, number), self.ints(1, 2))
        return self._biased(q, keys, values, bias)

    def by_part(self, q: str, keys: str, values: str) -> str:
        """Keys of the same part of the text: the places of parts show in long caches alone."""
        g, part = self.g, self.g.constant(16, "int64")
        keys_at = g.node(Range(), g.constant(0, "int64"), self.scalar(self.total), g.constant(1, "int64"))
        same = g.node(Equal(), g.node(Div(), keys_at, part), g.node(Unsqueeze(), g.node(Div(), self.places, part), self.ints(1)))
        bias = g.node(Where(), same, g.constant(0, "float32"), g.constant(-1e9, "float32"))
        return self._biased(q, keys, values, bias)

    def _biased(self, q: str, keys: str, values: str, bias: str) -> str:
        g = self.g
        scores = g.node(Add(), g.node(Add(), self.scores(q, keys), self.bias()), bias)
        return g.node(MatMul(), g.node(Softmax(axis=-1), scores), values)

    @property
    def squares(self) -> str:
        """The square of the place of each key: [total]."""
        g = self.g
        keys = g.node(Range(), g.constant(0, "int64"), self.scalar(self.total), g.constant(1, "int64"))
        floats = g.node(Cast(to=DType.FLOAT32), keys)
        return g.node(Mul(), floats, floats)

    def cast(self, q: str, keys: str, values: str) -> str:
        """A Cast before the Softmax, as for models of halves."""
        g = self.g
        scores = g.node(Cast(to=DType.FLOAT32), g.node(Add(), self.scores(q, keys), self.bias()))
        return g.node(MatMul(), g.node(Softmax(axis=-1), scores), values)

    def flat(self, q: str, keys: str, values: str) -> str:
        """Texts and heads as one dimension."""
        g, flat, size = self.g, self.ints(-1), self.ints(SIZE)
        wide = g.node(Concat(axis=0), g.node(Shape(end=1), self.ids), self.ints(HEADS), self.count, self.total)
        q = g.node(Reshape(), q, g.node(Concat(axis=0), flat, self.count, size))
        keys, values = (g.node(Reshape(), x, g.node(Concat(axis=0), flat, self.total, size)) for x in (keys, values))
        scores = g.node(MatMul(), q, g.node(Transpose(perm=(0, 2, 1)), keys))
        bias = g.node(Reshape(), g.node(Expand(), self.bias(), wide), g.node(Concat(axis=0), flat, self.count, self.total))
        read = g.node(MatMul(), g.node(Softmax(axis=-1), g.node(Add(), scores, bias)), values)
        return g.node(Reshape(), read, g.node(Concat(axis=0), flat, self.ints(HEADS), self.count, size))

    def attended(self, q: str, keys: str, values: str) -> str:
        """The standard's operator."""
        return self.g.node(Attention_23(), q, keys, values, self.bias())

    def linear(self, q: str, keys: str, values: str) -> str:
        """No mask at all, as of a model for single tokens."""
        g = self.g
        return g.node(MatMul(), g.node(Softmax(axis=-1), self.scores(q, keys)), values)


def _inputs(model: Model, tokens: Any, lengths: Any, total: int) -> dict[str, Any]:
    mask = np.zeros((len(tokens), total), np.int64)
    for row, length in zip(mask, lengths, strict=True):
        row[:length] = 1
    found = {"input_ids": tokens}
    if "attention_mask" in model.graph.inputs:
        found["attention_mask"] = mask
    if "cache_length" in model.graph.inputs:
        found["cache_length"] = np.array(lengths[:1])
    if "position_ids" in model.graph.inputs:
        first = np.maximum(np.array(lengths) - tokens.shape[1], 0)
        found["position_ids"] = first[:, None] + np.arange(tokens.shape[1])
    return found


def _growing(core: Any, model: Model, tokens: Any, parts: list[int]) -> tuple[list[Any], dict[str, Any]]:
    """Logits after each part by the unchanged graph, with its caches in the last results."""
    compiled = core.compile_model(model, "NUMPY")
    batch, at, logits = len(tokens), 0, []
    pasts = {n: np.zeros((batch, KV, 0, SIZE), np.float32) for n in model.graph.inputs if n.startswith("past")}
    for count in parts:
        rows = tokens[:, at : at + count]
        at += count
        results = compiled({**_inputs(model, rows, [at] * batch, at), **pasts})
        pasts = {name: results[name.replace("past_key_values", "present")] for name in pasts}
        logits.append(results["logits"])
    return logits, pasts


def _held(core: Any, model: Model, batch: int, device: str = "NUMPY", room: int = ROOM) -> Any:
    sizes = {n: (batch, KV, room, SIZE) for n in model.graph.inputs if n.startswith("past")}
    if "attention_mask" in model.graph.inputs:
        sizes["attention_mask"] = (batch, room)
    return core.compile_model(model.reshape(sizes), device, {"STATE": STATES})


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("attention", ["eager", "chosen", "attended"])
def test_results_are_those_of_the_unchanged_graph(core: Any, attention: str, batch: int, device: str) -> None:
    model = Decoder(attention=attention).model
    tokens, parts = np.random.default_rng(1).integers(0, WORDS, (batch, ROOM)), [5, 1, 1, 1, 5, 1, 5, 1, 1, 1, 1]
    want, caches = _growing(core, model, tokens, parts)
    with _held(core, model, batch, device) as compiled:
        assert list(compiled.outputs) == ["logits"]
        request = compiled.create_infer_request()
        for _ in range(2):
            _compare(request, model, tokens, parts, want)
            # Full caches hold what the unchanged graph gives; the second text overwrites that of the first.
            for name, array in request.query_state().items():
                np.testing.assert_allclose(array, caches[name], rtol=1e-4, atol=1e-5)
        assert len(compiled.plans) == 2
        assert [one.changed for one in compiled.report().passes if one.name == "hold_caches"] == [True]
        ops = [node.op for node in compiled.report().nodes]
        assert (ops.count("TensorScatter"), ops.count("Concat")) == (4, 0)


def test_texts_of_several_lengths(core: Any) -> None:
    model = Decoder().model
    tokens, lengths = np.random.default_rng(2).integers(0, WORDS, (3, 12)), [2, 7, 5]
    alone = []
    for row, length in zip(tokens, lengths, strict=True):
        logits, _ = _growing(core, model, row[None], [length, 1, 1])
        alone.append([logits[0][0, -1], logits[1][0, -1], logits[2][0, -1]])
    with _held(core, model, 3) as compiled:
        request = compiled.create_infer_request()
        # Shorter prompts are filled up behind their tokens.
        filled = np.where(np.arange(7) < np.array(lengths)[:, None], tokens[:, :7], 3)
        first = request.infer(_inputs(model, filled, lengths, ROOM))["logits"]
        found = [[first[i, length - 1] for i, length in enumerate(lengths)]]
        for step in range(2):
            rows = np.array([[row[length + step]] for row, length in zip(tokens, lengths, strict=True)])
            found.append(list(request.infer(_inputs(model, rows, [n + step + 1 for n in lengths], ROOM))["logits"][:, 0]))
        np.testing.assert_allclose(np.swapaxes(found, 0, 1), alone, rtol=1e-4, atol=1e-4)


def test_a_model_without_mask_sees_only_what_is_in_use(core: Any) -> None:
    model = Decoder(attention="linear").model
    tokens = np.random.default_rng(3).integers(0, WORDS, (2, 6))
    want, _ = _growing(core, model, tokens, [1] * 6)
    with _held(core, model, 2) as compiled:
        request = compiled.create_infer_request()
        for at in range(6):
            found = request.infer(_inputs(model, tokens[:, at : at + 1], [at + 1] * 2, ROOM))["logits"]
            np.testing.assert_allclose(found, want[at], rtol=1e-4, atol=1e-4)


def _same_as_growing(core: Any, options: Any, batch: int, device: str, parts: list[int]) -> None:
    """Two texts one after the other, by states and by the unchanged graph. Those states are all in use at the end."""
    model = Decoder(**options).model
    tokens = np.random.default_rng(7).integers(0, WORDS, (batch, ROOM))
    want, caches = _growing(core, model, tokens, parts)
    with _held(core, model, batch, device) as compiled:
        request = compiled.create_infer_request()
        for _ in range(2):
            _compare(request, model, tokens, parts, want)
        for name, array in request.query_state().items():
            np.testing.assert_allclose(array[:, :, : sum(parts)], caches[name], rtol=1e-4, atol=1e-5)
        assert len(compiled.plans) == len({*parts})


def _compare(request: Any, model: Model, tokens: Any, parts: list[int], want: Any) -> None:
    """A text for each row of tokens, in parts, from empty caches: its logits are those wanted."""
    at = 0
    for count, logits in zip(parts, want, strict=True):
        rows = tokens[:, at : at + count]
        at += count
        inputs = _inputs(model, rows, [at] * len(tokens), ROOM)
        if "cache_length" in inputs and "attention_mask" in inputs:
            inputs["attention_mask"] = inputs["attention_mask"][:, ::-1]
        np.testing.assert_allclose(request.infer(inputs)["logits"], logits, rtol=1e-4, atol=1e-4)


def test_an_attention_with_a_cast_becomes_one_node(core: Any) -> None:
    model = Decoder(attention="cast").model
    tokens = np.random.default_rng(1).integers(0, WORDS, (1, 4))
    want, _ = _growing(core, model, tokens, [4])
    with _held(core, model, 1, "ONEDNN") as compiled:
        found = compiled.create_infer_request().infer(_inputs(model, tokens, [4], ROOM))["logits"]
        np.testing.assert_allclose(found, want[0], rtol=1e-4, atol=1e-4)
        assert [node.op for node in compiled.report().nodes].count("Attention") == LAYERS


@pytest.mark.parametrize(
    "given", [{}, {"counted": True}, {"counted": True, "masked": False}], ids=["by_mask", "by_lengths", "without_mask"]
)
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("attention", ["eager", "apart", "by_key", "by_part"])
def test_lengths_that_the_graph_takes_from_its_caches(core: Any, attention: str, batch: int, given: Any) -> None:
    options = {"attention": attention, "positions": "from_caches", **given}
    _same_as_growing(core, options, batch, "NUMPY", [3, 1, 1, 5, 1, 1, 1, 1, 1, 3, 1, 1])


@pytest.mark.parametrize("masked", [True, False])
def test_texts_and_heads_in_one_dimension(core: Any, masked: bool) -> None:
    """That takes one order of keys for all texts."""
    options = {"attention": "flat", "positions": "from_caches", "masked": masked, "counted": True}
    _same_as_growing(core, options, 3, "NUMPY", [3, 1, 1, 5, 1])


@pytest.mark.parametrize("device", ["ONEDNN", "OPENCL.0"])
def test_lengths_on_other_devices(core: Any, device: str) -> None:
    _same_as_growing(core, {"attention": "by_key", "positions": "from_caches"}, 1, device, [3, 1, 1, 5, 1])


@pytest.mark.parametrize(("batch", "operators"), [(1, []), (3, ["dovetail::ByLength"])])
def test_positions_of_one_text_are_computed_by_the_nodes_of_the_graph(core: Any, batch: int, operators: list[str]) -> None:
    """So the device computes them, and states never leave it. Several texts might have different lengths, which is an error."""
    model = Decoder(positions="from_caches").model
    with _held(core, model, batch, "OPENCL.0") as compiled:
        compiled.create_infer_request().infer(_inputs(model, np.ones((batch, 1), np.int64), [4] * batch, ROOM))
        nodes = compiled.report().nodes
    assert [node.op for node in nodes if "ByLength" in node.op] == operators
    assert ({node.device for node in nodes} == {"OPENCL.0"}) is (batch == 1)


def _scaled(steps: Sequence[int], self: Decoder, y: str, keys: str, layer: int) -> str:
    """By the tokens times these numbers in one layer, by their square in the other, which increases unevenly."""
    numbers = self.g.node(Mul(), self.total, self.total if layer else self.ints(*steps))
    parts = self.g.node(Mul(), self.g.node(Cast(to=DType.FLOAT32), numbers), self.g.constant(1 / 64, "float32"))
    return self.g.node(Mul(), y, self.g.node(ReduceSum(keepdims=False), parts))


@pytest.mark.parametrize(
    "options",
    [{"copy": Identity()}, {"copy": Cast(to=DType.FLOAT32)}, {"copy": Cast(to=DType.FLOAT32), "half": True}],
    ids=["Identity", "Cast", "half"],
)
def test_caches_that_are_copied_to_outputs(core: Any, options: Any) -> None:
    _same_as_growing(core, options, 2, "NUMPY", [3, 1, 1, 5, 1])


def _counted(self: Decoder, y: str, keys: str, layer: int) -> str:
    return self.g.node(Mul(), y, self.g.node(Cast(to=DType.FLOAT32), self.total))


@pytest.mark.parametrize("steps", [[3], [-2], [1, 2], None], ids=["evenly", "down", "unevenly", "tokens"])
def test_numbers_that_change_with_the_length(core: Any, steps: Sequence[int] | None) -> None:
    keep, batch = (functools.partial(_scaled, steps), 1) if steps else (_counted, 2)
    _same_as_growing(core, {"keep": keep}, batch, "NUMPY", [3, 1, 1, 5, 1])


def test_positions_of_texts_of_several_lengths_are_refused(core: Any) -> None:
    """The unchanged graph has one length for all texts."""
    model = Decoder(positions="from_caches").model
    request = _held(core, model, 2).create_infer_request()
    with pytest.raises(InferError, match=r"the texts have \[4, 3\] tokens; accepted: equal numbers"):
        request.infer(_inputs(model, np.ones((2, 1), np.int64), [4, 3], ROOM))


def test_a_mask_with_zeros_at_its_start_and_in_it(core: Any) -> None:
    model, rng = Decoder(counted=True).model, np.random.default_rng(8)
    mask, tokens = np.ones((2, 9), np.int64), rng.integers(0, WORDS, (2, 9))
    mask[0, :3], mask[1, 5] = 0, 0
    alone = core.compile_model(model, "NUMPY")
    pasts = {n: np.zeros((2, KV, 0, SIZE), np.float32) for n in model.graph.inputs if n.startswith("past")}
    with _held(core, model, 2) as compiled:
        request = compiled.create_infer_request()
        for start, end in ((0, 6), (6, 7), (7, 9)):
            inputs = {**_inputs(model, tokens[:, start:end], [end] * 2, end), "attention_mask": mask[:, :end]}
            results = alone({**inputs, **pasts})
            pasts = {name: results[name.replace("past_key_values", "present")] for name in pasts}
            padded = np.concatenate([np.zeros((2, ROOM - end), np.int64), mask[:, :end]], axis=1)
            found = request.infer({**inputs, "attention_mask": padded})["logits"]
            seen = mask[:, start:end] == 1  # rows of hidden tokens of texts see no key at all
            np.testing.assert_allclose(found[seen], results["logits"][seen], rtol=1e-4, atol=1e-4)


def _summed(self: Decoder, y: str, keys: str, layer: int) -> str:
    rows = self.g.node(ReduceSum(), keys, self.ints(2))
    return self.g.node(Add(), y, self.g.node(ReduceSum(), rows, self.ints(1)))


def _past_alone(self: Decoder, y: str, keys: str, layer: int) -> str:
    return self.g.node(Add(), y, self.g.node(ReduceSum(), self.pasts[layer][0], self.ints(1, 2)))


def _by_other_weights(self: Decoder, y: str, keys: str, layer: int) -> str:
    q = self.g.node(Identity(), y)
    shared = self.shared(keys)
    return self.g.node(MatMul(), self.scores(q, shared), shared)


def _by_place(self: Decoder, y: str, keys: str, layer: int) -> str:
    places = self.g.node(Mul(), self.squares, self.g.node(Cast(to=DType.FLOAT32), self.mask))
    return self.g.node(Mul(), y, self.g.node(Unsqueeze(), self.g.node(ReduceSum(), places, self.ints(1)), self.ints(1, 2)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep": _summed}, r"node '\w+' \(ReduceSum\) reads cached keys or values"),
        ({"keep": _past_alone}, r"reads a cache without its new rows"),
        ({"keep": _by_other_weights}, "sums cached values by other weights than those of a Softmax"),
        ({"keep": _by_place}, "takes a number for each cached key, computed from the length of the caches"),
        ({"masked": False}, r"the input 'attention_mask' \[batch, length\] is missing"),
        ({"attention": "by_index"}, "counts cached keys from the first one, 'range_2:0' from where there is room"),
        ({"attention": "flat"}, "has the batch in the dimension of the heads; accepted: one text at once"),
    ],
    ids=["summed", "past_alone", "other_weights", "by_place", "without_mask", "by_index", "flat"],
)
def test_other_graphs_are_refused_with_the_reason(core: Any, options: Any, message: str) -> None:
    model = Decoder(**options).model
    request = _held(core, model, 2).create_infer_request()
    with pytest.raises(UsageError, match=f"'past_key_values.0.key' cannot be a state: .*{message}") as caught:
        request.infer(_inputs(model, np.ones((2, 2), np.int64), [2, 2], ROOM))
    assert "leave the property STATE out" in caught.value.hint
    logits, _ = _growing(core, model, np.ones((2, 3), np.int64), [2, 1])
    assert np.isfinite(logits[1]).all()
