"""Decoders of two layers, as exporters write them: shapes and masks are computed from the shapes of inputs and caches."""

import dataclasses
from collections.abc import Callable

import numpy as np

from dovetail.graph import DType, GraphBuilder
from dovetail.op import Operator
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.attention import Attention_23
from dovetail_ops_onnx.cast import Cast
from dovetail_ops_onnx.concat import Concat
from dovetail_ops_onnx.cos import Cos
from dovetail_ops_onnx.cum_sum import CumSum
from dovetail_ops_onnx.div import Div
from dovetail_ops_onnx.equal import Equal
from dovetail_ops_onnx.expand import Expand
from dovetail_ops_onnx.gather import Gather
from dovetail_ops_onnx.is_nan import IsNaN
from dovetail_ops_onnx.less_or_equal import LessOrEqual
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.range import Range
from dovetail_ops_onnx.reshape import Reshape
from dovetail_ops_onnx.shape import Shape
from dovetail_ops_onnx.slice import Slice
from dovetail_ops_onnx.softmax import Softmax
from dovetail_ops_onnx.squeeze import Squeeze
from dovetail_ops_onnx.sub import Sub
from dovetail_ops_onnx.transpose import Transpose
from dovetail_ops_onnx.unsqueeze import Unsqueeze
from dovetail_ops_onnx.where import Where

__all__ = ["HEADS", "KV", "LAYERS", "ROOM", "SIZE", "WORDS", "Decoder"]

WORDS, HEADS, KV, SIZE, ROOM, LAYERS = 19, 4, 2, 6, 23, 2
WIDE = HEADS * SIZE


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
        given = self.from_mask() if positions == "from_mask" else given
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

    def from_mask(self) -> str:
        """The positions [batch, sequence] of new tokens: how many tokens of the text are before each of them."""
        g = self.g
        sums = g.node(Mul(), g.node(CumSum(), self.mask, self.ints(1)), self.mask)
        places = g.node(Sub(), sums, self.ints(1))
        return g.node(Slice(), places, self.before, self.ints(np.iinfo(np.int64).max), self.ints(1))

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
