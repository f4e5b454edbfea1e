"""A language model of random weights with the sizes of SmolLM2-135M, in the formats of its .gguf file: Q4_1, Q8_0 and F32."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["write_random_model"]

_LAYERS, _HIDDEN, _WIDE, _HEADS, _KV_HEADS, _WORDS, _ROOM = 30, 576, 1536, 9, 3, 49152, 8192
_ALIGNMENT = 32
_F32, _Q4_1, _Q8_0 = 0, 3, 8
"""The numbers of the formats in files."""


def write_random_model(path: Path, seed: int = 7) -> None:
    """Write the file. Products keep the size of what they are given, so that activations stay in the range of a real model."""
    rng = np.random.default_rng(seed)
    declared, contents, offset = b"", [], 0
    for name, (dims, kind) in _tensors().items():
        content = _content(rng, dims, kind)
        declared += _string(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
        declared += struct.pack("<IQ", kind, offset)
        contents.append(content + bytes(-len(content) % _ALIGNMENT))
        offset += len(contents[-1])
    facts = _facts()
    header = b"GGUF" + struct.pack("<IQQ", 3, len(contents), len(facts)) + b"".join(facts) + declared
    with path.open("wb") as file:
        file.write(header + bytes(-len(header) % _ALIGNMENT))
        file.writelines(contents)


def _tensors() -> dict[str, tuple[tuple[int, ...], int]]:
    """The dimensions, the innermost first, and the format of each tensor."""
    head = _HIDDEN // _HEADS
    found: dict[str, tuple[tuple[int, ...], int]] = {"token_embd.weight": ((_HIDDEN, _WORDS), _Q8_0)}
    for at in (f"blk.{layer}." for layer in range(_LAYERS)):
        found |= {f"{at}{norm}_norm.weight": ((_HIDDEN,), _F32) for norm in ("attn", "ffn")}
        rows = {"attn_q": _HIDDEN, "attn_k": _KV_HEADS * head, "attn_v": _KV_HEADS * head, "attn_output": _HIDDEN}
        rows |= {"ffn_gate": _WIDE, "ffn_up": _WIDE}
        found |= {f"{at}{name}.weight": ((_HIDDEN, count), _Q4_1) for name, count in rows.items()}
        found[f"{at}ffn_down.weight"] = (_WIDE, _HIDDEN), _Q4_1
    return {**found, "output_norm.weight": ((_HIDDEN,), _F32)}


def _content(rng: np.random.Generator, dims: tuple[int, ...], kind: int) -> bytes:
    if kind == _F32:
        return rng.uniform(0.5, 1.5, dims).astype("<f4").tobytes()
    blocks = int(np.prod(dims)) // 32
    of_parameters, of_numbers, deviation = (4, 16, 4.6) if kind == _Q4_1 else (2, 32, 74)
    scale = np.float16(dims[0] ** -0.5 / deviation)
    block = np.empty((blocks, of_parameters + of_numbers), np.uint8)
    block[:, :of_parameters] = np.array([scale, -7.5 * scale][: of_parameters // 2], "<f2").view(np.uint8)
    block[:, of_parameters:] = rng.integers(0, 256, (blocks, of_numbers), np.uint8)
    return block.tobytes()


def _facts() -> list[bytes]:
    numbers = {"block_count": _LAYERS, "context_length": _ROOM, "embedding_length": _HIDDEN, "feed_forward_length": _WIDE}
    numbers |= {"attention.head_count": _HEADS, "attention.head_count_kv": _KV_HEADS}
    pairs: dict[str, Any] = {f"llama.{key}": struct.pack("<II", 4, number) for key, number in numbers.items()}
    pairs["llama.attention.layer_norm_rms_epsilon"] = struct.pack("<If", 6, 1e-5)
    pairs["llama.rope.freq_base"] = struct.pack("<If", 6, 100_000)
    pairs["general.architecture"] = struct.pack("<I", 8) + _string("llama")
    return [_string(key) + value for key, value in pairs.items()]


def _string(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()
