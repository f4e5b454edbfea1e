"""Transposed convolutions as one convolution for all phases: against the definition, element by element, in float64."""

import itertools
from typing import Any

import numpy as np
import pytest

from dovetail_ops_onnx.phases import Phases, phase_weights
from dovetail_ops_onnx.spatial import conv_transpose_geometry

SIZES = [
    ((7,), (4,), (2,), 1),
    ((5,), (3,), (2,), 2),
    ((1,), (1,), (3,), 1),
    ((3, 4), (4, 6), (2, 3), 1),
    ((2, 3), (5, 2), (3, 2), 3),
    ((2, 1, 3), (2, 3, 4), (2, 1, 3), 2),
]


@pytest.mark.parametrize(("size", "kernel", "strides", "groups"), SIZES)
def test_one_convolution_gives_all_phases(size: Any, kernel: Any, strides: Any, groups: int, rng: np.random.Generator) -> None:
    channels, maps = 3, 2
    x, wei = rng.normal(size=(groups * channels, *size)), rng.normal(size=(groups * channels, maps, *kernel))
    phases = Phases(conv_transpose_geometry(size, kernel, strides=strides))
    assert phases.is_filled == all(k % s == 0 for k, s in zip(kernel, strides, strict=True))
    found = _interleaved(phases, _convolve(phases, x, phase_weights(wei, strides, groups), groups), groups, maps)
    np.testing.assert_allclose(found[(..., *map(slice, phases.g.output))], _transposed(phases, x, wei, groups), atol=1e-12)


def _transposed(phases: Phases, x: Any, wei: Any, groups: int) -> Any:
    """[groups * M, *output] of x [groups * C, *input]: each input element adds to a window of results."""
    g, (maps, channels) = phases.g, (wei.shape[1], len(x) // groups)
    result = np.zeros((groups * maps, *g.output))
    for group, i, k in itertools.product(range(groups), np.ndindex(*g.input), np.ndindex(*g.kernel)):
        own = slice(group * channels, (group + 1) * channels)
        place = tuple(a * s + b for a, s, b in zip(i, g.strides, k, strict=True))
        result[(slice(group * maps, (group + 1) * maps), *place)] += x[(own, *i)] @ wei[(own, slice(None), *k)]
    return result


def _convolve(phases: Phases, x: Any, wei: Any, groups: int) -> Any:
    """[len(wei), *positions]: a convolution of stride 1 with pads of taps - 1 on both sides."""
    padded = np.pad(x, [(0, 0), *((t - 1, t - 1) for t in phases.taps)])
    grouped = padded.reshape(groups, -1, *padded.shape[1:])
    result = np.zeros((len(wei), *phases.positions))
    for o in np.ndindex(*phases.positions):
        window = grouped[(..., *(slice(a, a + t) for a, t in zip(o, phases.taps, strict=True)))].reshape(groups, -1)
        result[(..., *o)] = (wei.reshape(groups, len(wei) // groups, -1) @ window[..., None]).reshape(-1)
    return result


def _interleaved(phases: Phases, found: Any, groups: int, maps: int) -> Any:
    """[groups * M, *(positions * strides)] of [groups * phases * M, *positions]."""
    by_phase = found.reshape(groups, phases.count, maps, *phases.positions)
    result = np.zeros((groups, maps, *(p * s for p, s in zip(phases.positions, phases.g.strides, strict=True))))
    for number, phase in enumerate(np.ndindex(*phases.g.strides)):
        result[(..., *(slice(a, None, s) for a, s in zip(phase, phases.g.strides, strict=True)))] = by_phase[:, number]
    return result.reshape(groups * maps, *result.shape[2:])
