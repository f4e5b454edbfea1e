"""The graph of a decoder: embedding, layers of attention and feed-forward networks, and the logits of the last token."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dovetail.frontend import DType, FormatError, GraphBuilder, Model, ModelSource, TensorType, UnboundOperator, printable
from dovetail_frontend_gguf.container import Container, Tensor, open_container, release
from dovetail_frontend_gguf.rotation import Rotation

__all__ = ["ARCHITECTURES", "Architecture", "read"]

_OPSETS = {"ai.onnx": 23, "com.microsoft": 1, "ggml": 1}


@dataclass(frozen=True)
class Architecture:
    """How the layers of an architecture differ from others.

    `interleaved`: rotation turns neighbours, not the two halves of a head. `gelu`: the gate is a GELU and not a SiLU.
    `scaled`: the embedding is multiplied by the root of its size. `windowed` and `turned` repeat over the layers: whose attention
    sees `attention.sliding_window` keys only, by default `window` of them, and which rotate. `unscaled`: windowed layers rotate
    without scaling, by `rope.freq_base_swa`, by default `local_base` or the base of all layers. `softcaps` are the defaults for
    scores and logits. `before` and `after`: what a part of a layer reads, and adds, is normalized. In a model of `wide_layers`
    layers scores are divided by the root of the hidden size for each head.
    """

    interleaved: bool = False
    gelu: bool = False
    scaled: bool = False
    windowed: tuple[bool, ...] = (False,)
    turned: tuple[bool, ...] = (True,)
    window: int = 0
    unscaled: bool = False
    local_base: float = 0.0
    softcaps: tuple[float, float] = (0.0, 0.0)
    before: bool = True
    after: bool = False
    wide_layers: int = 0


ARCHITECTURES: Mapping[str, Architecture] = {
    "llama": Architecture(interleaved=True),
    "qwen2": Architecture(),
    "qwen3": Architecture(),
    "gemma": Architecture(gelu=True, scaled=True),
    "gemma2": Architecture(
        gelu=True, scaled=True, windowed=(True, False), window=4096, softcaps=(50.0, 30.0), after=True, wide_layers=46
    ),
    "gemma3": Architecture(
        gelu=True, scaled=True, windowed=(*[True] * 5, False), unscaled=True, local_base=10000.0, after=True, wide_layers=62
    ),
    "granite": Architecture(interleaved=True),
    "olmo2": Architecture(windowed=(True, True, True, False), unscaled=True, before=False, after=True),
    "phi3": Architecture(windowed=(True,)),
    "smollm3": Architecture(interleaved=True, turned=(True, True, True, False)),
}

_SCALINGS = ("none", "linear", "yarn", "longrope")


@dataclass(frozen=True)
class Sizes:
    """The sizes from the metadata; scales and softcaps are 0 where there are none."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head: int
    epsilon: float
    window: int
    scale: float
    softcap: float


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
        whole, local = self._rotations(mask)
        x = self._embedded(ids)
        presents = []
        for i, past in enumerate(pasts):
            x, *present = self._layer(x, i, past, ends, local if self._is_windowed(i) else whole)
            presents += present
        self._logits(self._last(x, ids, counts))
        model = g.model(["logits", *presents], name=self._name)
        asked = {self._asked: TensorType(DType.INT64, ("asked",))}
        opened = Model(model.graph, _OPSETS, self._file.source, "gguf", _texts(self._file.metadata), asked)
        return opened.with_states("past_key_values.*:present.*")

    # --- parts ---------------------------------------------------------------------------------------------------------

    def _embedded(self, ids: str) -> str:
        table = self._tensor("token_embd.weight", self._sizes.hidden, None)
        x = self._node("GetRows", self._raw(table), ids, domain="ggml", type=table.format.name)
        by = self._float("embedding_scale", self._sizes.hidden**0.5 if self._kind.scaled else 1.0)
        return self._scaled(x, by)

    def _logits(self, x: str) -> None:
        """The output `logits`, scaled and capped."""
        output = "output.weight" if "output.weight" in self._file.tensors else "token_embd.weight"
        scale = self._float("logit_scale", 1.0)
        cap = self._float("final_logit_softcapping", self._kind.softcaps[1])
        if scale == 1.0 and not cap:
            self._linear(x, output, self._sizes.hidden, None, result="logits")
            return
        y = self._scaled(self._linear(x, output, self._sizes.hidden, None), 1 / scale / (cap or 1.0))
        op = UnboundOperator("", "Mul" if cap else "Identity", _OPSETS["ai.onnx"], {})
        self._g.node(op, *([self._node("Tanh", y), self._floats(cap)] if cap else [y]), outputs=["logits"])

    def _scaled(self, x: str, by: float) -> str:
        return x if by == 1.0 else self._node("Mul", x, self._floats(by))

    def _layer(
        self, x: str, index: int, past: tuple[str, str], ends: tuple[str, str], rotation: tuple[str, str]
    ) -> tuple[str, str, str]:
        s, at, kind = self._sizes, f"blk.{index}.", self._kind
        h = self._normalized(x, f"{at}attn_norm.weight", s.hidden) if kind.before else x
        attributes: dict[str, Any] = {"num_heads": s.heads, "kv_num_heads": s.kv_heads}
        if turned := kind.turned[index % len(kind.turned)]:
            attributes |= {"do_rotary": 1, "rotary_interleaved": int(kind.interleaved)}
        if self._is_windowed(index):
            attributes["local_window_size"] = s.window
        attributes |= {name: value for name, value in (("scale", s.scale), ("softcap", s.softcap)) if value}
        op = UnboundOperator("com.microsoft", "GroupQueryAttention", 1, attributes)
        names = [f"{at}attention", f"present.{index}.key", f"present.{index}.value"]
        given = (*self._queries_keys_values(h, at), *past, *ends, *(rotation if turned else ()))
        self._g.node(op, *given, name=f"{at}attn", outputs=names)
        x = self._sum(
            x, self._linear(names[0], f"{at}attn_output.weight", s.heads * s.head, s.hidden), f"{at}post_attention_norm"
        )
        h = self._normalized(x, f"{at}ffn_norm.weight", s.hidden) if kind.before else x
        return self._sum(x, self._feed_forward(h, at), f"{at}post_ffw_norm"), names[1], names[2]

    def _is_windowed(self, index: int) -> bool:
        return bool(self._sizes.window) and self._kind.windowed[index % len(self._kind.windowed)]

    def _sum(self, x: str, y: str, name: str) -> str:
        """x plus what a part of a layer adds."""
        y = self._normalized(y, f"{name}.weight", self._sizes.hidden) if self._kind.after else y
        return self._node("Add", x, self._scaled(y, self._float("residual_scale", 1.0)))

    def _queries_keys_values(self, h: str, at: str) -> tuple[str, str, str]:
        """The three, or all of them and two empty names, where the file has them in one matrix."""
        s = self._sizes
        if f"{at}attn_qkv.weight" in self._file.tensors:
            return self._linear(h, f"{at}attn_qkv.weight", s.hidden, (s.heads + 2 * s.kv_heads) * s.head), "", ""
        q, k = (
            self._head_normalized(self._linear(h, f"{at}attn_{side}.weight", s.hidden, heads * s.head), f"{at}attn_{side}", heads)
            for side, heads in (("q", s.heads), ("k", s.kv_heads))
        )
        return q, k, self._linear(h, f"{at}attn_v.weight", s.hidden, s.kv_heads * s.head)

    def _feed_forward(self, h: str, at: str) -> str:
        hidden = self._sizes.hidden
        wide = self._number("feed_forward_length")
        if f"{at}ffn_gate.weight" in self._file.tensors:
            gate, up = (self._linear(h, f"{at}ffn_{side}.weight", hidden, wide) for side in ("gate", "up"))
        else:
            both = self._linear(h, f"{at}ffn_up.weight", hidden, 2 * wide)
            op = UnboundOperator("", "Split", _OPSETS["ai.onnx"], {"axis": -1, "num_outputs": 2})
            gate, up = self._g.node(op, both, outputs=2)
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
        """Each head of x normalized, or all of them together, where the file has weights for one or all."""
        name, size = f"{name}_norm.weight", self._sizes.head
        found = self._file.tensors.get(name)
        if found is None:
            return x
        if found.columns == heads * size:
            return self._normalized(x, name, heads * size)
        split = self._node("Reshape", x, self._ints(0, 0, heads, size))
        return self._node("Reshape", self._normalized(split, name, size), self._ints(0, 0, heads * size))

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

    def _rotations(self, mask: str) -> tuple[tuple[str, str], tuple[str, str]]:
        """Cosines and sines [room, pairs] of all layers and of windowed ones, computed in float64."""
        whole, local = self._scaled_rotation()
        positions = self._positions(mask)
        frequencies = self._g.constant(whole.frequencies(self._factors("rope_freqs", whole)), DType.FLOAT64, name="frequencies")
        if "rope_factors_long.weight" in self._file.tensors:
            limit = self._number("rope.scaling.original_context_length")
            is_long = self._node("Greater", self._size(mask, 1), self._ints(limit))
            both = (whole.frequencies(self._factors(f"rope_factors_{name}", whole)) for name in ("long", "short"))
            frequencies = self._node("Where", is_long, *(self._g.constant(one, DType.FLOAT64) for one in both))
        found = self._turns(positions, frequencies, whole.amplitude)
        if not self._sizes.window or not self._kind.unscaled:
            return found, found
        return found, self._turns(positions, self._g.constant(local.frequencies(), DType.FLOAT64, name="local"), 1.0)

    def _positions(self, mask: str) -> str:
        room = self._node("Squeeze", self._size(mask, 1))
        positions = self._node("Cast", self._node("Range", self._scalar(0), room, self._scalar(1)), to=11)
        return self._node("Reshape", positions, self._ints(-1, 1))

    def _turns(self, positions: str, frequencies: str, amplitude: float) -> tuple[str, str]:
        angles = self._node("Mul", positions, frequencies)
        both = (self._node(function, angles) for function in ("Cos", "Sin"))
        by = None if amplitude == 1 else self._g.constant(amplitude, DType.FLOAT64)
        cosine, sine = (self._node("Cast", one if by is None else self._node("Mul", one, by), to=1) for one in both)
        return cosine, sine

    def _factors(self, name: str, rotation: Rotation) -> Any:
        """The divisors of the frequencies, None where the file has none."""
        name = f"{name}.weight"
        return self._numbers(name, rotation.size // 2) if name in self._file.tensors else None

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
        with np.errstate(invalid="ignore", over="ignore"):  # a scale that is infinite
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
        hidden, heads = self._number("embedding_length"), self._number("attention.head_count")
        kv_heads = self._number("attention.head_count_kv", heads)
        head = self._number("attention.key_length", hidden // heads)
        if heads % kv_heads or self._number("attention.value_length", head) != head:
            given = f"{heads} heads, {kv_heads} of keys and values, of {head} elements"
            raise FormatError(f"{given}; accepted: a multiple of the heads of keys and values, one size")
        # Before anything is as large as the metadata say.
        if "blk.0.attn_qkv.weight" not in self._file.tensors:
            self._tensor("blk.0.attn_q.weight", hidden, heads * head)
        kind, layers = self._kind, self._number("block_count", most=10_000)
        return Sizes(
            layers,
            hidden,
            heads,
            kv_heads,
            head,
            self._float("attention.layer_norm_rms_epsilon", 1e-5),
            self._number("attention.sliding_window", kind.window) if any(kind.windowed) else 0,
            self._float("attention.scale", (hidden // heads) ** -0.5 if layers == kind.wide_layers else 0.0),
            self._float("attn_logit_softcapping", kind.softcaps[0]),
        )

    def _scaled_rotation(self) -> tuple[Rotation, Rotation]:
        """The rotation of all layers, and that of windowed ones."""
        scaling = self._file.metadata.get(f"{self._name}.rope.scaling.type", "none")
        if scaling not in _SCALINGS:
            raise FormatError(f"the scaling of rotations is {printable(str(scaling))!r}; accepted: {', '.join(_SCALINGS)}")
        size = self._number("rope.dimension_count", self._sizes.head)
        if size > self._sizes.head or size % 2:
            raise FormatError(f"{size} of {self._sizes.head} elements of a head are turned; accepted: an even number of them")
        base = self._float("rope.freq_base", 10000.0)
        whole = Rotation(size, base, magnitude=self._float("rope.scaling.attn_factor", 1.0))
        if scaling in ("linear", "yarn"):
            whole = replace(whole, factor=self._float("rope.scaling.factor", 1.0))
        if scaling == "yarn":
            original = self._number("rope.scaling.original_context_length")
            fast, slow = (self._float(f"rope.scaling.yarn_beta_{of}", turns) for of, turns in (("fast", 32.0), ("slow", 1.0)))
            whole = replace(whole, original=original, fast=fast, slow=slow)
        return whole, Rotation(size, self._float("rope.freq_base_swa", self._kind.local_base or base))

    def _number(self, key: str, default: int | None = None, most: int = 2**30) -> int:
        """A number of the metadata from 1 on; the default where it is missing."""
        value = self._file.metadata.get(f"{self._name}.{key}", default)
        if value == default == 0:
            return 0
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= most:
            raise FormatError(f"'{self._name}.{key}' is {printable(repr(value)[:60])}; accepted: a number from 1 to {most}")
        return value

    def _float(self, key: str, default: float) -> float:
        """A positive number of the metadata; the default where it is missing."""
        value = self._file.metadata.get(f"{self._name}.{key}", default)
        if value == default == 0:
            return 0.0
        if not isinstance(value, float) or not 0 < value < 1e30:
            raise FormatError(f"'{self._name}.{key}' is {printable(repr(value)[:60])}; accepted: a positive number")
        return value


def _texts(metadata: Mapping[str, Any]) -> dict[str, str]:
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in metadata.items()}
