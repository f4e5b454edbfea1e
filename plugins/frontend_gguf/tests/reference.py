"""A decoder in float64, token by token, that shares no code with dovetail: files are read by the package `gguf`.

`python reference.py MODEL TOKENS NUMBER` prints the tokens that follow, the most likely one each time.
"""

import math
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import gguf
import numpy as np
from gguf.quants import dequantize


class Reference:
    """One text; `step` takes its next token."""

    def __init__(self, path: Any) -> None:
        reader = gguf.GGUFReader(path)
        self.facts = {name: field.contents() for name, field in reader.fields.items()}
        self.name = self.facts["general.architecture"]
        self.weights = {
            t.name: np.asarray(dequantize(t.data, t.tensor_type), np.float64).reshape([int(d) for d in t.shape[::-1]])
            for t in reader.tensors
        }
        self.reset()

    def reset(self) -> None:
        self.past: list[list[tuple[Any, Any]]] = [[] for _ in range(self.fact("block_count"))]

    def fact(self, key: str, default: Any = None) -> Any:
        return self.facts.get(f"{self.name}.{key}", default)

    def normalized(self, x: Any, name: str) -> Any:
        return x / math.sqrt(float(np.mean(x * x)) + self.fact("attention.layer_norm_rms_epsilon")) * self.weights[name]

    def linear(self, x: Any, name: str) -> Any:
        return self.weights[f"{name}.weight"] @ x + self.weights.get(f"{name}.bias", 0.0)

    def is_local(self, layer: int) -> bool:
        """Whether a layer sees the keys of a window only."""
        every = {"gemma2": 2, "gemma3": 6, "olmo2": 4, "phi3": 10**9}.get(self.name, 1)
        return self.fact("attention.sliding_window", 0) > 0 and (layer + 1) % every != 0

    def angle(self, pair: int, count: int, position: int, local: bool) -> float:
        base, scaling = self.fact("rope.freq_base", 10000.0), self.fact("rope.scaling.type")
        if local:
            return float(position * (10000.0 if self.name == "gemma3" else base) ** (-2 * pair / count))
        angle = position * base ** (-2 * pair / count)
        for name in ("rope_freqs.weight", "rope_factors_short.weight"):
            if name in self.weights:
                angle /= self.weights[name][pair]
        if scaling == "linear":
            return float(angle / self.fact("rope.scaling.factor"))
        if scaling == "yarn":
            # Pairs that turn 32 times and more keep their frequencies, those that turn once and less are divided.
            turns = self.fact("rope.scaling.original_context_length") / (2 * math.pi)
            low, high = (count * math.log(turns / times) / (2 * math.log(base)) for times in (32, 1))
            low, high = max(math.floor(low), 0), min(math.ceil(high), count - 1)
            share = min(max((pair - low) / max(high - low, 0.001), 0), 1)
            return float(angle * (1 - share) + angle / self.fact("rope.scaling.factor") * share)
        return float(angle)

    def turned(self, head: Any, position: int, layer: int) -> Any:
        if self.name == "smollm3" and layer % 4 == 3:
            return head
        count, local = self.fact("rope.dimension_count", len(head)), self.is_local(layer) and self.name != "phi3"
        grown = 1.0 if local else self.fact("rope.scaling.attn_factor", 1.0)
        if self.fact("rope.scaling.type") == "yarn" and not local:
            grown *= 1 + 0.1 * math.log(self.fact("rope.scaling.factor"))
        y = head.copy()
        for pair in range(count // 2):
            # Some weights are stored for neighbours, others for the two halves.
            neighbours = self.name in ("llama", "granite", "smollm3")
            i, j = (2 * pair, 2 * pair + 1) if neighbours else (pair, pair + count // 2)
            angle = self.angle(pair, count, position, local)
            y[i] = head[i] * math.cos(angle) - head[j] * math.sin(angle)
            y[j] = head[i] * math.sin(angle) + head[j] * math.cos(angle)
            y[[i, j]] *= grown
        return y

    def heads(self, found: Any, name: str, count: int, position: int, layer: int) -> Any:
        norm = f"{name}_norm.weight"
        if norm in self.weights and len(self.weights[norm]) == len(found):
            found = self.normalized(found, norm)
        found = found.reshape(count, -1)
        if norm in self.weights and len(self.weights[norm]) == found.shape[1]:
            found = np.array([self.normalized(head, norm) for head in found])
        return np.array([self.turned(head, position, layer) for head in found])

    def attention(self, x: Any, layer: int) -> Any:
        at, past = f"blk.{layer}.attn_", self.past[layer]
        count = self.fact("attention.head_count")
        kv = self.fact("attention.head_count_kv", count)
        if f"{at}qkv.weight" in self.weights:
            q, k, v = np.split(self.linear(x, at + "qkv").reshape(count + 2 * kv, -1), [count, count + kv])
        else:
            q, k, v = (self.linear(x, at + side) for side in "qkv")
        queries = self.heads(q.reshape(-1), at + "q", count, len(past), layer)
        past.append((self.heads(k.reshape(-1), at + "k", kv, len(past), layer), v.reshape(kv, -1)))
        seen = past[-self.fact("attention.sliding_window") :] if self.is_local(layer) else past
        cap, parts = self.fact("attn_logit_softcapping", 50.0 if self.name == "gemma2" else None), []
        for number, query in enumerate(queries):
            keys = np.array([key[number * kv // count] for key, _ in seen])
            scores = keys @ query * self.fact("attention.scale", 1 / math.sqrt(len(query)))
            scores = cap * np.tanh(scores / cap) if cap else scores
            weights = np.exp(scores - scores.max())
            parts.append(weights / weights.sum() @ np.array([value[number * kv // count] for _, value in seen]))
        return self.linear(np.concatenate(parts), at + "output")

    def feed_forward(self, h: Any, at: str) -> Any:
        if f"{at}ffn_gate.weight" in self.weights:
            gate, up = self.linear(h, at + "ffn_gate"), self.linear(h, at + "ffn_up")
        else:
            gate, up = np.split(self.linear(h, at + "ffn_up"), 2)
        if self.name.startswith("gemma"):
            gate = gate / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3)))
        else:
            gate = gate / (1 + np.exp(-gate))
        return self.linear(gate * up, at + "ffn_down")

    def step(self, token: int) -> Any:
        """The logits of what follows."""
        x = self.weights["token_embd.weight"][token]
        x = x * self.fact("embedding_scale", math.sqrt(len(x)) if self.name.startswith("gemma") else 1.0)

        def norm(x: Any, name: str) -> Any:
            return self.normalized(x, name) if name in self.weights else x

        for layer in range(len(self.past)):
            at, by = f"blk.{layer}.", self.fact("residual_scale", 1.0)
            y = self.attention(norm(x, at + "attn_norm.weight"), layer)
            x = x + norm(y, at + "post_attention_norm.weight") * by
            y = self.feed_forward(norm(x, at + "ffn_norm.weight"), at)
            x = x + norm(y, at + "post_ffw_norm.weight") * by
        x = self.normalized(x, "output_norm.weight")
        logits = self.weights.get("output.weight", self.weights["token_embd.weight"]) @ x / self.fact("logit_scale", 1.0)
        cap = self.fact("final_logit_softcapping", 30.0 if self.name == "gemma2" else None)
        return cap * np.tanh(logits / cap) if cap else logits

    def greedy(self, tokens: Sequence[int]) -> Iterator[int]:
        """The tokens that follow, the most likely one each time, without end."""
        self.reset()
        for token in tokens:
            logits = self.step(token)
        while True:
            yield int(logits.argmax())
            logits = self.step(int(logits.argmax()))


if __name__ == "__main__":
    following = Reference(sys.argv[1]).greedy([int(token) for token in sys.argv[2].split(",")])
    print(",".join(str(token) for token, _ in zip(following, range(int(sys.argv[3])), strict=False)))
