"""Functions of quantized bytes, and operators that bring bytes of several scales together."""

from dovetail.op import DType, GraphBuilder, Operator, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx.concat import Concat
from dovetail_ops_onnx.leaky_relu import LeakyRelu
from dovetail_ops_onnx.sigmoid import Sigmoid
from dovetail_ops_onnx.softmax import Softmax
from dovetail_ops_onnx.where import Where
from dovetail_ops_onnxruntime_contrib._base import BYTES, MicrosoftOperator
from dovetail_ops_onnxruntime_contrib._nodes import node, reshape
from dovetail_ops_onnxruntime_contrib._stored import check_scalars, floats, stored

__all__ = ["QLinearConcat", "QLinearLeakyRelu", "QLinearSigmoid", "QLinearSoftmax", "QLinearWhere"]

_PORTS = ("X: T", "X_scale: float32", "X_zero_point?: T", "Y_scale: float32", "Y_zero_point?: T")


class QLinearSigmoid(MicrosoftOperator):
    """1 / (1 + exp(-X)) of bytes; rounded half to even and saturated."""

    inputs = _PORTS
    outputs = ("Y: T",)
    types = {"T": BYTES}

    def infer(self, X: TensorType, *rest: TensorType | None) -> TensorType:
        """The type of X."""
        check_scalars(*rest)
        return X.with_shape(X.dims)

    def compose(self, g: GraphBuilder, x: str, scale: str, zero: str, *y: str) -> str:
        """Floats, the function, bytes."""
        return stored(g, node(g, self._function(), floats(g, x, scale, zero)), g.given(x).dtype, *y)

    def _function(self) -> Operator:
        return Sigmoid()


class QLinearLeakyRelu(QLinearSigmoid):
    """X of bytes, times alpha where it is negative; rounded half to even and saturated."""

    op_type = "QLinearLeakyRelu"
    alpha: float = 0.01

    def _function(self) -> Operator:
        return LeakyRelu(alpha=self.alpha)


class QLinearSoftmax(MicrosoftOperator):
    """Softmax of bytes along `axis`; from `axis` on, all axes as one, as of `opset` 12 and before."""

    inputs = ("X: T", "X_scale: float32", "x_zero_point?: T", "y_scale: float32", "y_zero_point: T")
    outputs = ("Y: T",)
    types = {"T": BYTES}
    opset: int
    axis: int = -1

    def infer(self, X: TensorType, *rest: TensorType | None) -> TensorType:
        """The type of X."""
        check_scalars(*rest)
        if not -X.rank <= self.axis < X.rank:
            raise ShapeError(f"input 'X' is {X}, 'axis' {self.axis}; accepted: {-X.rank} to {X.rank - 1}")
        return X.with_shape(X.dims)

    def compose(self, g: GraphBuilder, x: str, scale: str, zero: str, *y: str) -> str:
        """Floats, Softmax, bytes."""
        t = g.given(x)
        if self.opset >= 13:
            return stored(g, node(g, Softmax(axis=self.axis), floats(g, x, scale, zero)), t.dtype, *y)
        axis = self.axis % t.rank
        rows = t.with_shape(t.dims[:axis]).size, t.with_shape(t.dims[axis:]).size
        found = node(g, Softmax(axis=1), floats(g, reshape(g, x, rows), scale, zero))
        return reshape(g, stored(g, found, t.dtype, *y), t.dims)


class QLinearConcat(MicrosoftOperator):
    """Concat along `axis` of bytes, each with its scale and zero point."""

    inputs = ("Y_scale: float32", "Y_zero_point: T", "inputs*")
    outputs = ("Y: T",)
    types = {"T": BYTES}
    axis: int

    def infer(self, scale: TensorType, zero: TensorType, *rest: TensorType) -> TensorType:
        """The concatenated shape."""
        parts, scales, zeros = rest[::3], rest[1::3], rest[2::3]
        fits = len(rest) % 3 == 0 and all(t.dtype is DType.FLOAT32 for t in scales)
        if not rest or not fits or any(t.dtype is not zero.dtype for t in (*parts, *zeros)):
            shown = ", ".join(map(str, rest))
            raise OperatorError(f"inputs are {shown}; accepted: values, scales and zero points in turn, {zero.dtype}, float32")
        check_scalars(scale, zero, *scales, *zeros)
        return Concat(axis=self.axis).infer(*parts)

    def compose(self, g: GraphBuilder, scale: str, zero: str, *rest: str) -> str:
        """Bytes of the result's scale, concatenated."""
        parts = zip(rest[::3], rest[1::3], rest[2::3], strict=True)
        return node(g, Concat(axis=self.axis), *(_rescaled(g, part, (scale, zero)) for part in parts))


class QLinearWhere(MicrosoftOperator):
    """X where the condition holds and Y elsewhere, bytes with a scale and zero point each."""

    inputs = (
        "condition: bool", "X: T", "x_scale: float32", "x_zero_point: T", "Y: T", "y_scale: float32", "y_zero_point: T",
        "z_scale: float32", "z_zero_point: T",
    )  # fmt: skip
    outputs = ("Z: T",)
    types = {"T": BYTES}

    def infer(self, condition: TensorType, X: TensorType, *rest: TensorType) -> TensorType:
        """The shape that all three broadcast to."""
        check_scalars(*rest[:2], *rest[3:])
        return Where().infer(condition, X, rest[2])

    def compose(self, g: GraphBuilder, condition: str, *rest: str) -> str:
        """Bytes of the result's scale, chosen from."""
        x, y, z = rest[:3], rest[3:6], rest[6:]
        return node(g, Where(), condition, _rescaled(g, x, z), _rescaled(g, y, z))


def _rescaled(g: GraphBuilder, value: "tuple[str, ...]", target: "tuple[str, ...]") -> str:
    """Bytes with another scale and zero point; the same bytes where both are equal."""
    pairs = [(g.given(old).value, g.given(new).value) for old, new in zip(value[1:], target, strict=True)]
    if all(old is not None and new is not None and old.item() == new.item() for old, new in pairs):
        return value[0]
    return stored(g, floats(g, *value), g.given(value[0]).dtype, *target)
