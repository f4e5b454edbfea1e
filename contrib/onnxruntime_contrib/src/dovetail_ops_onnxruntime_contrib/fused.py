"""Products and convolutions with what ONNX Runtime fuses to them."""

from typing import Any

from dovetail.op import FLOATS, DType, GraphBuilder, Operator, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.clip import Clip
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.hard_sigmoid import HardSigmoid
from dovetail_ops_onnx.leaky_relu import LeakyRelu
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.sigmoid import Sigmoid
from dovetail_ops_onnx.tanh import Tanh
from dovetail_ops_onnxruntime_contrib._base import MicrosoftOperator
from dovetail_ops_onnxruntime_contrib._nodes import given, node, transpose

__all__ = ["FusedConv", "FusedMatMul"]


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
            order = _order(given(g, name), *how)
            sides.append(name if order == tuple(range(len(order))) else transpose(g, name, order))
        y = node(g, MatMul(), *sides)
        return y if self.alpha == 1 else node(g, Mul(), y, g.constant(self.alpha, given(g, a).dtype))


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
        y = self._conv().infer(X, W, B)
        if Z is not None and Z.dims != y.dims:
            raise ShapeError(f"input 'Z' is {Z}; accepted: {y}")
        return y

    def compose(self, g: GraphBuilder, x: str, w: str, b: str = "", z: str = "") -> str:
        """Conv, a sum, the activation: devices fuse them again."""
        y = node(g, self._conv(), x, w, *([b] if b else []))
        y = node(g, Add(), y, z) if z else y
        params = self.activation_params
        if self.activation == "Clip":
            return node(g, Clip(), y, *(g.constant(number, given(g, x).dtype) for number in params))
        ops: dict[str, Any] = {"Relu": Relu, "Tanh": Tanh, "Sigmoid": Sigmoid}
        op: Operator | None = ops[self.activation]() if self.activation in ops else None
        if self.activation == "LeakyRelu":
            op = LeakyRelu(alpha=params[0])
        elif self.activation == "HardSigmoid":
            op = HardSigmoid(alpha=params[0], beta=params[1])
        return y if op is None else node(g, op, y)

    def _conv(self) -> Conv:
        return Conv(
            auto_pad=self.auto_pad,
            dilations=self.dilations,
            group=self.group,
            kernel_shape=self.kernel_shape,
            pads=self.pads,
            strides=self.strides,
        )
