"""Products and convolutions of quantized bytes."""

from typing import Any

from dovetail.op import DType, GraphBuilder, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.cast import Cast
from dovetail_ops_onnx.dynamic_quantize_linear import DynamicQuantizeLinear
from dovetail_ops_onnx.gemm import Gemm
from dovetail_ops_onnx.mat_mul_integer import MatMulInteger
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.q_linear_conv import QLinearConv as StandardQLinearConv
from dovetail_ops_onnxruntime_contrib._base import BYTES, MicrosoftOperator
from dovetail_ops_onnxruntime_contrib._nodes import node
from dovetail_ops_onnxruntime_contrib._stored import check_row, check_scalars, floats, stored, to_first, to_last, weights

__all__ = ["DynamicQuantizeMatMul", "MatMulIntegerToFloat", "QGemm", "QLinearConv", "product"]


class QGemm(MicrosoftOperator):
    """alpha A' B' + alpha C of bytes, with C in int32 in units of both scales; stored as bytes if `y_scale` is given.

    Scale and zero point of B are scalars, or have an element for each column of B'.
    """

    inputs = (
        "A: TA", "a_scale: float32", "a_zero_point: TA", "B: TB", "b_scale: float32", "b_zero_point: TB", "C?: int32",
        "y_scale?: float32", "y_zero_point?: TYZ",
    )  # fmt: skip
    outputs = ("Y: TY",)
    types = {"TA": BYTES, "TB": BYTES, "TYZ": BYTES, "TY": BYTES | {DType.FLOAT32}}
    alpha: float = 1.0
    transA: bool = False
    transB: bool = False

    def infer(self, A: TensorType, *rest: TensorType | None) -> TensorType:
        """[M, N] in the type of `y_zero_point`; float32 without it."""
        a_scale, a_zero, B, b_scale, b_zero, C, y_scale, y_zero = (*rest, None, None, None)[:8]
        assert B is not None
        if (y_scale is None) != (y_zero is None):
            raise OperatorError("one of 'y_scale' and 'y_zero_point' is given; accepted: both or none")
        y = self._gemm().infer(A, B, C)
        check_scalars(a_scale, a_zero, y_scale, y_zero)
        check_row(y.dims[1], b_scale, b_zero)
        return y.with_dtype(DType.FLOAT32 if y_zero is None else y_zero.dtype)

    def compose(self, g: GraphBuilder, a: str, a_scale: str, a_zero: str, b: str, *rest: str) -> str:
        """Floats, Gemm, bytes."""
        b_scale, b_zero, c, y_scale, y_zero = (*rest, "", "", "")[:5]
        sides = [floats(g, a, a_scale, a_zero), weights(g, b, b_scale, b_zero, axis=0 if self.transB else 1)]
        if c:
            sides.append(node(g, Mul(), node(g, Cast(to=DType.FLOAT32), c), node(g, Mul(), a_scale, b_scale)))
        y = node(g, self._gemm(), *sides)
        return stored(g, y, DType.UINT8, y_scale, y_zero) if y_zero else y

    def _gemm(self) -> Gemm:
        return Gemm(alpha=self.alpha, beta=self.alpha, transA=self.transA, transB=self.transB)


class MatMulIntegerToFloat(MicrosoftOperator):
    """A B of bytes as floats, plus a bias [N]. Scale and zero point of B are scalars, or have an element for each column."""

    inputs = (
        "A: T1", "B: T2", "a_scale: float32", "b_scale: float32", "a_zero_point?: T1", "b_zero_point?: T2", "bias?: float32",
    )  # fmt: skip
    outputs = ("Y: float32",)
    types = {"T1": BYTES, "T2": BYTES}

    def infer(self, A: TensorType, B: TensorType, *rest: TensorType | None) -> TensorType:
        """The type of the product."""
        a_scale, b_scale, a_zero, b_zero, bias = (*rest, None, None, None)[:5]
        check_scalars(a_scale, a_zero)
        check_row(B.dims[-1], b_scale, b_zero)
        _check_bias(B, bias)
        return MatMulInteger().infer(A, B).with_dtype(DType.FLOAT32)

    def compose(self, g: GraphBuilder, a: str, b: str, a_scale: str, b_scale: str, *rest: str) -> str:
        """MatMulInteger, scales, bias."""
        a_zero, b_zero, bias = (*rest, "", "", "")[:3]
        return product(g, (a, a_scale, a_zero), (b, b_scale, b_zero), bias)


