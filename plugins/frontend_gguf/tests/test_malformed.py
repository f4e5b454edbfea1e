"""Malformed files, each refused with what is wrong; and files changed at random.

A longer run: `DOVETAIL_MUTATIONS=100000 DOVETAIL_SEED=1 pytest plugins/frontend_gguf/tests/test_malformed.py`.
"""

import os
import struct
import tracemalloc
from typing import Any

import gguf
import numpy as np
import pytest

from dovetail.errors import DovetailError, FormatError

MUTATIONS = int(os.environ.get("DOVETAIL_MUTATIONS", "120"))
SEED = int(os.environ.get("DOVETAIL_SEED", "2026"))


def _string(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def _file(pairs: list[bytes], tensors: list[bytes], tail: int = 256) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs)) + b"".join(pairs) + b"".join(tensors)
    return head + bytes(-len(head) % 32 + tail)


def _text(key: str, value: str) -> bytes:
    return _string(key) + struct.pack("<I", 8) + _string(value)


def _tensor(name: str, dims: tuple[int, ...], code: int = 0, offset: int = 0) -> bytes:
    return _string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, code, offset)


LLAMA = _text("general.architecture", "llama")
CONTAINERS = {
    "version": (b"GGUF" + struct.pack("<IQQ", 9, 0, 0), "GGUF of version 9; accepted: 2, 3"),
    "big_endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "another order of bytes"),
    "older": (b"ggjt" + bytes(40), "before GGUF"),
    "many_tensors": (b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0), "declares 1152921504606846976 tensors"),
    "many_pairs": (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**60), "metadata, more than its 24 bytes can hold"),
    "long_string": (_file([struct.pack("<Q", 2**63) + b"x"], [], 0), "the file ends in a key: 9223372036854775808 bytes"),
    "long_array": (_file([_string("a") + struct.pack("<IIQ", 9, 4, 2**61)], []), "values of 'a', more than"),
    "value_type": (_file([_string("a") + struct.pack("<I", 77)], []), "value of 'a' is of type 77"),
    "nested": (_file([_string("a") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 9], []), "arrays 4 deep"),
    "not_text": (_file([struct.pack("<Q", 2) + b"\xff\xfe"], []), "a key at byte 32 is not UTF-8"),
    "same_key": (_file([LLAMA, LLAMA], []), "'general.architecture' is there twice"),
    "rank": (_file([LLAMA], [_tensor("w", (1,) * 5)]), "tensor 'w' has 5 dimensions"),
    "unknown_format": (_file([LLAMA], [_tensor("w", (32,), 4)]), "'w' is of the type 4; accepted: F32, F16, Q4_0"),
    "part_of_a_block": (_file([LLAMA], [_tensor("w", (40,), 2)]), "Q4_0 has blocks of 32"),
    "no_elements": (_file([LLAMA], [_tensor("w", (0,))]), r"dimensions \[0\]"),
    "enormous": (_file([LLAMA], [_tensor("w", (2**62, 2**62))]), "dimensions"),
    "past_the_end": (_file([LLAMA], [_tensor("w", (64, 2))]), "512 bytes from byte"),
    "offset": (_file([LLAMA], [_tensor("w", (2,), 0, 2**63)]), "inside of the file"),
    "unaligned": (_file([LLAMA], [_tensor("w", (2,), 0, 4)]), "from a multiple of 32 on"),
    "same_tensor": (_file([LLAMA], [_tensor("w", (2,)), _tensor("w", (2,))]), "'w' is there twice"),
    "alignment": (_file([_text("general.alignment", "x")], []), "general.alignment is 'x'"),
    "no_architecture": (_file([], []), "the architecture is 'None'"),
    "another_architecture": (_file([_text("general.architecture", "bert")], []), "'bert'; accepted: llama, qwen2, qwen3, gemma"),
    "no_sizes": (_file([LLAMA], []), "'llama.embedding_length' is None"),
}


