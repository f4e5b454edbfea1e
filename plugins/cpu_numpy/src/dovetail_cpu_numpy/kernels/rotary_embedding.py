"""RotaryEmbedding."""

from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np

from dovetail.device import DType, Refusal, TypedNode
from dovetail_cpu_numpy.kernel import Call, NumpyKernel, refuse_dtypes
from dovetail_cpu_numpy.launch import Array, Launch, Spec, copy, into
from dovetail_ops_onnx.gather import check_gathered
from dovetail_ops_onnx.rotary_embedding import RotaryEmbedding


class Pairs(NumpyKernel):
    """Two products of whole heads: with the cosine, and with the sine where the two elements of each pair have changed places.

    On views of the elements NumPy would work on half a head at a time. The angles of all tokens are gathered before.
    """

    name = "pairs"

    def refuse(self, node: TypedNode) -> Refusal | None:
        return refuse_dtypes(node.inputs[:3], frozenset({DType.FLOAT32}))

    def scratch(self, node: TypedNode) -> Sequence[Spec]:
        op, x = _op(node), node.given(0)
        batch, sequence, heads, _ = op.heads(x)
        pairs, dtype = op.turned(x) // 2, x.dtype.numpy
        angles, whole = ((batch, sequence, pairs), dtype), ((batch, sequence, 2 * pairs), dtype)
        return (((batch, heads, sequence, 2 * pairs), dtype), whole, whole, angles, angles)

    def bind(self, call: Call) -> Iterable[Launch]:
        changed, cosines, sines, *angles = call.scratch
        op, x = _op(call.node), call.node.given(0)
        src, dst = (_heads(array, op.heads(x)) for array in (call.input(0), call.outputs[0]))
        ids = call.optional(3)
        if ids is None:
            angles = [call.input(1), call.input(2)]
        else:
            if ids.size:
                yield partial(check_gathered, ids, call.input(1).shape[0], 0)
            for cache, gathered in zip((call.input(1), call.input(2)), angles, strict=True):
                yield partial(_gather, cache, ids, gathered)
        cosine, sine = angles
        count = op.turned(x)
        if op.interleaved:
            first, second = slice(0, count, 2), slice(1, count, 2)
        else:
            first, second = slice(0, count // 2), slice(count // 2, count)
        for one, other in ((first, second), (second, first)):
            yield copy(cosines[..., one], cosine)
            yield copy(changed[..., one], src[..., other])
        yield into(np.negative, sine, out=sines[..., first])
        yield copy(sines[..., second], sine)
        turned = dst[..., :count]
        yield into(np.multiply, src[..., :count], cosines[:, None], out=turned)
        yield into(np.multiply, changed, sines[:, None], out=changed)
        yield into(np.add, turned, changed, out=turned)
        if count < dst.shape[3]:
            yield copy(dst[..., count:], src[..., count:])


def _gather(cache: Array, ids: Array, dst: Array) -> None:
    """The rows of the cache at these positions, which it has."""
    np.copyto(dst, cache[ids])


def _op(node: TypedNode) -> RotaryEmbedding:
    assert isinstance(node.op, RotaryEmbedding)
    return node.op


def _heads(x: Array, sizes: tuple[int, int, int, int]) -> Array:
    """[batch, heads, sequence, head size] as a view."""
    batch, sequence, heads, size = sizes
    return x if x.ndim == 4 else x.reshape(batch, sequence, heads, size).swapaxes(1, 2)


KERNELS = (Pairs(),)
