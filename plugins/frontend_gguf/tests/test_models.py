"""Models of each architecture against the reference in float64: whole prompts, token by token, several texts at once."""

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail_frontend_gguf import operators
from dovetail_frontend_gguf.formats import FORMATS
from dovetail_frontend_gguf.grids import grid

ROOM = 12
TEXT = [3, 41, 7, 0, 49, 12, 7]

AFTER = {"post_attention_norm.weight": (64,), "post_ffw_norm.weight": (64,)}
FACTORS = {"rope_factors_short.weight": (4,), "rope_factors_long.weight": (4,)}

MODELS: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama_output": {"tensors": {"output.weight": (50, 64)}, "facts": {"rope.freq_base": 500.0}},
    "llama_linear": {"facts": {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}},
    "llama_factors": {"tensors": {"rope_freqs.weight": (8,)}},
    "qwen2": {"biases": True},
    "qwen3": {"norms": True},
    "gemma": {},
    "llama_yarn": {
        "facts": {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 64}
    },
    "gemma2": {"layers": 3, "each": AFTER, "facts": {"attention.sliding_window": 3, "attn_logit_softcapping": 1.5}},
    "gemma3": {"layers": 7, "each": AFTER, "norms": True, "facts": {"attention.sliding_window": 3, "rope.freq_base": 500.0}},
    "gemma3_linear": {
        "layers": 7,
        "each": AFTER,
        "norms": True,
        "facts": {"attention.sliding_window": 3, "rope.scaling.type": "linear", "rope.scaling.factor": 4.0},
    },
    "granite": {
        "facts": {"embedding_scale": 12.0, "residual_scale": 0.3, "logit_scale": 4.0, "attention.scale": 0.1},
        "tensors": {"output.weight": (50, 64)},
    },
    "olmo2": {
        "layers": 5,
        "each": {**AFTER, "attn_q_norm.weight": (64,), "attn_k_norm.weight": (32,)},
        "without": (".attn_norm.weight", ".ffn_norm.weight"),
        "facts": {
            "attention.sliding_window": 3,
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 4.0,
            "rope.scaling.original_context_length": 64,
            "rope.scaling.attn_factor": 1.2,
        },
    },
    "phi3": {
        "each": {"attn_qkv.weight": (128, 64), "ffn_up.weight": (192, 64)},
        "tensors": FACTORS,
        "without": ("attn_q.weight", "attn_k.weight", "attn_v.weight", "ffn_gate.weight"),
        "facts": {
            "rope.dimension_count": 8,
            "attention.sliding_window": 3,
            "rope.scaling.attn_factor": 1.2,
            "rope.scaling.original_context_length": 16,
        },
    },
    "smollm3": {"layers": 5},
}


def _mask(*counts: int) -> Any:
    return (np.arange(ROOM) < np.array(counts)[:, None]).astype(np.int64)


def _compiled(core: Any, path: Any, texts: int = 1, device: str = "NUMPY") -> Any:
    return core.compile_model(core.read_model(path).reshape({"attention_mask": (texts, ROOM)}), device)


@pytest.mark.parametrize("name", MODELS)
def test_logits(core: Any, write: Any, reference: Any, name: str) -> None:
    path = write(name.partition("_")[0], **MODELS[name])
    model = reference(path)
    want = [model.step(token) for token in TEXT]
    with _compiled(core, path) as compiled:
        request = compiled.create_infer_request()
        found = request.infer({"input_ids": [TEXT[:4]], "attention_mask": _mask(4)})["logits"]
        assert found.shape == (1, 1, 50)
        np.testing.assert_allclose(found[0, 0], want[3], rtol=1e-4, atol=1e-4)
        for at in range(4, len(TEXT)):
            found = request.infer({"input_ids": [[TEXT[at]]], "attention_mask": _mask(at + 1)})["logits"]
            np.testing.assert_allclose(found[0, 0], want[at], rtol=1e-4, atol=1e-4)
        assert len(compiled.plans) == 2


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN", "OPENCL"])
def test_texts_of_several_lengths(core: Any, write: Any, reference: Any, device: str) -> None:
    path, texts = write(), [TEXT[:5], TEXT[2:4]]
    want = []
    for text in texts:
        model = reference(path)
        steps = [model.step(token) for token in [*text, 9]]
        want.append([steps[len(text) - 1], steps[len(text)]])
    with _compiled(core, path, 2, device) as compiled:
        request = compiled.create_infer_request()
        filled = np.array([texts[0], [*texts[1], 8, 8, 8]])
        prompts = request.infer({"input_ids": filled, "attention_mask": _mask(5, 2)})["logits"][:, 0]
        later = request.infer({"input_ids": [[9], [9]], "attention_mask": _mask(6, 3)})["logits"][:, 0]
        np.testing.assert_allclose(np.stack((prompts, later), 1), want, rtol=1e-4, atol=1e-4)


def test_factors_of_long_texts(core: Any, write: Any) -> None:
    path = write(**{"name": "phi3", **MODELS["phi3"]})
    feeds, texts = {"input_ids": [TEXT[:4]]}, []
    for room in (16, 17):
        model = core.read_model(path).reshape({"attention_mask": (1, room)})
        with core.compile_model(model, "NUMPY") as compiled:
            mask = (np.arange(room) < 4).astype(np.int64)[None]
            texts.append(compiled.create_infer_request().infer({**feeds, "attention_mask": mask})["logits"])
    assert not np.allclose(texts[0], texts[1])