@pytest.mark.parametrize("which", CONTAINERS)
def test_files_that_are_wrong(core: Any, tmp_path: Any, which: str) -> None:
    content, message = CONTAINERS[which]
    path = tmp_path / "wrong.gguf"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=message) as caught:
        core.read_model(path)
    assert str(caught.value).count("wrong.gguf") == 1
    with pytest.raises(FormatError, match=message):
        core.read_model(content, format="gguf")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"facts": {"rope.scaling.type": "dynamic"}}, "the scaling of rotations is 'dynamic'"),
        ({"facts": {"expert_count": 8.0}}, "'llama.expert_count' is 8.0"),
        ({"facts": {"attention.key_length": -1.0}}, "'llama.attention.key_length' is -1.0"),
        ({"facts": {"rope.freq_base": float("nan")}}, "'llama.rope.freq_base' is nan"),
        ({"tensors": {"output_norm.weight": (60,)}}, r"'output_norm.weight' has dimensions \[60\]; accepted: \[64, 1\]"),
        ({"tensors": {"output.weight": (50, 32)}}, r"'output.weight' has dimensions \[32, 50\]"),
    ],
)
def test_models_that_are_wrong(core: Any, write: Any, changes: Any, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        core.read_model(write(**changes))


@pytest.mark.parametrize("part", [b"blk.1.ffn_up.weight", b"output_norm.weight", b"token_embd.weight"])
def test_tensors_that_are_missing(core: Any, write: Any, part: bytes) -> None:
    content = write().read_bytes().replace(part, part[::-1])
    with pytest.raises(FormatError, match=f"the tensor '{part.decode()}' is missing"):
        core.read_model(content, format="gguf")


def test_a_scale_that_is_infinite_gives_no_warning(core: Any, write: Any) -> None:
    path = write()
    start = next(one.data_offset for one in gguf.GGUFReader(path).tensors if one.name == "output_norm.weight")
    content = bytearray(path.read_bytes())
    kind = content.index(b"output_norm.weight") + len(b"output_norm.weight") + 4 + 8
    assert content[kind : kind + 4] == struct.pack("<I", 0)
    content[kind : kind + 4] = struct.pack("<I", 2)  # Q4_0
    content[start : start + 36] = (struct.pack("<e", np.inf) + b"\x88" * 16) * 2
    assert core.read_model(bytes(content), format="gguf").outputs  # warnings are errors in tests


def test_a_file_that_is_cut_off(core: Any, write: Any) -> None:
    content = write().read_bytes()
    for size in range(1, len(content), len(content) // 40):
        with pytest.raises(FormatError):
            core.read_model(content[:size], format="gguf")


@pytest.mark.parametrize("kind", ["bits", "numbers", "cuts"])
def test_mutations(core: Any, write: Any, kind: str) -> None:
    content = write().read_bytes()
    rng, head, refused = np.random.default_rng(SEED), content.index(b"blk.1.ffn_down") + 60, list[str]()
    tracemalloc.start()
    for _ in range(max(1, MUTATIONS // 3)):
        changed = bytearray(content)
        at = int(rng.integers(head))
        if kind == "bits":
            changed[at] ^= 1 << int(rng.integers(8))
        elif kind == "numbers":
            changed[at : at + 4] = [0, 1, 2**31, 2**32 - 1, int(rng.integers(2**32))][rng.integers(5)].to_bytes(4, "little")
        else:
            del changed[at : at + int(rng.integers(1, 40))]
        refused.append(_refusal(core, bytes(changed)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sum(map(bool, refused)) > MUTATIONS / 3 / 10
    assert all(message.replace("\n", "").isprintable() for message in refused)
    assert peak < 4 * len(content) + 256 * 2**20


def _refusal(core: Any, content: bytes) -> str:
    """The message when reading or compiling is refused, or `""`. Anything but a DovetailError passes through."""
    try:
        model = core.read_model(content, format="gguf").reshape({"attention_mask": (1, 8), "input_ids": (1, 2)})
        core.compile_model(model, "NUMPY", {"MEMORY_LIMIT": 2**26}).close()
    except DovetailError as error:
        return str(error)
    return ""
