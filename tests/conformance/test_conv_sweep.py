"""Conv on every device over kernel x stride x dilation x pads x groups x size, against a plain float64 implementation.

A seeded sample is the default; `DOVETAIL_EXHAUSTIVE=1` runs every configuration, `DOVETAIL_SEED` draws another sample.
"""

import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

import dovetail
from dovetail import GraphBuilder
from dovetail_ops_onnx.conv import Conv

pytestmark = pytest.mark.exhaustive(0.06, device="OPENCL")  # compiles programs

Array = NDArray[np.float32]

SEED = int(os.environ.get("DOVETAIL_SEED", "12"))
NODES = 24
"""Convolutions of one model: compiling is most of the time."""


@dataclass(frozen=True)
class Axis:
    """One spatial axis."""

    kernel: int
    stride: int
    dilation: int
    pads: tuple[int, int]
    size: int

    @property
    def output(self) -> int:
        return (self.size + sum(self.pads) - (self.kernel - 1) * self.dilation - 1) // self.stride + 1

    def reads(self, k: int) -> slice:
        """The elements of the padded input under kernel element k, one for each output element."""
        first = k * self.dilation
        return slice(first, first + (self.output - 1) * self.stride + 1, self.stride)


@dataclass(frozen=True)
class Config:
    """A convolution: groups of `channels` inputs and `maps` outputs, the spatial axes, and whether the weights are constant."""

    groups: int
    channels: int
    maps: int
    axes: tuple[Axis, ...]
    constant: bool

    @property
    def op(self) -> Conv:
        begins, ends = zip(*(a.pads for a in self.axes), strict=True)
        strides, dilations = zip(*((a.stride, a.dilation) for a in self.axes), strict=True)
        return Conv(strides=strides, dilations=dilations, pads=(*begins, *ends), group=self.groups)


AXES = [
    axis
    for values in itertools.product((1, 2, 3, 5), (1, 2, 3, 4), (1, 2, 3), ((0, 0), (1, 1), (0, 2)), (5, 8, 13))
    if (axis := Axis(*values)).output > 0
]
GROUPS = ((1, 3, 5), (1, 24, 4), (2, 2, 3), (6, 1, 1), (3, 1, 2))
"""(groups, channels and maps a group): shallow and deep products, groups, depthwise, and depthwise with a multiplier."""


def _configurations() -> list[Config]:
    """Each axis with each kind of groups as height; the width, whose turn it is to be one-dimensional too, is drawn."""
    rng = np.random.default_rng(SEED)
    found = []
    for axis, groups in itertools.product(AXES, GROUPS):
        width = (AXES[rng.integers(len(AXES))],) if rng.random() < 0.8 else ()
        found.append(Config(*groups, (axis, *width), bool(rng.integers(2))))
    if os.environ.get("DOVETAIL_EXHAUSTIVE") == "1":
        return found
    return [found[i] for i in rng.choice(len(found), 10 * NODES, replace=False)]


def _models() -> list[Sequence[Config]]:
    configurations = _configurations()
    return [configurations[first : first + NODES] for first in range(0, len(configurations), NODES)]


def _expected(config: Config, src: Array, wei: Array, bia: Array) -> NDArray[np.float64]:
    """The definition: the sum over kernel elements of strided views of the padded input, in float64."""
    images, groups = src.shape[0], config.groups
    padded = np.pad(src.astype(np.float64), [(0, 0), (0, 0), *(a.pads for a in config.axes)])
    padded = padded.reshape(images, groups, config.channels, *padded.shape[2:])
    kernel = wei.astype(np.float64).reshape(groups, config.maps, config.channels, *wei.shape[2:])
    total = np.zeros((images, groups, config.maps, *(a.output for a in config.axes)))
    for at in np.ndindex(*wei.shape[2:]):
        places = [a.reads(k) for a, k in zip(config.axes, at, strict=True)]
        total += np.einsum("ngc...,gmc->ngm...", padded[(..., *places)], kernel[(..., *at)])
    return total.reshape(images, groups * config.maps, *total.shape[3:]) + bia.reshape(-1, *[1] * len(config.axes))


@pytest.mark.parametrize("configurations", _models())
def test_convolutions(core: dovetail.Core, device: str, configurations: Sequence[Config]) -> None:
    rng = np.random.default_rng(SEED)
    g, feeds, want = GraphBuilder(), {}, {}
    for i, c in enumerate(configurations):
        src = rng.standard_normal((2, c.groups * c.channels, *(a.size for a in c.axes))).astype(np.float32)
        wei = rng.standard_normal((c.groups * c.maps, c.channels, *(a.kernel for a in c.axes))).astype(np.float32)
        bia = rng.standard_normal(c.groups * c.maps).astype(np.float32)
        x = g.input(f"x{i}", "float32", src.shape)
        w = g.constant(wei) if c.constant else g.input(f"w{i}", "float32", wei.shape)
        feeds |= {x: src} if c.constant else {x: src, w: wei}
        want[str(g.node(c.op, x, w, g.constant(bia), name=f"conv{i}"))] = _expected(c, src, wei, bia)
    with core.compile_model(g.model(list(want)), device) as compiled:
        got = compiled(feeds)
    for (name, expected), config in zip(want.items(), configurations, strict=True):
        assert got[name].shape == expected.shape, config
        np.testing.assert_allclose(got[name], expected, rtol=1e-4, atol=1e-4, err_msg=str(config))