class DynamicQuantizeMatMul(MicrosoftOperator):
    """A B plus a bias [N], with A quantized to uint8 over its range. Scale and zero point of B are as in MatMulIntegerToFloat."""

    inputs = ("A: float32", "B: T2", "b_scale: float32", "b_zero_point?: T2", "bias?: float32")
    outputs = ("Y: float32",)
    types = {"T2": BYTES}

    def infer(self, A: TensorType, B: TensorType, *rest: TensorType | None) -> TensorType:
        """The type of the product."""
        b_scale, b_zero, bias = (*rest, None, None)[:3]
        check_row(B.dims[-1], b_scale, b_zero)
        _check_bias(B, bias)
        return MatMulInteger().infer(A.with_dtype(DType.UINT8), B).with_dtype(DType.FLOAT32)

    def compose(self, g: GraphBuilder, a: str, b: str, b_scale: str, b_zero: str = "", bias: str = "") -> str:
        """DynamicQuantizeLinear, MatMulInteger, scales, bias."""
        return product(g, g.node(DynamicQuantizeLinear(), a, outputs=3), (b, b_scale, b_zero), bias)


class QLinearConv(MicrosoftOperator):
    """QLinearConv of the standard; with `channels_last` of x [N, D1, ..., C], w being [M, C / group, K1, ...] all the same."""

    inputs = StandardQLinearConv.inputs
    outputs = ("y: T3",)
    types = {"T1": BYTES, "T2": BYTES, "T3": BYTES, "T4": frozenset({DType.INT32})}
    auto_pad: str = "NOTSET"
    channels_last: bool = False
    dilations: tuple[int, ...] | None = None
    group: int = 1
    kernel_shape: tuple[int, ...] | None = None
    pads: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None

    def infer(self, x: TensorType, *rest: TensorType) -> TensorType:
        """As the standard's, in the order of the axes of x."""
        if not self.channels_last:
            return StandardQLinearConv.like(self).infer(x, *rest)
        if x.rank < 3:
            raise ShapeError(f"input 'x' is {x}; accepted: rank 3 or more")
        y = StandardQLinearConv.like(self).infer(x.with_shape((x.dims[0], x.dims[-1], *x.dims[1:-1])), *rest)
        return y.with_shape((y.dims[0], *y.dims[2:], y.dims[1]))

    def compose(self, g: GraphBuilder, x: str, *rest: str) -> str:
        """The standard's, between transposes."""
        if not self.channels_last:
            return node(g, StandardQLinearConv.like(self), x, *rest)
        rank = g.given(x).rank
        return to_last(g, node(g, StandardQLinearConv.like(self), to_first(g, x, rank), *rest), rank)


def product(g: GraphBuilder, a: Any, b: Any, bias: str) -> str:
    """A B in float32, plus a bias, of values with their scale and, if it is not "", zero point."""
    zeros = [a[2], b[2]] if b[2] else [a[2]] if a[2] else []
    sums = node(g, MatMulInteger(), a[0], b[0], *zeros)
    y = node(g, Mul(), node(g, Cast(to=DType.FLOAT32), sums), node(g, Mul(), a[1], b[1]))
    return node(g, Add(), y, bias) if bias else y


def _check_bias(b: TensorType, bias: TensorType | None) -> None:
    if bias is not None and bias.dims != b.dims[-1:]:
        raise ShapeError(f"input 'bias' is {bias}; accepted: [{b.dims[-1]}]")
