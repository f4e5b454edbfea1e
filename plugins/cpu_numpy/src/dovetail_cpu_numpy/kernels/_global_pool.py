"""Pooling over all spatial axes: a reduction over these."""

from typing import TYPE_CHECKING

import numpy as np

from dovetail.device import TypedNode
from dovetail_cpu_numpy.kernel import BLAS
from dovetail_cpu_numpy.kernels._reduce import UfuncReduce

if TYPE_CHECKING:
    from dovetail_cpu_numpy.kernels._reduce import Reduction

__all__ = ["GlobalPool"]


class GlobalPool(UfuncReduce):
    """dst [N, C, 1, ...] = the reduction of the elements of each channel."""

    def __init__(self, ufunc: np.ufunc, reduction: "Reduction", *, mean: bool = False) -> None:
        super().__init__(ufunc, BLAS, mean=mean)
        self._reduction = reduction

    def reduction(self, node: TypedNode) -> "Reduction":
        return self._reduction

    def axes(self, node: TypedNode) -> tuple[int, ...]:
        return tuple(range(2, node.outputs[0].rank))
