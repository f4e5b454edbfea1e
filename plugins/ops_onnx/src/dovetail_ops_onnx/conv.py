"""Conv: convolution (cross-correlation) over any number of spatial axes. https://onnx.ai/onnx/operators/onnx__Conv.html"""

import math
from collections.abc import Sequence

import numpy as np

from dovetail.op import FLOATS, ShapeError, TensorType
from dovetail_ops_onnx._convolution import Convolution
from dovetail_ops_onnx._elementwise import wide
from dovetail_ops_onnx._numerics import rounded
from dovetail_ops_onnx._types import Array, Types
from dovetail_ops_onnx._windows import windows
from dovetail_ops_onnx.spatial import ConvGeometry, conv_geometry


class Conv(Convolution):
    """Y [N, M, O1, ...] = X [N, C, D1, ...] convolved with W [M, C / group, K1, ...], plus B [M]."""

    inputs = ("X: T", "W: T", "B?: T")
    outputs = ("Y: T",)
    propagates_nan = True
    magnitude = "sum_of_products"
    types = {"T": FLOATS}

    def geometry(self, X: TensorType, W: TensorType) -> ConvGeometry:
        """Pads, strides, dilations and output dimensions for these types. Raises `ShapeError` for types that do not fit."""
        dims, kernel = self.window(X, W)
        return conv_geometry(dims, kernel, strides=self.strides, dilations=self.dilations, pads=self.pads, auto_pad=self.auto_pad)

    def infer(self, X: TensorType, W: TensorType, B: TensorType | None = None) -> TensorType:
        geometry = self.geometry(X, W)
        maps, channels = W.dims[:2]
        if channels * self.group != X.dims[1] or maps % self.group:
            raise ShapeError(
                f"X is {X}, W is {W}, group is {self.group}",
                hint="accepted: W [M, C / group, ...] for X [N, C, ...], with M and C multiples of group",
            )
        if B is not None and B.dims != (maps,):
            raise ShapeError(f"the bias B is {B}; accepted: [{maps}], one for each output channel")
        return X.with_shape((X.dims[0], maps, *geometry.output))

    def reference(self, X: Array, W: Array, B: Array | None = None) -> Array:
        geometry = self.geometry(TensorType.of(X), TensorType.of(W))
        maps, channels = W.shape[:2]
        y = np.empty((X.shape[0], maps, *geometry.output), wide(X[:0]).dtype)
        view = windows(wide(X), geometry, 0)
        size = channels * math.prod(W.shape[2:])
        with np.errstate(all="ignore"):
            for g in range(self.group):
                own = slice(g * maps // self.group, (g + 1) * maps // self.group)
                part = view[:, g * channels : (g + 1) * channels]
                # np.matmul, because np.tensordot gives 0 for 0 times infinity where one factor has a single element.
                rows = np.moveaxis(part, 1, 1 + geometry.rank).reshape(X.shape[0], math.prod(geometry.output), size)
                product = np.matmul(wide(W[own]).reshape(maps // self.group, size), rows.swapaxes(1, 2))
                y[:, own] = product.reshape(X.shape[0], maps // self.group, *geometry.output)
            if B is not None:
                y += wide(B).reshape(-1, *(1,) * geometry.rank)
        return rounded(y, X.dtype)

    def flops(self, inputs: Types, outputs: Sequence[TensorType]) -> int:
        _, weights, bias = (*inputs, None)[:3]
        assert weights is not None
        per_output = 2 * weights.size // max(1, weights.dims[0]) + (bias is not None)
        return outputs[0].size * per_output
