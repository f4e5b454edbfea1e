"""The steps of RotaryEmbedding as calls of NumPy on whole heads, for kernels on the host."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.op import TensorType
from dovetail_ops_onnx.gather import check_gathered
from dovetail_ops_onnx.rotary_embedding import RotaryEmbedding

__all__ = ["rotation", "work_shapes"]

Array = NDArray[Any]
Call = Callable[[], object]


def work_shapes(op: RotaryEmbedding, x: TensorType) -> tuple[tuple[int, ...], ...]:
    """The shapes of the five work arrays of `rotation`, which have the data type of `x`."""
    batch, sequence, heads, _ = op.heads(x)
    pairs = op.turned(x) // 2
    angles, whole = (batch, sequence, pairs), (batch, sequence, 2 * pairs)
    return (batch, heads, sequence, 2 * pairs), whole, whole, angles, angles


def rotation(op: RotaryEmbedding, x: TensorType, inputs: list[Array], y: Array, work: tuple[Array, ...]) -> Iterator[Call]:
    """Two products of whole heads: with the cosine, and with the sine where the two elements of each pair have changed places.

    On views of the elements NumPy would work on half a head at a time. `inputs` are X, the caches and the positions, if there
    are any, whose angles are gathered before. `x` is the type of X.
    """
    changed, cosines, sines, *angles = work
    src, dst = (_heads(array, op.heads(x)) for array in (inputs[0], y))
    if len(inputs) < 4:
        angles = inputs[1:3]
    else:
        ids = inputs[3]
        if ids.size:
            yield partial(check_gathered, ids, inputs[1].shape[0], 0)
        for cache, gathered in zip(inputs[1:3], angles, strict=True):
            yield partial(_gather, cache, ids, gathered)
    cosine, sine = angles
    count = op.turned(x)
    first, second = slice(0, count // 2), slice(count // 2, count)
    if op.interleaved:
        first, second = slice(0, count, 2), slice(1, count, 2)
    for one, other in ((first, second), (second, first)):
        yield _copy(cosines[..., one], cosine)
        yield _copy(changed[..., one], src[..., other])
    yield partial(np.negative, sine, sines[..., first])
    yield _copy(sines[..., second], sine)
    turned = dst[..., :count]
    yield partial(np.multiply, src[..., :count], cosines[:, None], turned)
    yield partial(np.multiply, changed, sines[:, None], changed)
    yield partial(np.add, turned, changed, turned)
    if count < dst.shape[3]:
        yield _copy(dst[..., count:], src[..., count:])


def _copy(dst: Array, src: Array) -> Call:
    return partial(np.copyto, dst, src)


def _gather(cache: Array, ids: Array, dst: Array) -> None:
    """The rows of the cache at these positions, which it has."""
    np.copyto(dst, cache[ids])


def _heads(x: Array, sizes: tuple[int, int, int, int]) -> Array:
    """[batch, heads, sequence, head size] as a view."""
    batch, sequence, heads, size = sizes
    return x if x.ndim == 4 else x.reshape(batch, sequence, heads, size).swapaxes(1, 2)
