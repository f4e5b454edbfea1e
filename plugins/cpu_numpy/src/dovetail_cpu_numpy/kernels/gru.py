"""GRU."""

from collections.abc import Sequence
from functools import partial
from itertools import repeat

import numpy as np

from dovetail.device import TypedNode
from dovetail_cpu_numpy.kernel import Call
from dovetail_cpu_numpy.kernels._recurrent import StepsKernel, product, sigmoid
from dovetail_cpu_numpy.launch import Array, Launch
from dovetail_ops_onnx.gru import GRU


class Gru(StepsKernel):
    """The gates z and r are adjacent in memory, followed by the hidden gate, whose recurrent bias is added in each step."""

    gates = 3
    states = 1

    def prepare(self, node: TypedNode) -> tuple[Array | None, Array | None]:
        """As that of the base, with the other sign for z and r in R."""
        w, r = super().prepare(node)
        return w, None if r is None else r * np.repeat(np.array([-1, -1, 1], r.dtype), r.shape[2] // 3)

    def bias(self, of_x: Array, of_h: Array, out: Array) -> Launch:
        two = 2 * len(out) // 3

        def run() -> None:
            np.add(of_x[:two], of_h[:two], out[:two])
            np.copyto(out[two:], of_x[two:])

        return run

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
        (h,), op = state, call.node.op
        assert isinstance(op, GRU)
        two = 2 * h.shape[1]
        both, new = gates[:, :two], gates[:, two:]
        z, r = np.split(both, 2, axis=1)
        add_bias = () if Rb is None else (partial(np.add, new, Rb[two:], new),)
        # z and r are made with the other sign, which changes no digit, where R is a constant: a call less for each sigmoid.
        is_negative = call.state[1] is not None
        if op.linear_before_reset:
            first = product(h, R, gates)
            reset = (*add_bias, partial(np.multiply, new, r, new))
        else:
            first = partial(np.matmul, h, R[:, :two], both)
            reset = (partial(np.multiply, r, h, spare), partial(np.matmul, spare, R[:, two:], new), *add_bias)
        last = (
            partial(np.tanh, new, new),
            partial(np.subtract, h, new, spare),
            partial(np.multiply, z, spare, spare),
            partial(np.add, new, spare, h),
        )
        middle = (*sigmoid(both)[is_negative:], *reset)

        def run() -> None:
            if is_negative:
                np.negative(xs[:, :, :two], xs[:, :, :two])
            # `repeat` has no end.
            for x, of_new, y in zip(xs[:, :, :two], xs[:, :, two:], repeat(h) if ys is None else ys, strict=False):
                first()
                np.add(both, x, both)
                for launch in middle:
                    launch()
                np.add(new, of_new, new)
                for launch in last:
                    launch()
                np.copyto(y, h)

        return run


KERNELS = (Gru(),)
