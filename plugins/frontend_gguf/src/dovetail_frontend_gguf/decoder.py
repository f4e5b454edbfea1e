"""The graph of a decoder: embedding, layers of attention and feed-forward networks, and the logits of the last token."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dovetail.frontend import DType, FormatError, GraphBuilder, Model, ModelSource, TensorType, UnboundOperator, printable
from dovetail_frontend_gguf.container import Container, Tensor, open_container, release

__all__ = ["ARCHITECTURES", "Architecture", "read"]

_OPSETS = {"ai.onnx": 23, "com.microsoft": 1, "ggml": 1}


@dataclass(frozen=True)
class Architecture:
    """How the layers of an architecture differ from others.

    `interleaved`: rotation turns neighbours, not the two halves of a head. `gelu`: the gate is a GELU and not a SiLU.
    `scaled`: the embedding is multiplied by the root of its size.
    """

    interleaved: bool = False
    gelu: bool = False
    scaled: bool = False


ARCHITECTURES: Mapping[str, Architecture] = {
    "llama": Architecture(interleaved=True),
    "qwen2": Architecture(),
    "qwen3": Architecture(),
    "gemma": Architecture(gelu=True, scaled=True),
}


@dataclass(frozen=True)
class Sizes:
    """The sizes from the metadata."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head: int
    rotated: int
    epsilon: float
    base: float
    factor: float


def read(source: ModelSource) -> Model:
    """The model. Raises `FormatError` naming the file and what in it is missing, malformed or not supported."""
    container = open_container(source)
    try:
        model = _Decoder(container).model()
        for tensor in container.tensors.values():
            release(tensor.data)
        return model
    except FormatError as error:
        error.message = f"{container.source}: {error.message}"
        raise


