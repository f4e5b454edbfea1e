"""GRU."""

from collections.abc import Sequence

import numpy as np

from dovetail.device import TypedNode
from dovetail_cpu_numpy.kernels._recurrent import StepsKernel, Weights, product_of
from dovetail_cpu_numpy.launch import Array, Launch, constant
from dovetail_ops_onnx.gru import GRU


class Gru(StepsKernel):
    """The gates z and r are adjacent in memory, followed by the hidden gate.

    z and r are made with the other sign, which changes no digit: a call less for each sigmoid. Where the reset gate multiplies
    the recurrent bias too, that is a row of the recurrent weights.
    """

    gates = 3
    states = 1
    activations = (("sigmoid", "tanh"),)
    work = (3, 1)

    def ones(self, node: TypedNode) -> int:
        assert isinstance(node.op, GRU)
        return int(node.op.linear_before_reset and len(node.inputs) > 3 and node.inputs[3] is not None)

    def weights(self, node: TypedNode, w: Array, r: Array, b: Array | None) -> Weights:
        hidden = r.shape[2]
        sign = np.repeat(np.array([-1, -1, 1], r.dtype), hidden)
        turned = super().weights(node, w * sign[:, None], r * sign[:, None], None)
        if b is None:
            return turned
        of_x, of_h = b[:, : 3 * hidden] * sign, b[:, 3 * hidden :] * sign
        if not self.ones(node):
            return Weights(turned.w, turned.r, of_x + of_h)
        row = of_h[:, None].copy()
        row[..., : 2 * hidden] = 0
        of_x[:, : 2 * hidden] += of_h[:, : 2 * hidden]
        return Weights(turned.w, np.concatenate([turned.r, row], axis=1), of_x)

    def steps(self, node: TypedNode, xs: Array, hs: Array, r: Array, work: Sequence[Array]) -> Launch:
        assert isinstance(node.op, GRU)
        is_linear, (gates, spare) = node.op.linear_before_reset, work
        hidden = spare.shape[-1]
        two, states = 2 * hidden, hs[..., :hidden]
        both, z, reset, new = gates[..., :two], gates[..., :hidden], gates[..., hidden:two], gates[..., two:]
        of_new = None if is_linear else np.ascontiguousarray(r[..., two:])
        of_both = r if is_linear else np.ascontiguousarray(r[..., :two])
        first = gates if is_linear else both
        product, one = product_of(hs[0]), constant(1, gates)
        add, multiply, exp, subtract, tanh, reciprocal = np.add, np.multiply, np.exp, np.subtract, np.tanh, np.reciprocal

        def run() -> None:
            for of_both_x, of_new_x, given, h, y in zip(xs[..., :two], xs[..., two:], hs, states, states[1:], strict=False):
                product(given, of_both, first)
                add(both, of_both_x, both)
                exp(both, both)
                add(both, one, both)
                reciprocal(both, both)
                if of_new is None:
                    multiply(new, reset, new)
                else:
                    multiply(reset, h, spare)
                    product(spare, of_new, new)
                add(new, of_new_x, new)
                tanh(new, new)
                subtract(h, new, spare)
                multiply(z, spare, spare)
                add(new, spare, y)

        return run


KERNELS = (Gru(),)
