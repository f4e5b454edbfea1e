"""LSTM."""

from collections.abc import Sequence
from functools import partial
from itertools import repeat

import numpy as np

from dovetail_cpu_numpy.kernel import Call
from dovetail_cpu_numpy.kernels._recurrent import StepsKernel, product, sigmoid
from dovetail_cpu_numpy.launch import Array, Launch


class Lstm(StepsKernel):
    """The gates i, o, f and the cell input c are adjacent in memory: one product and one sigmoid for three gates a step."""

    gates = 4
    states = 2

    def steps(
        self,
        xs: Array,
        ys: Array | None,
        state: Sequence[Array],
        R: Array,
        Rb: Array | None,
        gates: Array,
        spare: Array,
        call: Call,
    ) -> Launch:
        h, c = state
        i, o, f, new = np.split(gates, 4, axis=1)
        first = product(h, R, gates)
        rest: tuple[Launch, ...] = (
            *sigmoid(gates[:, : 3 * h.shape[1]]),
            partial(np.tanh, new, new),
            partial(np.multiply, c, f, c),
            partial(np.multiply, i, new, spare),
            partial(np.add, c, spare, c),
            partial(np.tanh, c, spare),
            partial(np.multiply, o, spare, h),
        )

        def run() -> None:
            # `repeat` has no end.
            for x, y in zip(xs, repeat(h) if ys is None else ys, strict=False):
                first()
                np.add(gates, x, gates)
                for launch in rest:
                    launch()
                np.copyto(y, h)

        return run


KERNELS = (Lstm(),)
