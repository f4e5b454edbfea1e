"""Conv: as one matrix product, as shifted multiply-adds, or as matrix products with bands, over windows or over shifted rows."""

import math
from collections.abc import Iterable
from functools import partial

import numpy as np

from dovetail.device import Reason, Refusal, TypedNode
from dovetail_cpu_numpy.kernel import Call
from dovetail_cpu_numpy.kernels._banded import Banded
from dovetail_cpu_numpy.kernels._conv import ConvKernel, Sizes
from dovetail_cpu_numpy.kernels._depthwise import Depthwise
from dovetail_cpu_numpy.kernels._rows import ShiftedRows
from dovetail_cpu_numpy.kernels._windows import Windows
from dovetail_cpu_numpy.launch import Launch


class Pointwise(ConvKernel):
    """A 1x1 convolution of stride 1: dst [maps, pixels] = wei [maps, channels] @ src [channels, pixels], nothing copied."""

    name = "pointwise"

    def refuse_sizes(self, node: TypedNode, sizes: Sizes) -> Refusal | None:
        return None if sizes.geometry.is_pointwise else Refusal(Reason.ATTRIBUTE, "not 1x1 with stride 1")

    def bind(self, call: Call) -> Iterable[Launch]:
        s, dst = Sizes.of(call.node), call.outputs[0]
        if not dst.size:
            return
        pixels = math.prod(s.geometry.output)
        if s.groups == 1 and pixels == 1:
            src = call.input(0).reshape(s.images, s.channels)
            yield partial(np.matmul, src, call.input(1).reshape(s.maps, s.channels).T, dst.reshape(s.images, s.maps))
            return
        lead = (s.images,) if s.groups == 1 else (s.images, s.groups)
        wei = call.input(1).reshape(*lead[1:], s.maps, s.channels)
        yield partial(np.matmul, wei, call.input(0).reshape(*lead, s.channels, pixels), dst.reshape(*lead, s.maps, pixels))


KERNELS = (Pointwise(), Banded(), Depthwise(), Windows(), ShiftedRows())
