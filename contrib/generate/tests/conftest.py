"""Fixtures: a small random model with a tokenizer of bytes, and a generator for it."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf.quants import quantize
from tokenizers.pre_tokenizers import ByteLevel

from dovetail_generate import TextGenerator

CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["t h", "th e", "Ġ the"]
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant{{ '\n' }}"
)


def write_model(path: Path, *, template: str | None = TEMPLATE, pre: str = "smollm", context: int = 512, seed: int = 3) -> Path:
    """A llama of one layer, whose tokens are bytes, three merges and control tokens."""
    words = [*CONTROL, *sorted(ByteLevel.alphabet()), *(merge.replace(" ", "") for merge in MERGES)]
    writer, rng = gguf.GGUFWriter(path, "llama"), np.random.default_rng(seed)
    hidden, wide = 32, 64
    for key, number in {"block_count": 1, "context_length": context, "embedding_length": hidden}.items():
        writer.add_uint32(f"llama.{key}", number)
    writer.add_feed_forward_length(wide)
    writer.add_head_count(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(words)
    writer.add_token_types([3] * len(CONTROL) + [1] * (len(words) - len(CONTROL)))
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    if template is not None:
        writer.add_chat_template(template)
    shapes = {"token_embd": (len(words), hidden), "blk.0.attn_output": (hidden, hidden), "blk.0.ffn_down": (hidden, wide)}
    shapes |= {f"blk.0.attn_{side}": (hidden, hidden) for side in "qkv"} | {
        f"blk.0.ffn_{side}": (wide, hidden) for side in ("gate", "up")
    }
    for name, shape in shapes.items():
        kind = gguf.GGMLQuantizationType.Q4_1 if "blk" in name else gguf.GGMLQuantizationType.Q8_0
        numbers = quantize(rng.standard_normal(shape).astype(np.float32) / 3, kind)
        writer.add_tensor(f"{name}.weight", numbers, raw_dtype=kind)
    for name in ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"):
        writer.add_tensor(f"{name}.weight", rng.uniform(0.5, 1.5, hidden).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="session")
def write() -> Any:
    """The function above."""
    return write_model


@pytest.fixture(scope="session")
def model(tmp_path_factory: Any) -> Path:
    """The path of the model."""
    return write_model(tmp_path_factory.mktemp("models") / "small.gguf")


@pytest.fixture
def generator(model: Path) -> Any:
    """A generator on NUMPY with room for 300 tokens."""
    made = TextGenerator(model, "NUMPY", room=300)
    yield made
    made.close()
