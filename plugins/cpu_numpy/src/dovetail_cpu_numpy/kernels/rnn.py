"""RNN."""

from collections.abc import Sequence

import numpy as np

from dovetail.device import TypedNode
from dovetail_cpu_numpy.kernels._recurrent import StepsKernel, product_of
from dovetail_cpu_numpy.launch import Array, Launch, constant
from dovetail_ops_onnx.rnn import RNN


class Rnn(StepsKernel):
    """Three calls a step, in the memory of the next states."""

    gates = 1
    states = 1
    activations = (("tanh",), ("relu",))

    def steps(self, node: TypedNode, xs: Array, hs: Array, r: Array, work: Sequence[Array]) -> Launch:
        op = node.op
        assert isinstance(op, RNN)
        product, add, tanh, zero = product_of(hs[0]), np.add, np.tanh, constant(0, xs)
        is_relu = (op.activations or op.defaults)[0].lower() == "relu"

        def run() -> None:
            for x, h, y in zip(xs, hs, hs[1:], strict=False):
                product(h, r, y)
                add(y, x, y)
                if is_relu:
                    np.maximum(y, zero, out=y)
                else:
                    tanh(y, y)

        return run


KERNELS = (Rnn(),)
