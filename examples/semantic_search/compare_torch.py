"""Compares every sentence's vector with torch's, and the tokens with those of the package `tokenizers`, if that is there.

python compare_torch.py NUMPY ONEDNN OPENCL     (needs torch)
"""

import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from minilm import Size, Tokenizer, Weights, build, model_folder, read_safetensors
from search import SENTENCES
from torch.nn import functional

import dovetail


def torch_embedding(weights: Weights, size: Size, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The network in torch, from the same weights, written without a look at minilm.py."""
    w = {name: torch.from_numpy(array.copy()) for name, array in weights.items()}

    def linear(x: torch.Tensor, name: str) -> torch.Tensor:
        return functional.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return functional.layer_norm(x, (size.hidden,), w[f"{name}.weight"], w[f"{name}.bias"], size.epsilon)

    kinds = torch.zeros_like(ids)
    x = functional.embedding(ids, w["embeddings.word_embeddings.weight"])
    x = x + w["embeddings.position_embeddings.weight"][: ids.shape[1]]
    x = norm(x + functional.embedding(kinds, w["embeddings.token_type_embeddings.weight"]), "embeddings.LayerNorm")
    for i in range(size.layers):
        name = f"encoder.layer.{i}"
        parts = [linear(x, f"{name}.attention.self.{part}") for part in ("query", "key", "value")]
        q, k, v = (p.unflatten(-1, (size.heads, -1)).transpose(1, 2) for p in parts)
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :].bool())
        attended = linear(mixed.transpose(1, 2).flatten(2), f"{name}.attention.output.dense")
        x = norm(attended + x, f"{name}.attention.output.LayerNorm")
        wide = functional.gelu(linear(x, f"{name}.intermediate.dense"))
        x = norm(linear(wide, f"{name}.output.dense") + x, f"{name}.output.LayerNorm")
    counted = mask.unsqueeze(-1).float()
    return functional.normalize((x * counted).sum(1) / counted.sum(1))


def same_tokens(folder: Path, tokenizer: Tokenizer, sentences: list[str]) -> str:
    """Whether the package `tokenizers` gives the same numbers."""
    if find_spec("tokenizers") is None:
        return "not compared: pip install tokenizers"
    from tokenizers import Tokenizer as Reference

    reference = Reference.from_file(str(folder / "tokenizer.json"))
    reference.no_padding()
    different = [s for s in sentences if reference.encode(s).ids != tokenizer.numbers(s)]
    return f"{len(sentences) - len(different)} of {len(sentences)} sentences equal {different[:3] or ''}"


def main() -> None:
    """Print the largest difference on each device."""
    folder = model_folder()
    weights, size, tokenizer = read_safetensors(folder / "model.safetensors"), Size.read(folder), Tokenizer.read(folder)
    sentences = SENTENCES.read_text(encoding="utf-8").splitlines()
    print("tokens:", same_tokens(folder, tokenizer, sentences))
    inputs = tokenizer.batch(sentences)
    with torch.inference_mode():
        ids, mask = (torch.from_numpy(inputs[name]) for name in ("input_ids", "attention_mask"))
        expected = torch_embedding(weights, size, ids, mask).numpy()
    core, model = dovetail.Core(), build(weights, size)
    for device in sys.argv[1:] or core.available_devices:
        got = core.compile_model(model, device)(inputs)["embedding"]
        print(f"{device}: {len(got)} sentences, largest difference from torch {np.abs(got - expected).max():.2e}")
        np.testing.assert_allclose(got, expected, atol=1e-4, rtol=0)


if __name__ == "__main__":
    main()
