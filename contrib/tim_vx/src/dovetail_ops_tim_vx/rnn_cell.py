"""RNNCell of TIM-VX: one step of a simple recurrent network, composed of standard operators."""

from typing import Any

from dovetail.op import FLOATS, DType, GraphBuilder, OperatorError, TensorType
from dovetail_ops_onnx.cast import Cast
from dovetail_ops_onnx.dequantize_linear import DequantizeLinear
from dovetail_ops_onnx.gemm import Gemm
from dovetail_ops_onnx.quantize_linear import QuantizeLinear
from dovetail_ops_tim_vx._activations import activate, check_activation
from dovetail_ops_tim_vx._base import RecurrentOperator
from dovetail_ops_tim_vx._shapes import check_rank, check_shapes

_RANGES = {DType.UINT8: (0, 255), DType.INT8: (-128, 127)}


class RNNCell(RecurrentOperator):
    """Y = activation(X W^T + b + h R^T); state = Y in the state's type.

    X [batch, input_size], W [units, input_size], b [units], h [batch, units], R [units, units]; Y and state [batch, units].
    Without b no bias is added, without h the state starts at zero. Y has the type of X. The state's type is `state_dtype`, else
    that of h, else that of X. An 8-bit state, coming in or going out, stands for (q - state_zero_point) * state_scale; it is
    rounded half to even and saturated, as in QuantizeLinear.

    Row-major shapes; TIM-VX counts dimensions the other way round. Its own RNNCell takes an activation and always computes
    tanh; here the attribute counts. Input order is TIM-VX's: x, W, b, h, R.
    """

    inputs = ("X: T", "W: T", "b?: T", "h?: S", "R: T")
    outputs = ("Y: T", "state?: U")
    types = {"T": FLOATS, "S": FLOATS | frozenset(_RANGES), "U": FLOATS | frozenset(_RANGES)}

    activation: str = "tanh"
    state_dtype: DType | None = None
    state_scale: float = 1.0
    state_zero_point: int = 0

    def __post_init__(self) -> None:
        check_activation(self.activation)
        if not self.state_scale > 0:
            raise OperatorError(f"attribute 'state_scale' is {self.state_scale}; accepted: more than 0")
        if self.state_dtype is not None and self.state_dtype not in self.types["S"]:
            accepted = ", ".join(sorted(d.value for d in self.types["S"]))
            raise OperatorError(f"attribute 'state_dtype' is {self.state_dtype}; accepted: {accepted}")

    def infer(
        self, X: TensorType, W: TensorType, b: TensorType | None, h: TensorType | None, R: TensorType
    ) -> tuple[TensorType, TensorType]:
        """Y and state [batch, units]. Raises `ShapeError` for inputs, `OperatorError` for a zero point that does not fit."""
        batch, input_size = check_rank("X", X, ("batch", "input_size"))
        units, _ = check_rank("W", W, ("units", "input_size"))
        check_shapes(("W", W, (units, input_size)), ("b", b, (units,)), ("h", h, (batch, units)), ("R", R, (units, units)))
        state = self._state_dtype(X, h)
        for dtype in (state, X.dtype if h is None else h.dtype):
            low, high = _RANGES.get(dtype, (self.state_zero_point, self.state_zero_point))
            if not low <= self.state_zero_point <= high:
                raise OperatorError(
                    f"attribute 'state_zero_point' is {self.state_zero_point}; accepted for {dtype}: {low} to {high}"
                )
        y = X.with_shape((batch, units))
        return y, y.with_dtype(state)

    def compose(self, g: GraphBuilder, x: str, w: str, b: str, h: str, r: str) -> Any:
        """Gemm, Gemm, activation, and the conversion of the state if its type differs."""
        given, before = g.given(x), g.type_of(h)
        y: str = g.node(Gemm(transB=True), x, w, *([b] if b else []), name="input")
        if before is not None:
            y = g.node(Gemm(transB=True), self._loaded(g, h, before.dtype, given.dtype), r, y, name="recurrent")
        y = activate(g, self.activation, y, given.dtype)
        return y, self._stored(g, y, given.dtype, self._state_dtype(given, before))

    def _state_dtype(self, X: TensorType, h: TensorType | None) -> DType:
        return self.state_dtype or (X.dtype if h is None else h.dtype)

    def _loaded(self, g: GraphBuilder, h: str, source: DType, target: DType) -> str:
        if source in _RANGES:
            h = g.node(DequantizeLinear(), h, *self._quantization(g, source), name="state_in")
            source = DType.FLOAT32
        return _converted(g, h, source, target, "state_in")

    def _stored(self, g: GraphBuilder, y: str, source: DType, target: DType) -> str:
        if target not in _RANGES:
            return _converted(g, y, source, target, "state_out")
        y = _converted(g, y, source, DType.FLOAT32, "state_out")
        result: str = g.node(QuantizeLinear(), y, *self._quantization(g, target), name="state_out")
        return result

    def _quantization(self, g: GraphBuilder, dtype: DType) -> tuple[str, str]:
        return g.constant(self.state_scale, "float32", "state_scale"), g.constant(
            self.state_zero_point, dtype, "state_zero_point"
        )


def _converted(g: GraphBuilder, x: str, source: DType, target: DType, name: str) -> str:
    if source is target:
        return x
    result: str = g.node(Cast(to=target), x, name=name)
    return result
