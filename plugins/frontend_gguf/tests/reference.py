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

    def turned(self, head: Any, position: int) -> Any:
        count = self.fact("rope.dimension_count", len(head))
        y = head.copy()
        for pair in range(count // 2):
            # llama's weights are stored for neighbours, those of the others for the two halves.
            i, j = (2 * pair, 2 * pair + 1) if self.name == "llama" else (pair, pair + count // 2)
            angle = position * self.fact("rope.freq_base", 10000.0) ** (-2 * pair / count)
            if self.fact("rope.scaling.type") == "linear":
                angle /= self.fact("rope.scaling.factor")
            if "rope_freqs.weight" in self.weights:
                angle /= self.weights["rope_freqs.weight"][pair]
            y[i] = head[i] * math.cos(angle) - head[j] * math.sin(angle)
            y[j] = head[i] * math.sin(angle) + head[j] * math.cos(angle)
        return y

    def heads(self, x: Any, name: str, count: int, position: int) -> Any:
        found = self.linear(x, name).reshape(count, -1)
        if f"{name}_norm.weight" in self.weights:
            found = np.array([self.normalized(head, f"{name}_norm.weight") for head in found])
        return np.array([self.turned(head, position) for head in found])

    def attention(self, x: Any, layer: int) -> Any:
        at, past = f"blk.{layer}.attn_", self.past[layer]
        count = self.fact("attention.head_count")
        shared = count // self.fact("attention.head_count_kv", count)
        queries = self.heads(x, at + "q", count, len(past))
        values = self.linear(x, at + "v").reshape(count // shared, -1)
        past.append((self.heads(x, at + "k", count // shared, len(past)), values))
        parts = []
        for number, query in enumerate(queries):
            keys = np.array([k[number // shared] for k, _ in past])
            scores = keys @ query / math.sqrt(len(query))
            weights = np.exp(scores - scores.max())
            parts.append(weights / weights.sum() @ np.array([v[number // shared] for _, v in past]))
        return self.linear(np.concatenate(parts), at + "output")

    def step(self, token: int) -> Any:
        """The logits of what follows."""
        x = self.weights["token_embd.weight"][token]
        if self.name == "gemma":
            x = x * math.sqrt(len(x))
        for layer in range(len(self.past)):
            at = f"blk.{layer}."
            x = x + self.attention(self.normalized(x, at + "attn_norm.weight"), layer)
            h = self.normalized(x, at + "ffn_norm.weight")
            gate = self.linear(h, at + "ffn_gate")
            if self.name == "gemma":
                gate = gate / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3)))
            else:
                gate = gate / (1 + np.exp(-gate))
            x = x + self.linear(gate * self.linear(h, at + "ffn_up"), at + "ffn_down")
        x = self.normalized(x, "output_norm.weight")
        return self.weights.get("output.weight", self.weights["token_embd.weight"]) @ x

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
