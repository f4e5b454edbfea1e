"""DecoderMaskedMultiHeadAttention against onnxruntime: caches that share a buffer, beams, another sequence."""

from typing import Any

import numpy as np
import pytest

from dovetail.errors import OperatorError
from dovetail_ops_onnxruntime_contrib.decoder_masked_attention import DecoderMaskedMultiHeadAttention

ROWS, HEADS, SIZE, PAST, ROOM = 4, 3, 4, 5, 9
HIDDEN = HEADS * SIZE
OP = "DecoderMaskedMultiHeadAttention"


def _floats(rng: np.random.Generator, *shape: int) -> Any:
    return rng.standard_normal(shape).astype(np.float32)


def _arrays(rng: np.random.Generator) -> list[Any]:
    """Query, key, value, mask, bias of the scores, caches, their length, beams, whose keys they are, bias of the projections."""
    sides = [_floats(rng, ROWS, 1, HIDDEN) for _ in range(3)]
    caches = [_floats(rng, ROWS, HEADS, ROOM, SIZE) for _ in range(2)]
    return [*sides, None, None, *caches, np.array([PAST], np.int32), None, None, None]


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
@pytest.mark.parametrize("name", ["plain", "mask", "scores", "bias", "beams", "all"])
def test_caches_that_share_a_buffer(agree: Any, rng: np.random.Generator, name: str, device: str) -> None:
    arrays = _arrays(rng)
    if name in ("mask", "all"):
        arrays[3] = rng.integers(0, 2, (ROWS, PAST + 1)).astype(np.int32)
        arrays[3][:, 0] = 1
    if name in ("scores", "all"):
        arrays[4] = _floats(rng, 1, HEADS, 1, PAST + 1)
    if name in ("bias", "all"):
        arrays[10] = _floats(rng, 3 * HIDDEN)
    if name in ("beams", "all"):
        arrays[8], arrays[9] = np.array([2], np.int32), rng.integers(0, 2, (2, 2, ROOM)).astype(np.int32)
        arrays[9][..., PAST:] = 77  # not in use
    while arrays[-1] is None:
        arrays.pop()
    for one in arrays[5:7]:
        one[:, :, PAST:] = 0
    agree(OP, arrays, outputs=3, num_heads=HEADS, past_present_share_buffer=1, scale=0.7, device=device)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("masked", [True, False])
def test_another_sequence(agree: Any, rng: np.random.Generator, bias: bool, masked: bool) -> None:
    arrays = [_floats(rng, ROWS, 1, HIDDEN), *(_floats(rng, ROWS, HEADS, 7, SIZE) for _ in range(2)), *[None] * 8]
    arrays[3] = rng.integers(0, 2, (ROWS, 7)).astype(np.int32) if masked else None
    arrays[10] = _floats(rng, 3 * HIDDEN) if bias else None
    while arrays[-1] is None:
        arrays.pop()
    agree(OP, arrays, num_heads=HEADS)


def test_the_products_of_queries_and_keys_are_refused() -> None:
    with pytest.raises(OperatorError, match="'output_qk' is set"):
        DecoderMaskedMultiHeadAttention(num_heads=2, output_qk=True)
