"""Gather, with every index checked before anything is read."""

from collections.abc import Callable, Iterable
from functools import partial

import numpy as np

from dovetail.device import Accepted, DType, Reason, Refusal, TypedNode
from dovetail_cpu_onednn.python_kernel import Array, Call, PythonKernel
from dovetail_ops_onnx.gather import Gather, check_gathered, outside, taking_one

_INDEX = np.dtype(np.intp)


class Take(PythonKernel):
    """`numpy.take` into the result, in its mode that wraps: after the check that is what negative indices mean.

    Its mode that raises would copy the result once more.
    """

    name = "take"
    binds_quickly = True

    def supports(self, node: TypedNode) -> Accepted | Refusal:
        if node.post_ops:
            return Refusal(Reason.POST_OP, "take takes none")
        if node.given(0).dtype is DType.STRING:
            return Refusal(Reason.DTYPE, "string")
        if not (node.given(1).size and node.outputs[0].size):
            return Refusal(Reason.SHAPE, "nothing to gather")
        return Accepted(self.name)

    def bind(self, node: TypedNode, array: Callable[[str], Array]) -> Iterable[Call]:
        assert isinstance(node.op, Gather)
        data, given_indices, dst = (array(name) for name in (*node.node.inputs, node.node.outputs[0]))
        axis, bound = node.op.axis, data.shape[node.op.axis]
        if node.given(1).value is not None:
            fixed = given_indices.astype(_INDEX)
            # Wrong constants are an error of the run, which names the node.
            return [partial(check_gathered, fixed, bound, axis)] if outside(fixed, bound) else [_taking(data, fixed, axis, dst)]
        if given_indices.size == 1:
            return [taking_one(data, given_indices, axis, dst)]
        indices = np.empty(given_indices.shape, _INDEX)

        def take() -> None:
            np.copyto(indices, given_indices)
            check_gathered(indices, bound, axis)
            data.take(indices, axis, dst, "wrap")

        return [take]


def _taking(data: Array, indices: Array, axis: int, dst: Array) -> Call:
    def take() -> None:
        data.take(indices, axis, dst, "wrap")

    return take


KERNELS = (Take(),)
