"""The example with small random weights in the layout of the real ones: CI downloads nothing. compare_torch.py has the real."""

import importlib.util
import json
import math
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dovetail

HERE = Path(__file__).parent
Array = NDArray[Any]

LAYERS, HEADS, HIDDEN, WIDE, LONGEST = 2, 3, 12, 20, 24
WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "the",
    "cat",
    "sleep",
    "##s",
    "##ing",
    "a",
    ".",
    "!",
    "cafe",
    "un",
    "##sleep",
    "#",
    "語",
]


@pytest.fixture(scope="module")
def minilm() -> ModuleType:
    spec = importlib.util.spec_from_file_location("minilm", HERE / "minilm.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "minilm", module)  # dataclasses look their module up there
        spec.loader.exec_module(module)
    return module


def shapes() -> dict[str, tuple[int, ...]]:
    """The names and shapes of a BERT's weights, as PyTorch's modules have them."""
    found: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (len(WORDS), HIDDEN),
        "embeddings.position_embeddings.weight": (LONGEST, HIDDEN),
        "embeddings.token_type_embeddings.weight": (2, HIDDEN),
    }
    norms, linears = ["embeddings.LayerNorm"], {}
    for i in range(LAYERS):
        name = f"encoder.layer.{i}"
        norms += [f"{name}.attention.output.LayerNorm", f"{name}.output.LayerNorm"]
        square = [*(f"attention.self.{part}" for part in ("query", "key", "value")), "attention.output.dense"]
        linears.update({f"{name}.{part}": (HIDDEN, HIDDEN) for part in square})
        linears.update({f"{name}.intermediate.dense": (WIDE, HIDDEN), f"{name}.output.dense": (HIDDEN, WIDE)})
    for name in norms:
        found |= {f"{name}.weight": (HIDDEN,), f"{name}.bias": (HIDDEN,)}
    for name, (outputs, inputs) in linears.items():
        found |= {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model's folder, its weights written as safetensors."""
    made = tmp_path_factory.mktemp("model")
    rng = np.random.default_rng(4)
    weights = {name: (rng.standard_normal(shape) * 0.5).astype(np.float32) for name, shape in shapes().items()}
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, array in weights.items():
        offsets = [len(data), len(data) + array.nbytes]
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": offsets}
        data += array.tobytes()
    text = json.dumps(header).encode()
    (made / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
    config = {"num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "hidden_size": HIDDEN}
    config |= {"max_position_embeddings": LONGEST, "layer_norm_eps": 1e-12}
    (made / "config.json").write_text(json.dumps(config))
    (made / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    return made


def in_float64(weights: dict[str, Array], numbers: list[int]) -> Array:
    """One sentence without padding: so that what the mask hides cannot matter."""
    w = {name: array.astype(np.float64) for name, array in weights.items()}

    def norm(x: Array, name: str) -> Array:
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12) * w[f"{name}.weight"] + w[f"{name}.bias"]

    def linear(x: Array, name: str) -> Array:
        return np.einsum("si,oi->so", x, w[f"{name}.weight"]) + w[f"{name}.bias"]

    x = w["embeddings.word_embeddings.weight"][numbers] + w["embeddings.position_embeddings.weight"][: len(numbers)]
    x = norm(x + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    for i in range(LAYERS):
        name = f"encoder.layer.{i}"
        q, k, v = (
            linear(x, f"{name}.attention.self.{part}").reshape(-1, HEADS, HIDDEN // HEADS) for part in ("query", "key", "value")
        )
        scores = np.exp(np.einsum("qhd,khd->hqk", q, k) / math.sqrt(HIDDEN // HEADS))
        mixed = np.einsum("hqk,khd->qhd", scores / scores.sum(-1, keepdims=True), v).reshape(-1, HIDDEN)
        x = norm(linear(mixed, f"{name}.attention.output.dense") + x, f"{name}.attention.output.LayerNorm")
        wide = linear(x, f"{name}.intermediate.dense")
        wide = wide * 0.5 * (1 + np.vectorize(math.erf)(wide / math.sqrt(2)))
        x = norm(linear(wide, f"{name}.output.dense") + x, f"{name}.output.LayerNorm")
    mean = x.mean(0)
    return np.asarray(mean / np.sqrt((mean**2).sum()))


SENTENCES = ["The cat sleeps.", "a cat", "Sleeping, the café! #語", "", "the the the the cat cat sleeps unsleeping ."]


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN", "OPENCL"])
def test_the_vectors_agree_with_float64(minilm: Any, folder: Path, device: str) -> None:
    weights, tokenizer = minilm.read_safetensors(folder / "model.safetensors"), minilm.Tokenizer.read(folder)
    assert set(weights) == set(shapes())
    compiled = dovetail.Core().compile_model(minilm.build(weights, minilm.Size.read(folder)), device)
    expected = np.stack([in_float64(weights, tokenizer.numbers(sentence)) for sentence in SENTENCES])
    for batch in (2, 32) if device == "NUMPY" else (32,):
        got = minilm.embed(compiled, tokenizer, SENTENCES, batch)
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, expected, atol=1e-4, rtol=0)
    assert minilm.embed(compiled, tokenizer, []).size == 0


@pytest.mark.parametrize(
    ("sentence", "pieces"),
    [
        ("The cat sleeps.", ["the", "cat", "sleep", "##s", "."]),
        ("CAFÉ!", ["cafe", "!"]),
        ("unsleeping dogs", ["un", "##sleep", "##ing", "[UNK]"]),
        ("a語a\u200b\t a", ["a", "語", "a", "a"]),
        ("", []),
        ("x" * 101, ["[UNK]"]),
    ],
)
def test_words_are_cut_as_in_bert(minilm: Any, folder: Path, sentence: str, pieces: list[str]) -> None:
    tokenizer = minilm.Tokenizer.read(folder)
    numbers = tokenizer.numbers(sentence)
    assert [WORDS[n] for n in numbers] == ["[CLS]", *pieces, "[SEP]"]
    assert tokenizer.numbers("a " * 50, longest=8) == [2, *[9] * 6, 3]


def test_padding_is_masked(minilm: Any, folder: Path) -> None:
    batch = minilm.Tokenizer.read(folder).batch(["a cat", "a"])
    assert batch["input_ids"].tolist() == [[2, 9, 5, 3], [2, 9, 3, 0]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]


def test_the_script_finds_the_sentence_itself(folder: Path, tmp_path: Path) -> None:
    known = tmp_path / "known.txt"
    known.write_text("the cat sleeps\na cafe !\n\nsleeping . . .\n")
    command = [sys.executable, str(HERE / "search.py"), "A café!", "-d", "NUMPY", "--top", "2"]
    done = subprocess.run(
        [*command, "--model", str(folder), "--sentences", str(known)], capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("3 sentences in ")
    assert lines[0].endswith(" on NUMPY")
    assert lines[2:4] == ["A café!", "  1.000  a cafe !"]
    assert len(lines) == 5


def test_the_sentences() -> None:
    lines = (HERE / "sentences.txt").read_text(encoding="utf-8").splitlines()
    assert len(lines) == len(set(lines)) >= 200
    assert all(line.strip() == line for line in lines)
