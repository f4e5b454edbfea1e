"""LSTM."""

from collections.abc import Sequence

import numpy as np

from dovetail.device import TypedNode
from dovetail_cpu_numpy.kernels._recurrent import StepsKernel, Weights, product_of
from dovetail_cpu_numpy.launch import Array, Launch, constant


class Lstm(StepsKernel):
    """The gates are adjacent in memory in the order o, i, f, cell input, and the cell state follows: [i f] * [input state].

    sigmoid(x) is 0.5 tanh(x / 2) + 0.5, so that one call serves all gates; weights are halved, which changes no digit.
    """

    gates = 4
    states = 2
    activations = (("sigmoid", "tanh", "tanh"),)
    work = (4, 5)

    def kept(self, work: Sequence[Array], hidden: int) -> Sequence[Array]:
        return (work[1][..., 4 * hidden :],)

    def weights(self, node: TypedNode, w: Array, r: Array, b: Array | None) -> Weights:
        hidden = r.shape[2]
        order = np.arange(4 * hidden).reshape(4, hidden)[[1, 0, 2, 3]].reshape(-1)
        scale = np.repeat(np.array([0.5, 0.5, 0.5, 1], r.dtype), hidden)[:, None]
        turned = super().weights(node, w[:, order] * scale, r[:, order] * scale, None)
        if b is None:
            return turned
        return Weights(turned.w, turned.r, (b[:, : 4 * hidden] + b[:, 4 * hidden :])[:, order] * scale[:, 0])

    def steps(self, node: TypedNode, xs: Array, hs: Array, r: Array, work: Sequence[Array]) -> Launch:
        gates, made = work
        hidden = hs.shape[-1]
        four, both = made[..., : 4 * hidden], gates[..., : 2 * hidden]
        sigmoids, o, i_f = made[..., : 3 * hidden], made[..., :hidden], made[..., hidden : 3 * hidden]
        new_c, c = made[..., 3 * hidden :], made[..., 4 * hidden :]
        new, old, spare = gates[..., :hidden], gates[..., hidden : 2 * hidden], gates[..., 2 * hidden : 3 * hidden]
        product, half = product_of(hs[0]), constant(0.5, gates)
        add, multiply, tanh = np.add, np.multiply, np.tanh

        def run() -> None:
            for x, h, y in zip(xs, hs, hs[1:], strict=False):
                product(h, r, gates)
                add(gates, x, gates)
                tanh(gates, four)
                multiply(sigmoids, half, sigmoids)
                add(sigmoids, half, sigmoids)
                multiply(i_f, new_c, both)
                add(new, old, c)
                tanh(c, spare)
                multiply(o, spare, y)

        return run


KERNELS = (Lstm(),)