def test_a_prompt_in_parts_that_overlap(core: Any, write: Any, reference: Any) -> None:
    path = write()
    model = reference(path)
    want = [model.step(token) for token in TEXT][-1]
    with _compiled(core, path) as compiled:
        request = compiled.create_infer_request()
        request.infer({"input_ids": [TEXT[:4]], "attention_mask": _mask(4)})
        found = request.infer({"input_ids": [TEXT[3:]], "attention_mask": _mask(7)})["logits"]
        np.testing.assert_allclose(found[0, 0], want, rtol=1e-4, atol=1e-4)


def test_a_file_is_mapped_and_pickles(core: Any, write: Any) -> None:
    path = write()
    model = core.read_model(path)
    arrays = [a for name, a in model.graph.constants.items() if name.startswith("blk.0.attn_q")]
    assert arrays
    for array in arrays:
        assert not array.flags.owndata
        assert "mmap" in type(array.base.base.obj if isinstance(array.base.base, memoryview) else array.base.base).__module__
    copy = pickle.loads(pickle.dumps(model))
    whole = core.read_model(path.read_bytes(), format="gguf")
    assert copy.metadata == whole.metadata == model.metadata
    assert model.metadata["general.architecture"] == "llama"
    assert model.inputs.keys() == {"input_ids", "attention_mask"}
    assert model.outputs == ("logits",)


def test_formats_are_those_of_gguf() -> None:
    import gguf

    for code, kind in FORMATS.items():
        found = gguf.GGMLQuantizationType(code)
        assert (found.name, gguf.GGML_QUANT_SIZES[found]) == (kind.name, (kind.elements, kind.nbytes))


@pytest.mark.parametrize("code", FORMATS, ids=lambda code: FORMATS[code].name)
def test_decoding_agrees_with_gguf(rng: Any, code: int) -> None:
    import gguf

    from dovetail_frontend_gguf.cases import random_rows

    rows = random_rows(rng, FORMATS[code], 7, 512)
    want = gguf.quants.dequantize(rows, gguf.GGMLQuantizationType(code))
    np.testing.assert_array_equal(FORMATS[code].read(rows).floats(), want.reshape(7, 512))


@pytest.mark.parametrize("name", ["iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s"])
def test_grids_are_those_of_gguf(name: str) -> None:
    import gguf

    kind = getattr(gguf.quants, name.upper())
    kind.init_grid()
    np.testing.assert_array_equal(grid(name), kind.grid.reshape(kind.grid_shape))


def test_tokens_that_the_model_does_not_have(core: Any, write: Any) -> None:
    with _compiled(core, write()) as compiled, pytest.raises(dovetail.DovetailError, match=r"take_rows.*accepted: 0 to 49"):
        compiled.create_infer_request().infer({"input_ids": [[50]], "attention_mask": _mask(1)})


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="only Linux lists the pages of a mapping")
def test_memory_of_a_mapped_file_is_given_back(core: Any, write: Any) -> None:
    path = write(wide=2**15)
    model = core.read_model(path).reshape({"attention_mask": (1, ROOM), "input_ids": (1, 1)})
    matrices = {name: array for name, array in model.graph.constants.items() if array.size > 2**19}
    before, resident = {name: array.copy() for name, array in matrices.items()}, _resident(path)
    assert resident > 8e6
    with core.compile_model(model, "NUMPY"):
        # What is left are matrices of float32, which are used where they are.
        assert _resident(path) < resident * 0.6
    for name, array in matrices.items():
        np.testing.assert_array_equal(array, before[name])


def _resident(path: Path) -> int:
    """The bytes of a mapped file that are in memory."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    found = 0
    for line in lines:
        if line.endswith(str(path)):
            found += next(int(one.split()[1]) * 1024 for one in lines if one.startswith("Rss:"))
    return found


def test_logits_of_several_tokens(core: Any, write: Any, reference: Any) -> None:
    path = write()
    model = reference(path)
    want = [model.step(token) for token in TEXT]
    with _compiled(core, path) as compiled:
        request = compiled.create_infer_request()
        request.infer({"input_ids": [TEXT[:4]], "attention_mask": _mask(4)})
        asked = {"input_ids": [TEXT[4:]], "attention_mask": _mask(7), "tokens_back": [2, 1, 0]}
        for _ in range(2):
            np.testing.assert_allclose(request.infer(asked)["logits"][0], want[4:], rtol=1e-4, atol=1e-4)
        found = request.infer({"input_ids": [TEXT[6:]], "attention_mask": _mask(7)})["logits"]
        np.testing.assert_allclose(found[0, 0], want[6], rtol=1e-4, atol=1e-4)


def test_single_rows_give_their_memory_back_now_and_then(core: Any, write: Any, monkeypatch: Any) -> None:
    released: list[int] = []
    monkeypatch.setattr(operators, "release", lambda rows: released.append(len(rows)))
    with _compiled(core, write("llama")) as compiled:
        request = compiled.create_infer_request()
        request.infer({"input_ids": [[3]], "attention_mask": _mask(1)})
        released.clear()
        for _ in range(32):
            request.infer({"input_ids": [[3]], "attention_mask": _mask(1)})
    assert released == [50, 50]


def test_models_without_bfloat16_need_no_ml_dtypes(write: Any) -> None:
    program = f"import sys, dovetail; dovetail.Core().read_model({str(write('llama'))!r}); print('ml_dtypes' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
