"""Tile: a copy that broadcasts."""

from collections.abc import Callable, Iterable
from itertools import chain

from dovetail.device import TypedNode
from dovetail_cpu_onednn.kernels._movement import StridedCopy
from dovetail_cpu_onednn.python_kernel import Array


class Tiles(StridedCopy):
    """The result with each axis as (tiles, size), which the input broadcasts to. The repeats are in its type."""

    def pairs(self, node: TypedNode, array: Callable[[str], Array]) -> Iterable[tuple[Array, Array]]:
        src, dst = array(node.node.inputs[0]), array(node.node.outputs[0])
        tiles = [out // size if size else 1 for out, size in zip(dst.shape, src.shape, strict=True)]
        apart = tuple(chain.from_iterable(zip(tiles, src.shape, strict=True)))
        yield dst.reshape(apart), src.reshape(tuple(chain.from_iterable((1, size) for size in src.shape)))


KERNELS = (Tiles(),)
