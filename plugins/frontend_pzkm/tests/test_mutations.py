"""Files changed at random, by a fixed seed: read, or refused with an error of our own, and in little memory.

A longer run: `DOVETAIL_MUTATIONS=100000 DOVETAIL_SEED=1 pytest plugins/frontend_pzkm/tests/test_mutations.py`.
"""

import os
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.errors import DovetailError
from dovetail_frontend_pzkm.wire import write_tables

MUTATIONS = int(os.environ.get("DOVETAIL_MUTATIONS", "800"))
"""In all, over four kinds of change and two files."""

SEED = int(os.environ.get("DOVETAIL_SEED", "2026"))

Mutate = Callable[[bytes, np.random.Generator], bytes]


def _flip(content: bytes, rng: np.random.Generator) -> bytes:
    changed = bytearray(content)
    for position in rng.integers(0, len(content), rng.integers(1, 4)):
        changed[position] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def _overwrite(content: bytes, rng: np.random.Generator) -> bytes:
    """Four bytes, aligned as offsets and lengths are, become a number that is small, large, or near the file's size."""
    position = 4 * int(rng.integers(len(content) // 4))
    number = [0, 1, 2**31, 2**32 - 1, len(content), int(rng.integers(len(content))), int(rng.integers(2**32))][rng.integers(7)]
    return content[:position] + number.to_bytes(4, "little") + content[position + 4 :]


def _splice(content: bytes, rng: np.random.Generator) -> bytes:
    start, end, target = sorted(int(i) for i in rng.integers(0, len(content), 3))
    return content[:target] + content[start:end] + content[target:]


def _cut(content: bytes, rng: np.random.Generator) -> bytes:
    start = int(rng.integers(len(content)))
    return content[:start] + content[start + int(rng.integers(1, 40)) :]


def _everything(files: Any) -> Any:
    """Several layer types with text, vectors, floats and other data types."""
    tensors = [
        files.tensor(0, (1, 4, 6, 6), "x"),
        files.tensor(1, np.ones((2, 4, 1, 1), np.float32), "w"),
        *(files.tensor(i, (1, 2, 6, 6)) for i in (2, 3)),
        files.tensor(4, (1, 6, 6, 2)),
        files.tensor(5, (1, 36, 2), "r", pad=False),
        files.tensor(6, (1, 2, 2), "s", pad=False),
        files.tensor(7, np.arange(4, dtype=np.int8), "unused"),
    ]
    layers = [
        files.layer("StridedSliceLayer", {"input": 5}, [6], "cut", 4, begin=[0, 0, 0], end=[1, 36, 2], stride=[1, 18, 1]),
        files.layer("Convolution2dLayer", {"input": 0, "weights": 1}, [2], "conv", 0, dataLayout="NCHW"),
        files.layer("ActivationLayer", {"input": 2}, [3], "act", 1, activationFunction="BoundedReLu", a=6.0, b=0.0),
        files.layer("PermuteLayer", {"input": 3}, [4], "turn", 2, dimMappings="0,3,1,2"),
        files.layer("ReshapeLayer", {"input": 4}, [5], "shape", 3, targetShape=[1, 36, 2]),
    ]
    return files.model(tensors, layers, [0], [6])


@pytest.mark.parametrize("mutate", [_flip, _overwrite, _splice, _cut], ids=lambda f: f.__name__.strip("_"))
@pytest.mark.parametrize("which", ["network", "everything"])
def test_mutations(files: Any, core: dovetail.Core, which: str, mutate: Mutate) -> None:
    content = write_tables(files.network(size=16) if which == "network" else _everything(files))
    core.compile_model(core.read_model(content, format="pzkm"), "NUMPY")  # as it is, it is fine
    rng = np.random.default_rng(SEED)
    refused = []
    tracemalloc.start()
    for _ in range(max(1, MUTATIONS // 8)):
        message = _refusal(core, mutate(content, rng))
        refused += [message] if message else []
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(refused) > MUTATIONS / 8 / 10
    assert all(message.replace("\n", "").isprintable() for message in refused)
    assert peak < 4 * len(content) + 256 * 2**20


def _refusal(core: dovetail.Core, content: bytes) -> str:
    """The message when reading or compiling is refused, or `""`. Anything but a DovetailError passes through."""
    try:
        core.compile_model(core.read_model(content, format="pzkm"), "NUMPY", {"MEMORY_LIMIT": 2**26})
    except DovetailError as error:
        return str(error)
    return ""
