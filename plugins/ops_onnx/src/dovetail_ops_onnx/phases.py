"""Transposed convolutions as convolutions of stride 1: the arithmetic that devices share."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail_ops_onnx.spatial import ConvGeometry

__all__ = ["Phases", "phase_weights"]

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Phases:
    """The phases of a transposed convolution without dilations, of geometry `g`.

    Element o of an axis of the result, its pads included, is made of kernel elements q * stride + o % stride, at input elements
    o // stride - q. So all elements of one remainder, a phase, are a convolution of stride 1 with `taps` kernel elements an axis.
    One convolution gives all phases, [N, groups * phases * M, *positions].
    """

    g: ConvGeometry

    @property
    def taps(self) -> tuple[int, ...]:
        """The longest phase's kernel elements along each axis."""
        return _taps(self.g.kernel, self.g.strides)

    @property
    def positions(self) -> tuple[int, ...]:
        """Results of the convolution along each axis, with pads of `taps` - 1 on both sides."""
        return tuple(i + t - 1 for i, t in zip(self.g.input, self.taps, strict=True))

    @property
    def count(self) -> int:
        """The number of phases."""
        return math.prod(self.g.strides)

    @property
    def is_filled(self) -> bool:
        """Whether all phases have as many kernel elements."""
        return all(k % s == 0 for k, s in zip(self.g.kernel, self.g.strides, strict=True))


def phase_weights(wei: Array, strides: Sequence[int], groups: int = 1) -> Array:
    """Weights [groups * phases * M, C, *taps] of the convolution, from those of the transposed one, [groups * C, M, *kernel].

    In each group phase after phase, in row-major order of the remainders; kernels backwards, with zeros where a phase is shorter.
    """
    kernel, maps = wei.shape[2:], wei.shape[1]
    rank, taps = len(kernel), _taps(kernel, strides)
    channels = wei.shape[0] // groups
    filled = np.zeros((groups, channels, maps, *(t * s for t, s in zip(taps, strides, strict=True))), wei.dtype)
    own: Any = (..., *(slice(k) for k in kernel))
    filled[own] = wei.reshape(groups, channels, maps, *kernel)
    split = filled.reshape(groups, channels, maps, *itertools.chain(*zip(taps, strides, strict=True)))
    order = (0, *range(4, 4 + 2 * rank, 2), 2, 1, *range(3, 3 + 2 * rank, 2))
    backwards: Any = (..., *(slice(None, None, -1),) * rank)
    return np.ascontiguousarray(split.transpose(order)[backwards]).reshape(groups * math.prod(strides) * maps, channels, *taps)


def _taps(kernel: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    return tuple(-(-k // s) for k, s in zip(kernel, strides, strict=True))
