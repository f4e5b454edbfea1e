"""ConvTranspose: transposed convolution. https://onnx.ai/onnx/operators/onnx__ConvTranspose.html"""

import math
from collections.abc import Sequence

import numpy as np

from dovetail.op import FLOATS, ShapeError, TensorType
from dovetail_ops_onnx._convolution import Convolution
from dovetail_ops_onnx._elementwise import wide
from dovetail_ops_onnx._numerics import rounded
from dovetail_ops_onnx._types import Array, Types
from dovetail_ops_onnx.spatial import ConvGeometry, conv_transpose_geometry


class ConvTranspose(Convolution):
    """Y [N, M, O1, ...]: each element of X [N, C, D1, ...] adds its multiple of W [C, M / group, K1, ...] to Y, plus B [M]."""

    inputs = ("X: T", "W: T", "B?: T")
    outputs = ("Y: T",)
    propagates_nan = True
    magnitude = "sum_of_products"
    types = {"T": FLOATS}
    output_padding: tuple[int, ...] | None = None
    output_shape: tuple[int, ...] | None = None

    def geometry(self, X: TensorType, W: TensorType) -> ConvGeometry:
        """Pads, strides, dilations and output dimensions for these types. Raises `ShapeError` for types that do not fit."""
        dims, kernel = self.window(X, W)
        return conv_transpose_geometry(
            dims,
            kernel,
            strides=self.strides,
            dilations=self.dilations,
            pads=self.pads,
            auto_pad=self.auto_pad,
            output_padding=self.output_padding,
            output_shape=self.output_shape,
        )

    def infer(self, X: TensorType, W: TensorType, B: TensorType | None = None) -> TensorType:
        geometry = self.geometry(X, W)
        channels, maps = W.dims[0], W.dims[1] * self.group
        if channels != X.dims[1] or channels % self.group:
            raise ShapeError(
                f"X is {X}, W is {W}, group is {self.group}",
                hint="accepted: W [C, M / group, ...] for X [N, C, ...], with C a multiple of group",
            )
        if B is not None and B.dims != (maps,):
            raise ShapeError(f"the bias B is {B}; accepted: [{maps}], one for each output channel")
        return X.with_shape((X.dims[0], maps, *geometry.output))

    def reference(self, X: Array, W: Array, B: Array | None = None) -> Array:
        g = self.geometry(TensorType.of(X), TensorType.of(W))
        x, w = wide(X), wide(W)
        maps = W.shape[1]
        y = np.zeros((X.shape[0], maps * self.group, *g.output), x.dtype)
        with np.errstate(all="ignore"):
            for part in range(self.group):
                own = slice(part * (W.shape[0] // self.group), (part + 1) * (W.shape[0] // self.group))
                columns = x[:, own].reshape(len(x), W.shape[0] // self.group, math.prod(g.input))
                for k in np.ndindex(*g.kernel):
                    # np.matmul, because np.tensordot gives 0 for 0 times infinity where one factor has a single element.
                    product = np.matmul(w[(own, slice(None), *k)].T, columns).reshape(len(x), maps, *g.input)
                    reads, writes = _places(g, k)
                    y[(slice(None), slice(part * maps, (part + 1) * maps), *writes)] += product[(..., *reads)]
            if B is not None:
                y += wide(B).reshape(-1, *(1,) * g.rank)
        return rounded(y, X.dtype)

    def flops(self, inputs: Types, outputs: Sequence[TensorType]) -> int:
        x, w, b = (*inputs, None)[:3]
        assert x is not None
        assert w is not None
        return 2 * x.size * w.size // max(1, w.dims[0]) + (outputs[0].size if b is not None else 0)


def _places(g: ConvGeometry, k: tuple[int, ...]) -> tuple[list[slice], list[slice]]:
    """Slices of the input that an element of the kernel reads, and of the output to which it adds, without what pads cut off."""
    reads, writes = [], []
    for n, d, i, s, pad, o in zip(k, g.dilations, g.input, g.strides, g.pads_begin, g.output, strict=True):
        first = n * d - pad  # where the first element goes
        begin = max(0, -(first // s))
        end = max(begin, min(i, -((first - o) // s)))
        reads.append(slice(begin, end))
        writes.append(slice(first + begin * s, first + (end - 1) * s + 1, s) if end > begin else slice(0))
    return reads, writes