class _Decoder:
    """Builds the graph of one file."""

    def __init__(self, container: Container) -> None:
        self._file = container
        name = str(container.metadata.get("general.architecture"))
        if name not in ARCHITECTURES:
            raise FormatError(
                f"the architecture is {printable(name)!r}; accepted: {', '.join(ARCHITECTURES)}",
                hint="convert a model of another architecture to ONNX",
            )
        self._name, self._kind = name, ARCHITECTURES[name]
        self._sizes = self._read_sizes()
        self._g = GraphBuilder()
        self._asked = self._g.constant([0], DType.INT64, name="tokens_back")

    def model(self) -> Model:
        """The whole model, its caches declared as states."""
        g, s = self._g, self._sizes
        ids = g.input("input_ids", DType.INT64, ("batch", "sequence"))
        mask = g.input("attention_mask", DType.INT64, ("batch", "room"))
        cache = ("batch", s.kv_heads, "room", s.head)
        pasts = [
            (
                g.input(f"past_key_values.{i}.key", DType.FLOAT32, cache),
                g.input(f"past_key_values.{i}.value", DType.FLOAT32, cache),
            )
            for i in range(s.layers)
        ]
        counts = self._node("ReduceSum", mask, self._ints(1), keepdims=0)
        ends = (
            self._node("Cast", self._node("Sub", counts, self._ints(1)), to=6),
            self._node("Cast", self._size(mask, 1), to=6),
        )
        rotation = self._rotation(mask)
        x = self._embedded(ids)
        presents = []
        for i, past in enumerate(pasts):
            x, *present = self._layer(x, i, past, ends, rotation)
            presents += present
        last = self._last(x, ids, counts)
        output = "output.weight" if "output.weight" in self._file.tensors else "token_embd.weight"
        self._linear(last, output, s.hidden, None, result="logits")
        model = g.model(["logits", *presents], name=self._name)
        asked = {self._asked: TensorType(DType.INT64, ("asked",))}
        opened = Model(model.graph, _OPSETS, self._file.source, "gguf", _texts(self._file.metadata), asked)
        return opened.with_states("past_key_values.*:present.*")

    # --- parts ---------------------------------------------------------------------------------------------------------

    def _embedded(self, ids: str) -> str:
        table = self._tensor("token_embd.weight", self._sizes.hidden, None)
        x = self._node("GetRows", self._raw(table), ids, domain="ggml", type=table.format.name)
        return self._node("Mul", x, self._floats(self._sizes.hidden**0.5)) if self._kind.scaled else x

    def _layer(
        self, x: str, index: int, past: tuple[str, str], ends: tuple[str, str], rotation: tuple[str, str]
    ) -> tuple[str, str, str]:
        s, at = self._sizes, f"blk.{index}."
        h = self._normalized(x, f"{at}attn_norm.weight", s.hidden)
        sides = [
            self._head_normalized(self._linear(h, f"{at}attn_{side}.weight", s.hidden, heads * s.head), f"{at}attn_{side}", heads)
            for side, heads in (("q", s.heads), ("k", s.kv_heads))
        ]
        v = self._linear(h, f"{at}attn_v.weight", s.hidden, s.kv_heads * s.head)
        attributes = {"num_heads": s.heads, "kv_num_heads": s.kv_heads, "do_rotary": 1}
        op = UnboundOperator(
            "com.microsoft", "GroupQueryAttention", 1, {**attributes, "rotary_interleaved": int(self._kind.interleaved)}
        )
        names = [f"{at}attention", f"present.{index}.key", f"present.{index}.value"]
        self._g.node(op, *sides, v, *past, *ends, *rotation, name=f"{at}attn", outputs=names)
        x = self._node("Add", x, self._linear(names[0], f"{at}attn_output.weight", s.heads * s.head, s.hidden))
        h = self._normalized(x, f"{at}ffn_norm.weight", s.hidden)
        return self._node("Add", x, self._feed_forward(h, at)), names[1], names[2]

    def _feed_forward(self, h: str, at: str) -> str:
        hidden = self._sizes.hidden
        wide = self._number("feed_forward_length")
        gate, up = (self._linear(h, f"{at}ffn_{side}.weight", hidden, wide) for side in ("gate", "up"))
        if self._kind.gelu:
            gate = self._node("Gelu", gate, approximate="tanh")
        else:
            gate = self._node("Mul", gate, self._node("Sigmoid", gate))
        return self._linear(self._node("Mul", gate, up), f"{at}ffn_down.weight", wide, hidden)

    def _last(self, x: str, ids: str, counts: str) -> str:
        """The last token of each text before what fills it up, or those asked for, normalized: [batch, asked, hidden]."""
        batch, sequence = self._size(ids, 0), self._size(ids, 1)
        ends = self._node("Sub", self._node("Min", counts, sequence), self._ints(1))
        places = self._node("Max", self._node("Sub", self._node("Unsqueeze", ends, self._ints(1)), self._asked), self._ints(0))
        first = self._node("Range", self._scalar(0), self._node("Squeeze", batch), self._scalar(1))
        rows = self._node("Add", self._node("Unsqueeze", self._node("Mul", first, sequence), self._ints(1)), places)
        flat = self._node("Reshape", x, self._ints(-1, self._sizes.hidden))
        return self._normalized(self._node("Gather", flat, rows, axis=0), "output_norm.weight", self._sizes.hidden)

    def _normalized(self, x: str, name: str, size: int) -> str:
        return self._node("RMSNormalization", x, self._vector(name, size), axis=-1, epsilon=self._sizes.epsilon)

    def _head_normalized(self, x: str, name: str, heads: int) -> str:
        """Each head of x normalized, where the file has weights for it."""
        if f"{name}_norm.weight" not in self._file.tensors:
            return x
        size = self._sizes.head
        split = self._node("Reshape", x, self._ints(0, 0, heads, size))
        return self._node("Reshape", self._normalized(split, f"{name}_norm.weight", size), self._ints(0, 0, heads * size))

    def _linear(self, x: str, name: str, columns: int, rows: int | None, result: str = "") -> str:
        """x times the transpose of a matrix, plus a bias where the file has one."""
        weight = self._tensor(name, columns, rows)
        bias = name.replace(".weight", ".bias")
        has_bias = bias in self._file.tensors and bias != name
        op = UnboundOperator("ggml", "MulMat", 1, {"type": weight.format.name})
        y: str = self._g.node(
            op, x, self._raw(weight), name=name.removesuffix(".weight"), outputs=[result] if result and not has_bias else 1
        )
        if has_bias:
            added = UnboundOperator("", "Add", _OPSETS["ai.onnx"], {})
            y = self._g.node(added, y, self._vector(bias, weight.data.shape[0]), outputs=[result] if result else 1)
        return y

    def _rotation(self, mask: str) -> tuple[str, str]:
        """Cosines and sines [room, pairs], computed in float64."""
        s = self._sizes
        frequencies = s.base ** (-np.arange(0, s.rotated, 2) / s.rotated) / s.factor
        if "rope_freqs.weight" in self._file.tensors:
            frequencies = frequencies / self._numbers("rope_freqs.weight", s.rotated // 2)
        room = self._node("Squeeze", self._size(mask, 1))
        positions = self._node("Cast", self._node("Range", self._scalar(0), room, self._scalar(1)), to=11)
        column = self._node("Reshape", positions, self._ints(-1, 1))
        angles = self._node("Mul", column, self._g.constant(frequencies, DType.FLOAT64, name="frequencies"))
        cosine, sine = (self._node("Cast", self._node(function, angles), to=1) for function in ("Cos", "Sin"))
        return cosine, sine

    # --- nodes and constants -----------------------------------------------------------------------------------------

    def _node(self, op_type: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        version = _OPSETS[domain or "ai.onnx"]
        found: str = self._g.node(UnboundOperator(domain, op_type, version, attributes), *inputs, outputs=1)
        return found

    def _ints(self, *values: int) -> str:
        return self._g.constant(list(values), DType.INT64)

    def _scalar(self, value: int) -> str:
        return self._g.constant(value, DType.INT64)

    def _floats(self, value: float) -> str:
        return self._g.constant(value, DType.FLOAT32)

    def _size(self, x: str, axis: int) -> str:
        return self._node("Shape", x, start=axis, end=axis + 1)

    def _raw(self, tensor: Tensor) -> str:
        return self._g.constant(tensor.data, name=tensor.name)

    def _vector(self, name: str, size: int) -> str:
        return self._g.constant(self._numbers(name, size), name=name)

    def _numbers(self, name: str, size: int) -> Any:
        tensor = self._tensor(name, size, 1)
        return tensor.format.read(tensor.data).floats().reshape(-1)

    def _tensor(self, name: str, columns: int, rows: int | None) -> Tensor:
        """A tensor of these sizes. Raises `FormatError`."""
        tensor = self._file.tensors.get(name)
        if tensor is None:
            raise FormatError(f"the tensor '{name}' is missing")
        if (
            tensor.columns != columns
            or len(tensor.dims) > 2
            or (rows is not None and len(tensor.data) != rows)
            or not len(tensor.data)
        ):
            raise FormatError(f"tensor '{name}' has dimensions {list(tensor.dims)}; accepted: [{columns}, {rows or 'rows'}]")
        return tensor

    # --- metadata ------------------------------------------------------------------------------------------------------

    def _read_sizes(self) -> Sizes:
        if self._number("expert_count", 0):
            raise FormatError("the model is a mixture of experts; accepted: one network in each layer")
        scaling = self._file.metadata.get(f"{self._name}.rope.scaling.type", "none")
        if scaling not in ("none", "linear"):
            raise FormatError(f"the scaling of rotations is {printable(str(scaling))!r}; accepted: none, linear")
        hidden, heads = self._number("embedding_length"), self._number("attention.head_count")
        kv_heads = self._number("attention.head_count_kv", heads)
        head = self._number("attention.key_length", hidden // heads)
        rotated = self._number("rope.dimension_count", head)
        if heads % kv_heads or self._number("attention.value_length", head) != head or rotated > head or rotated % 2:
            given = f"{heads} heads, {kv_heads} of keys and values, of {head} elements, {rotated} of them turned"
            raise FormatError(f"{given}; accepted: a multiple of the heads of keys and values, one size, an even number turned")
        self._tensor("blk.0.attn_q.weight", hidden, heads * head)  # before anything is as large as the metadata say
        return Sizes(
            self._number("block_count", most=10_000),
            hidden,
            heads,
            kv_heads,
            head,
            rotated,
            self._float("attention.layer_norm_rms_epsilon", 1e-5),
            self._float("rope.freq_base", 10000.0),
            self._float("rope.scaling.factor", 1.0) if scaling == "linear" else 1.0,
        )

    def _number(self, key: str, default: int | None = None, most: int = 2**30) -> int:
        """A number of the metadata from 1 on; the default where it is missing."""
        value = self._file.metadata.get(f"{self._name}.{key}", default)
        if value == default == 0:
            return 0
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= most:
            raise FormatError(f"'{self._name}.{key}' is {printable(repr(value)[:60])}; accepted: a number from 1 to {most}")
        return value

    def _float(self, key: str, default: float) -> float:
        value = self._file.metadata.get(f"{self._name}.{key}", default)
        if not isinstance(value, float) or not 0 < value < 1e30:
            raise FormatError(f"'{self._name}.{key}' is {printable(repr(value)[:60])}; accepted: a positive number")
        return value


def _texts(metadata: Mapping[str, Any]) -> dict[str, str]:
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in metadata.items()}
