"""Products and convolutions with what ONNX Runtime fuses to them."""

from collections.abc import Mapping

from dovetail.op import FLOATS, DType, GraphBuilder, Operator, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.clip import Clip
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.elu import Elu
from dovetail_ops_onnx.gemm import Gemm
from dovetail_ops_onnx.hard_sigmoid import HardSigmoid
from dovetail_ops_onnx.leaky_relu import LeakyRelu
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.selu import Selu
from dovetail_ops_onnx.sigmoid import Sigmoid
from dovetail_ops_onnx.softplus import Softplus
from dovetail_ops_onnx.softsign import Softsign
from dovetail_ops_onnx.tanh import Tanh
from dovetail_ops_onnx.thresholded_relu import ThresholdedRelu
from dovetail_ops_onnxruntime_contrib._base import MicrosoftOperator
from dovetail_ops_onnxruntime_contrib._nodes import node, transpose

__all__ = ["FusedConv", "FusedGemm", "FusedMatMul", "TransposeMatMul"]


class FusedMatMul(MicrosoftOperator):
    """alpha A' B'. `trans` swaps the last two axes; `transBatch` has moved the first axis before the last."""

    inputs = ("A: T", "B: T")
    outputs = ("Y: T",)
    types = {"T": FLOATS}
    alpha: float = 1.0
    transA: bool = False
    transB: bool = False
    transBatchA: bool = False
    transBatchB: bool = False

    def infer(self, A: TensorType, B: TensorType) -> TensorType:
        """The type of the product."""
        sides = ((A, self.transA, self.transBatchA), (B, self.transB, self.transBatchB))
        return MatMul().infer(*(t.with_shape(tuple(t.dims[i] for i in _order(t, *how))) for t, *how in sides))

    def compose(self, g: GraphBuilder, a: str, b: str) -> str:
        """Transposes, MatMul and a factor."""
        sides = []
        for name, *how in ((a, self.transA, self.transBatchA), (b, self.transB, self.transBatchB)):
            order = _order(g.given(name), *how)
            sides.append(name if order == tuple(range(len(order))) else transpose(g, name, order))
        y = node(g, MatMul(), *sides)
        return y if self.alpha == 1 else node(g, Mul(), y, g.constant(self.alpha, g.given(a).dtype))


def _order(t: TensorType, swap: bool, batch: bool) -> tuple[int, ...]:
    """The axes of an input in the order in which the product takes them."""
    order = list(range(t.rank))
    if batch:
        if t.rank < 3:
            raise ShapeError(f"an input with its batch transposed is {t}; accepted: rank 3 or more")
        order = [*order[1:-1], order[0], order[-1]]
    if swap and t.rank > 1:
        order[-2:] = order[:-3:-1]
    return tuple(order)


class TransposeMatMul(FusedMatMul):
    """FusedMatMul under its first name."""

    op_type = "TransposeMatMul"


class FusedConv(MicrosoftOperator):
    """activation(Conv(X, W, B) + Z)."""

    inputs = ("X: T", "W: T", "B?: T", "Z?: T")
    outputs = ("Y: T",)
    types = {"T": frozenset({DType.FLOAT16, DType.FLOAT32, DType.FLOAT64})}
    activation: str = ""
    activation_params: tuple[float, ...] = ()
    auto_pad: str = "NOTSET"
    dilations: tuple[int, ...] | None = None
    group: int = 1
    kernel_shape: tuple[int, ...] | None = None
    pads: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        counts = {"": 0, "Relu": 0, "Tanh": 0, "Sigmoid": 0, "LeakyRelu": 1, "Clip": 2, "HardSigmoid": 2}
        if counts.get(self.activation) != len(self.activation_params):
            shown = ", ".join(f"{name or 'none'} ({count})" for name, count in counts.items())
            named = f"'activation' {self.activation!r} with {len(self.activation_params)} 'activation_params'"
            raise OperatorError(f"attributes {named}; accepted: {shown}")

    def infer(self, X: TensorType, W: TensorType, B: TensorType | None = None, Z: TensorType | None = None) -> TensorType:
        """The type of the convolution."""
        y = Conv.like(self).infer(X, W, B)
        if Z is not None and Z.dims != y.dims:
            raise ShapeError(f"input 'Z' is {Z}; accepted: {y}")
        return y

    def compose(self, g: GraphBuilder, x: str, w: str, b: str = "", z: str = "") -> str:
        """Conv, a sum, the activation: devices fuse them again."""
        y = node(g, Conv.like(self), x, w, *([b] if b else []))
        y = node(g, Add(), y, z) if z else y
        params = self.activation_params
        if self.activation == "Clip":
            return node(g, Clip(), y, *(g.constant(number, g.given(x).dtype) for number in params))
        return _activated(g, y, self.activation, dict(zip(("alpha", "beta"), params, strict=False)))


class FusedGemm(MicrosoftOperator):
    """activation(alpha A' B' + beta C)."""

    inputs = ("A: T", "B: T", "C?: T")
    outputs = ("Y: T",)
    types = {"T": FLOATS}
    activation: str = ""
    activation_alpha: float | None = None
    activation_beta: float | None = None
    activation_gamma: float | None = None
    alpha: float = 1.0
    beta: float = 1.0
    transA: bool = False
    transB: bool = False

    def __post_init__(self) -> None:
        if self.activation and self.activation not in _ACTIVATIONS:
            raise OperatorError(f"attribute 'activation' is {self.activation!r}; accepted: none, {', '.join(_ACTIVATIONS)}")

    def infer(self, A: TensorType, B: TensorType, C: TensorType | None = None) -> TensorType:
        """[M, N]."""
        return Gemm.like(self).infer(A, B, C)

    def compose(self, g: GraphBuilder, a: str, b: str, c: str = "") -> str:
        """Gemm and the activation: devices fuse them again."""
        y = node(g, Gemm.like(self), a, b, *([c] if c else []))
        given = {"alpha": self.activation_alpha, "beta": self.activation_beta, "gamma": self.activation_gamma}
        return _activated(g, y, self.activation, given)


_ACTIVATIONS: dict[str, type[Operator]] = {
    cls.op_type: cls
    for cls in (Elu, HardSigmoid, LeakyRelu, Relu, Selu, Sigmoid, Softplus, Softsign, Tanh, ThresholdedRelu)
}  # fmt: skip


def _activated(g: GraphBuilder, y: str, activation: str, parameters: Mapping[str, float | None]) -> str:
    if not activation:
        return y
    cls = _ACTIVATIONS[activation]
    # Those that are left out have the defaults of the standard.
    known = {name: value for name, value in parameters.items() if value is not None and name in cls.attributes}
    return node(g, cls(**known), y)
