"""TensorScatter."""

from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np

from dovetail.device import DType, Reason, Refusal, TypedNode
from dovetail.errors import OperatorError
from dovetail_cpu_numpy.kernel import Call, NumpyKernel
from dovetail_cpu_numpy.launch import Array, Launch, copy
from dovetail_ops_onnx.tensor_scatter import TensorScatter


class InCache(NumpyKernel):
    """Writes the update into the cache, where that may be overwritten, else into a copy of it."""

    name = "in_cache"

    def refuse(self, node: TypedNode) -> Refusal | None:
        return Refusal(Reason.DTYPE, "string") if node.outputs[0].dtype is DType.STRING else None

    def in_place(self, node: TypedNode) -> Sequence[int]:
        return (0,)

    def bind(self, call: Call) -> Iterable[Launch]:
        past, update, (dst,) = call.input(0), call.input(1), call.outputs
        op = call.node.op
        assert isinstance(op, TensorScatter)
        axis = op.axis % past.ndim
        if not np.may_share_memory(past, dst):
            yield copy(dst, past)
        starts = call.inputs[2] if len(call.inputs) > 2 else None
        rows = np.moveaxis(dst, axis, 1), np.moveaxis(update, axis, 1)
        yield partial(_write, *rows, np.zeros(len(dst), np.int64) if starts is None else starts, op.mode == "circular")


def _write(cache: Array, update: Array, starts: Array, circular: bool) -> None:
    """Rows [batch, count, ...] into [batch, size, ...]. Raises `OperatorError` for an index outside of the cache."""
    size, count = cache.shape[1], update.shape[1]
    most = size if circular else size - count
    if np.any((starts < 0) | (starts > most)):
        raise OperatorError(f"input 'write_indices' is {starts.tolist()}; accepted: 0 to {most}")
    for batch, start in enumerate(starts.tolist()):
        first = min(count, size - start)
        cache[batch, start : start + first] = update[batch, :first]
        if first < count:
            cache[batch, : count - first] = update[batch, first:]


KERNELS = (InCache(),)
