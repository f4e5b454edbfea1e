"""Fixtures: small random models written by the package `gguf`, and the reference in float64."""

import runpy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf.quants import quantize

KINDS = gguf.GGMLQuantizationType
MIXED = [KINDS.Q4_0, KINDS.Q4_1, KINDS.Q8_0, KINDS.F16, KINDS.BF16, KINDS.F32]
"""Formats that `gguf` can write; the cases of the operators have the others."""

Write = Callable[..., Path]


@pytest.fixture(scope="session")
def reference() -> Any:
    """The class in reference.py."""
    return runpy.run_path(str(Path(__file__).with_name("reference.py")))["Reference"]


@pytest.fixture
def write(tmp_path: Path, rng: np.random.Generator) -> Write:
    """`write(architecture, biases=, norms=, facts=, tensors=, each=, without=, wide=, layers=)` writes a model; returns its path.

    `each` are tensors of every layer; those whose names end as in `without` are left out.
    """

    def write(
        name: str = "llama",
        biases: bool = False,
        norms: bool = False,
        facts: Mapping[str, float | str] | None = None,
        tensors: Mapping[str, Any] | None = None,
        each: Mapping[str, Any] | None = None,
        without: tuple[str, ...] = (),
        wide: int = 96,
        layers: int = 2,
    ) -> Path:
        hidden, heads, kv, size, words = 64, 4, 2, 16, 50
        writer = gguf.GGUFWriter(tmp_path / f"{name}.gguf", name)
        numbers = {"block_count": layers, "context_length": 64, "embedding_length": hidden, "feed_forward_length": wide}
        numbers |= {"attention.head_count": heads, "attention.head_count_kv": kv}
        for key, number in numbers.items():
            writer.add_uint32(f"{name}.{key}", number)
        writer.add_float32(f"{name}.attention.layer_norm_rms_epsilon", 1e-5)
        for key, value in (facts or {}).items():
            adds = {str: writer.add_string, int: writer.add_uint32, float: writer.add_float32}
            adds[type(value)](f"{name}.{key}", value)
        writer.add_tokenizer_model("gpt2")
        writer.add_token_list([f"word{i}" for i in range(words)])
        shapes = {"token_embd.weight": (words, hidden), "output_norm.weight": (hidden,), **(tensors or {})}
        for layer in range(layers):
            at = f"blk.{layer}."
            shapes |= {f"{at}attn_norm.weight": (hidden,), f"{at}ffn_norm.weight": (hidden,)}
            for side, rows in (("q", heads * size), ("k", kv * size), ("v", kv * size)):
                shapes[f"{at}attn_{side}.weight"] = (rows, hidden)
                shapes |= {f"{at}attn_{side}.bias": (rows,)} if biases else {}
            shapes |= {f"{at}attn_q_norm.weight": (size,), f"{at}attn_k_norm.weight": (size,)} if norms else {}
            shapes |= {f"{at}attn_output.weight": (hidden, heads * size), f"{at}ffn_gate.weight": (wide, hidden)}
            shapes |= {f"{at}ffn_up.weight": (wide, hidden), f"{at}ffn_down.weight": (hidden, wide)}
            shapes |= {at + tensor: shape for tensor, shape in (each or {}).items()}
        shapes = {tensor: shape for tensor, shape in shapes.items() if not tensor.endswith(without)}
        for index, (tensor, shape) in enumerate(shapes.items()):
            values = rng.uniform(0.5, 1.5, shape) if len(shape) == 1 else rng.standard_normal(shape) / 6
            kind = KINDS.F32 if len(shape) == 1 else MIXED[index % len(MIXED)]
            writer.add_tensor(tensor, quantize(values.astype(np.float32), kind), raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return tmp_path / f"{name}.gguf"

    return write
