"""Freed memory goes back to the system."""

import platform
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dovetail_generate import decoding
from dovetail_generate.memory import give_back_freed_memory

GLIBC = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has malloc_trim")


def _resident() -> int:
    """Bytes of this process that are in memory."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * 4096


@GLIBC
def test_freed_memory_goes_back() -> None:
    """Blocks behind which others are still used, which the C library keeps by itself."""
    arrays = [np.ones(4000) for _ in range(4000)]  # 128 MB in blocks of 32 kB
    kept = arrays[::100]
    arrays.clear()
    before = _resident()
    assert give_back_freed_memory()
    assert before - _resident() > 80_000_000
    assert all(array.all() for array in kept)


def test_memory_is_given_back_after_prompts_and_now_and_then(generator: Any, monkeypatch: Any) -> None:
    counts: list[int] = []
    written = [0]
    monkeypatch.setattr(decoding, "give_back_freed_memory", lambda: counts.append(written[0]))
    for number, _ in enumerate(generator.generate([[5] * 40], limit=70, ends=False), 1):
        written[0] = number
    assert counts[0] == 0  # the prompt
    assert len(counts) >= 2
    assert all(later - earlier <= 32 for earlier, later in pairwise(counts))
